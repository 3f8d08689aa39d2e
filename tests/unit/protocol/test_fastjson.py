"""The dialect: what Java writes is read, what we write Java reads, damage is named."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from failback.protocol import fastjson
from failback.protocol.errors import ProtocolError

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
int64 = st.integers(-(2**63), 2**63 - 1)
scalars = st.booleans() | int64 | st.floats(allow_nan=False, allow_infinity=False) | texts
object_keys = st.dictionaries(texts, int64 | texts, min_size=1, max_size=3).map(
    lambda table: tuple(sorted(table.items(), key=repr))
)


def documents(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


def has_ref(value: Any) -> bool:
    return "$ref" in repr(value)


@given(value=documents(texts).filter(lambda value: not has_ref(value)))
@example(value={"a": '}{,:"\\\x01'})
def test_standard_json_goes_both_ways(value: Any) -> None:
    assert json.loads(fastjson.dumps(value)) == value
    assert fastjson.loads(json.dumps(value)) == value
    assert fastjson.loads(json.dumps(value, indent=1, ensure_ascii=False).encode()) == value


@given(value=documents(texts | int64 | object_keys).filter(lambda value: not has_ref(value)))
@example(value={0: {(("brokerName", "b{,"), ("queueId", 3)): {1: [{}]}}})
def test_the_dialect_goes_both_ways(value: Any) -> None:
    assert fastjson.loads(fastjson.dumps(value, unquoted_int_keys=True)) == value
    assert fastjson.loads(fastjson.dumps(value, pretty=True)) == value


def test_keys_keep_their_kind() -> None:
    assert fastjson.loads('{0:1,"0":2,-7:3,word:4}') == {0: 1, "0": 2, -7: 3, "word": 4}


def test_object_keys_are_sorted_tuples() -> None:
    text = '{{"topic":"T","queueId":3,"brokerName":"b"}:5}'
    assert fastjson.loads(text) == {(("brokerName", "b"), ("queueId", 3), ("topic", "T")): 5}


def test_keys_come_out_in_order_without_blanks() -> None:
    assert fastjson.dumps({"b": 1, "a": {2: True, 10: None, 1: 0.0}}) == (
        b'{"a":{"1":0.0,"2":true},"b":1}'
    )


def test_sets_and_tuples_are_arrays() -> None:
    assert fastjson.dumps({"a": {"y", "x"}, "b": (1, 2)}) == b'{"a":["x","y"],"b":[1,2]}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "}",
        "{0:1",
        "{0}",
        "{0:}",
        "{[1]:2}",
        "{0:1}{",
        "{0:1} x",
        "{0:nope}",
        '{0:"\\x"}',
        '{0:"a}',
        '{0:{"$ref":"$.a"}}',
        '{"a":{"$ref":"$.b"}}',
        "{0:" + "[" * 10_000,
        "[" * 10_000,
        "{" * 10_000,
    ],
)
def test_what_is_no_json_is_a_protocol_error(text: str) -> None:
    with pytest.raises(ProtocolError):
        fastjson.loads(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[1,]", [1]),
        ("[,,1,,2,,]", [1, 2]),
        ("{,}", {}),
        ("{0:1,,}", {0: 1}),
        ("{0:+1}", {0: 1}),
        ("{0:01}", {0: 1}),
        ("{0:1L,1:2.}", {0: 1, 1: 2.0}),
        ("{0:'a',\"b\":'it\\'s'}", {0: "a", "b": "it's"}),
        ("{0:NaN,1:undefined}", {0: None, 1: None}),
        ("{a:/* one */1,// two\nb:2}", {"a": 1, "b": 2}),
        ('{0:"\\x41\\0\\v"}', {0: "A\0\v"}),
        ('{0:"a\tb\nc"}', {0: "a\tb\nc"}),
        ('\ufeff{"a":1}', {"a": 1}),
        ('{0:"\\ud83d\\ude00\\ud800"}', {0: "\U0001f600\ufffd"}),
        ("Set[1]", [1]),
    ],
)
def test_what_people_and_other_clients_write_is_read(text: str, value: Any) -> None:
    assert fastjson.loads(text) == value


def test_a_place_is_a_line_and_a_column() -> None:
    with pytest.raises(ProtocolError, match="line 3, column 5: unexpected nope"):
        fastjson.loads('{"a":1,\n"b":2,\n"c":nope}')


def test_bytes_that_are_no_utf8_are_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="UTF-8"):
        fastjson.loads(b'{0:"\xff"}')


@given(text=st.text(alphabet='{}[]:,"\\ -01.eau$ref\n', max_size=40))
def test_hostile_text_raises_protocol_errors_only(text: str) -> None:
    with contextlib.suppress(ProtocolError):
        fastjson.loads(text)
