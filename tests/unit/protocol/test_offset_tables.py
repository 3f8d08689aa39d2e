"""Tables with integer keys are read quickly, and as the slow reader reads them."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from failback.protocol import fastjson
from failback.protocol.route import ConsumerOffsetTable

names = st.text('T@g{},:0123456789 "\\-é', max_size=12)
tables = st.dictionaries(
    names, st.dictionaries(st.integers(0, 9999), st.integers(-1, 2**53), max_size=4), max_size=6
)


@given(table=tables)
@example(table={'{0:1,2:"': {0: 1}})
@example(table={"{0:1,2:": {0: 1, 10: 2}, "a,5:": {}})
def test_offsets_survive_the_dialect_whatever_their_topics_are_called(
    table: dict[str, dict[int, int]],
) -> None:
    body = ConsumerOffsetTable(table)
    assert ConsumerOffsetTable.from_json(body.to_json(unquoted_int_keys=True)) == body
    assert ConsumerOffsetTable.from_json(body.to_json()) == body


@given(table=tables)
def test_a_table_is_written_as_every_body_is(table: dict[str, dict[int, int]]) -> None:
    written = ConsumerOffsetTable(table).to_json(unquoted_int_keys=True)
    assert written == fastjson.dumps(ConsumerOffsetTable(table), unquoted_int_keys=True)


@given(table=tables)
def test_quoting_changes_keys_and_nothing_else(table: dict[str, dict[int, int]]) -> None:
    text = ConsumerOffsetTable(table).to_json(unquoted_int_keys=True).decode()
    quoted = fastjson.with_quoted_keys(text)
    if quoted is None:
        assert "\\" in text or not any(table.values())
    else:
        assert quoted == ConsumerOffsetTable(table).to_json().decode()


def test_a_reader_of_types_is_not_asked_about_what_has_escapes() -> None:
    assert fastjson.with_quoted_keys('{"a\\"{0:":1}') is None
    assert fastjson.with_quoted_keys(b"{0:{1:2},-3:4,word:5}") == '{"0":{"1":2},"-3":4,word:5}'
    blanks = b'{"offsetTable": { "T@g": { 0 : 5} }}'
    assert ConsumerOffsetTable.from_json(blanks).offset_table == {"T@g": {0: 5}}


def test_a_large_text_is_quoted_in_parts_as_it_is_in_one() -> None:
    names = ["a,b:{1:", "t@g", "{0:1,", "x" * 70]
    table = {f"{names[n % 4]}{n}": {queue: n * queue for queue in range(9)} for n in range(4000)}
    table["y," * 50_000] = {1: 2}
    table["dense"] = {queue: queue for queue in range(30_000)}
    text = ConsumerOffsetTable(table).to_json(unquoted_int_keys=True).decode()
    assert fastjson.with_quoted_keys(text) == ConsumerOffsetTable(table).to_json().decode()
