"""What an upload must be to get into the lake."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from failback.analytics.collector.decode import decode, unpacked_bytes
from failback.analytics.collector.settings import Limits
from failback.analytics.lake.segment_ids import UPLOAD_KEY, SegmentId
from failback.analytics.web.problems import Problem
from failback.client.consumelog.reader import Head, HotLog
from failback.client.consumelog.schema import TABLES, arrow_schema
from failback.client.consumelog.upload.lake_files import arrow_table
from failback.client.consumelog.upload.segments import segments_of

NAMED = SegmentId("r1", "70" * 16, 4, "life")


def table(rows: int = 3) -> pa.Table:
    head = Head("r1", b"p" * 16, 3, "consumer", "h", 4, 1)
    records = [(TABLES["life"].code, n + 1, 10, 20, f"state-{n}") for n in range(rows)]
    (segment,) = segments_of(HotLog(head, list(records), False, 0))
    return arrow_table(segment)


def stream(content: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, content.schema) as writer:
        writer.write_table(content)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def changed(name: str, values: Any) -> pa.Table:
    given = table()
    at = given.schema.get_field_index(name)
    return given.set_column(at, pa.field(name, values.type, False), values)


def noted(old: bytes, new: bytes) -> pa.Table:
    given = table()
    metadata = {key: value.replace(old, new) for key, value in given.schema.metadata.items()}
    assert metadata != given.schema.metadata
    return given.replace_schema_metadata(metadata)


def test_a_segment_comes_through_as_it_is() -> None:
    body = stream(table())
    decoded = decode(NAMED, body, "ab", Limits())
    assert decoded.table.equals(table())
    assert decoded.table.schema.equals(arrow_schema("life"))
    assert decoded.table.schema.metadata[UPLOAD_KEY.encode()] == b"ab"
    assert (decoded.note.proc_no, decoded.note.records) == (3, 3)
    assert unpacked_bytes(body) > 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (table().drop_columns(["state"]), "column state of life is missing"),
        (changed("state", pa.array([1, 2, 3])), "column state of life is int64"),
        (changed("proc_no", pa.array([3, 3, 4], pa.int32())), "column proc_no is not"),
        (changed("run", pa.array(["r1", "r2", "r1"])), "column run is not"),
        (changed("seq", pa.array([1, 2, 9])), "column seq is outside"),
        (table().slice(0, 2), "3 rows, there are 2"),
        (noted(b'"run":"r1"', b'"run":"r2"'), "metadata says run 'r2'"),
        (noted(b'"index":4', b'"index":5'), "metadata says index 5"),
        (noted(b'"records":3', b'"records":4'), "more records than its seqs"),
        (noted(b'"proc_no":3', b'"proc_no":9000000'), "proc_no"),
        (noted(b"failback.log/1", b"failback.log/2"), "schema failback.log/2"),
        (table().replace_schema_metadata({}), "metadata failback.segment is missing"),
    ],
)
def test_what_does_not_fit_is_named(content: pa.Table, message: str) -> None:
    with pytest.raises(Problem, match=message) as caught:
        decode(NAMED, stream(content), "ab", Limits())
    assert caught.value.status == 422


def test_nulls_where_there_may_be_none_are_refused() -> None:
    given = table()
    at = given.schema.get_field_index("state")
    values = pa.array(["a", None, "b"]).dictionary_encode()
    content = given.set_column(at, pa.field("state", values.type), values)
    with pytest.raises(Problem, match="column state of life has nulls"):
        decode(NAMED, stream(content), "ab", Limits())


def test_a_column_of_a_newer_minor_version_is_kept() -> None:
    content = noted(b"failback.log/1", b"failback.log/1.3").append_column(
        "added", pa.array([7, 8, 9])
    )
    decoded = decode(NAMED, stream(content), "ab", Limits())
    assert decoded.table.column("added").to_pylist() == [7, 8, 9]


@pytest.mark.parametrize(
    "limits", [Limits(rows=2), Limits(decoded_bytes=100), Limits(dictionary_entries=2)]
)
def test_limits(limits: Limits) -> None:
    with pytest.raises(Problem) as caught:
        decode(NAMED, stream(table()), "ab", limits)
    assert caught.value.status == 413


def test_an_index_outside_its_dictionary_is_refused() -> None:
    given = table()
    at = given.schema.get_field_index("state")
    values = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 99], pa.int32()), ["a", "b"], safe=False
    )
    content = given.set_column(at, given.schema.field(at), values)
    with pytest.raises(Problem) as caught:
        decode(NAMED, stream(content), "ab", Limits())
    assert caught.value.status == 422


def test_text_that_grows_when_it_is_spelled_out_is_refused() -> None:
    head = Head("r1", b"p" * 16, 3, "consumer", "h", 4, 1)
    code = TABLES["route"].code
    records = [(code, n + 1, 10, 20, None, None, "t") for n in range(1000)]
    (segment,) = segments_of(HotLog(head, list(records), False, 0))
    given = arrow_table(segment)
    at = given.schema.get_field_index("before")
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), ["x" * 10_000])
    content = given.set_column(at, pa.field("before", text.type), text)
    named = SegmentId("r1", "70" * 16, 4, "route")
    with pytest.raises(Problem, match="too many bytes when unpacked"):
        decode(named, stream(content), "ab", Limits(decoded_bytes=1_000_000))


def test_bytes_that_are_nothing_are_refused() -> None:
    with pytest.raises(Problem, match="cannot be read"):
        decode(NAMED, b"nothing of ours", "ab", Limits())
