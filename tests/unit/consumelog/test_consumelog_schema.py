"""The three faces of a table agree, and stay light to import."""

import subprocess
import sys

import pyarrow as pa
import pytest

from failback.client.consumelog import schema
from failback.client.consumelog.lab_id import format_lab_id, lane_of, parse_lab_id

SPARK_OF_ARROW = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.bool_(): "BOOLEAN",
    pa.utf8(): "STRING",
    pa.binary(): "BINARY",
    pa.binary(16): "BINARY",
    pa.dictionary(pa.int32(), pa.utf8()): "STRING",
    pa.list_(pa.utf8()): "ARRAY<STRING>",
}


@pytest.mark.parametrize("table", schema.TABLES)
def test_arrow_spark_and_messagepack_name_the_same_columns(table: str) -> None:
    arrow = schema.arrow_schema(table)
    spark = [part.split(" ", 1) for part in schema.spark_ddl(table).split(", ")]
    assert [(f.name, SPARK_OF_ARROW[f.type]) for f in arrow] == [
        (n.strip("`"), k) for n, k in spark
    ]
    common = [column.name for column in schema.COMMON]
    assert arrow.names == [*common, *schema.order(table)]
    assert len(set(arrow.names)) == len(arrow.names)


def test_codes_of_tables_are_unique_and_known() -> None:
    # Old hot files are read by number: a changed code would read one table as another.
    assert {name: table.code for name, table in schema.TABLES.items()} == {
        "deliver": 1,
        "deliver_end": 2,
        "deliver_range": 3,
        "produce": 4,
        "pull": 5,
        "assign": 6,
        "assign_end": 7,
        "commit": 8,
        "sendback": 9,
        "rebalance": 10,
        "fault": 11,
        "clock": 12,
        "route": 13,
        "heartbeat": 14,
        "life": 15,
        "broker_offset_sample": 16,
        "broker_queue_sample": 17,
        "scan": 18,
        "run": 19,
    }


@pytest.mark.parametrize(
    ("begin", "end", "width"),
    [
        ("deliver", "deliver_end", schema.DELIVER_END_COLUMNS),
        ("assign", "assign_end", schema.ASSIGN_END_COLUMNS),
    ],
)
def test_an_end_record_carries_the_last_columns_of_its_row(
    begin: str, end: str, width: int
) -> None:
    assert schema.order(begin)[-width:] == schema.order(end)[-width:]


def test_a_client_process_does_not_load_pyarrow() -> None:
    code = (
        "import sys; import failback.client.consumelog.writer;"
        "import failback.client.consumelog.upload.sealing;"
        "sys.exit('pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_lab_id_has_its_documented_form() -> None:
    lane = lane_of(producer=2, slot=5)
    text = format_lab_id(lane, 4711)
    assert text == "00020005-00000001267"
    assert parse_lab_id(text) == (lane, 4711)
    assert parse_lab_id("not one of ours") is None
    assert parse_lab_id("0002000g-00000001267") is None
    assert parse_lab_id(None) is None
