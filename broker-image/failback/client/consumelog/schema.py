"""The tables of the consume log: one source for Arrow, for Spark and for the order of the hot log.

What each column holds is in ``meanings``.

A table is written down once, as a line of ``name kind`` pairs. Kinds:

====  ==========================  ==================  =========
kind  meaning                     Arrow               Spark
====  ==========================  ==================  =========
N     name: topic, broker, enum   dictionary<i32>     STRING
s     free text                   utf8                STRING
T     time, ns                    int64               BIGINT
i, l  integer of 32 / 64 bits     int32 / int64       INT / BIGINT
b     flag                        bool                BOOLEAN
id    16 bytes                    fixed_size_binary   BINARY
x     bytes                       binary              BINARY
S     list of text                list<utf8>          ARRAY<STRING>
d     float; in no table          float64
====  ==========================  ==================  =========

A ``?`` makes the column nullable. A time is the writer's CLOCK_MONOTONIC; broker times end in
``_ms`` and are the broker's own clock.
``unit_of`` says it column by column, and the files of the lake say it of themselves.

A file of the lake has no column ``run``: the folder that it lies in has it.

A delivery is two records in the hot log, ``deliver`` up to ``bt`` and ``deliver_end``, and one row
in the lake: sealing joins them by ``did``. The same holds for ``assign`` and ``assign_end`` by
process and ``pqe``. An end record whose begin lies in an earlier segment stays a row of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_ID: Final = "failback.log/1"
SCHEMA_KEY: Final = "failback.schema"  # Parquet key-value metadata


KINDS: Final = {
    "N": "name",
    "s": "text",
    "T": "time",
    "i": "int32",
    "l": "int64",
    "b": "flag",
    "id": "16 bytes",
    "x": "bytes",
    "S": "list of text",
}
"""Kind letters in words."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its name, its kind letter, and whether it may be null."""

    name: str
    kind: str
    nullable: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """One table: ``code`` is its number in hot log records and never changes."""

    name: str
    code: int
    own: tuple[Column, ...]
    """The columns after the common ones, in MessagePack order."""

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns of the lake's file: the common ones first."""
        return COMMON + self.own


def _columns(text: str) -> tuple[Column, ...]:
    pairs = [pair.split() for pair in text.replace("\n", " ").split(",")]
    return tuple(Column(name, kind.rstrip("?"), kind.endswith("?")) for name, kind in pairs)


RUN: Final = "run"
"""The column of the common ones that a file of the lake lacks."""
COMMON: Final = _columns("run N, proc id, proc_no i, seq l, wall_ns l, mono_ns l, host N")

# The begin record of deliver and assign is a prefix of its row: what the end adds comes last.
_TEXT: Final[dict[str, tuple[int, str]]] = {
    "deliver": (
        1,
        """did l, call_id l, grp N, client_id N, inc i, pqe i, pull_id l?, broker N, ptopic N,
        qid i, qoff l, phy l, omid x, ukey s?, keys s?, lane l?, lseq l?, okey N?, kseq l?,
        ltopic N, rt i, origin_id s?, born_ms l, store_ms l, crc l, bt T, et T?, status N,
        applied b?, remove_result l?""",
    ),
    "deliver_end": (2, "did l, et T, status N, applied b?, remove_result l?"),
    "deliver_range": (
        3,
        """grp N, inc i, pqe i, broker N, ptopic N, qid i, lo l, hi l, n i, bt T, et T?,
        all_ok b""",
    ),
    "produce": (
        4,
        """lane l?, lseq l?, att i, ukey s?, topic N, broker N?, qid i?, bid i?, addr N?, due T,
        t0 T, t1 T, res N, code i?, offset_msg_id x?, queue_offset l?, okey N?, kseq l?""",
    ),
    "pull": (
        5,
        """pull_id l, grp N, inc i, pqe i, broker N, ptopic N, qid i, req_offset l,
        commit_offset l?, commit_bit b, addr N?, bid i?, chan l?, t0 T, t1 T, res N, code i?,
        next l?, min l?, max l?, n i?, first_off l?, last_off l?, suggested i?""",
    ),
    "assign": (
        6,
        """grp N, inc i, pqe i, broker N, ptopic N, qid i, t T, start_off l, src N, src_addr N?,
        src_bid i?, src_binc l?, read_code i?, branch N?, client_id N?, end_t T?, end_reason N?""",
    ),
    "assign_end": (
        7,
        "inc i, pqe i, broker N, ptopic N, qid i, end_t T, end_reason N",
    ),
    "commit": (
        8,
        """grp N, inc i, broker N, ptopic N, qid i, off l, prev l?, kind N, addr N?, bid i?,
        binc l?, t T, sent b, result N?, client_id N?""",
    ),
    "sendback": (
        9,
        """lane l?, lseq l?, grp N, omid x?, rt_next i, reason N, path N, ok b, addr N?, t0 T, t1 T,
        client_id N?, ukey s?""",
    ),
    "rebalance": (
        10,
        """grp N, inc i, ltopic N, t T, trigger N, answered_by N?, members S, queues i, result i""",
    ),
    "fault": (
        11,
        """fid N, kind N, pair N?, broker N?, bid i?, role N?, addr N?, proc_ref s?, signum i?,
        intended T?, issued T?, issued_end T?, observed T?, observer N?, honest b?, detail s?,
        boot_ms l?""",
    ),
    "clock": (12, "boot_id s, source N, offset_ns l, error_ns l"),
    "route": (13, "before s?, after s?, trigger N"),
    "heartbeat": (14, "addr N, ok b, code i?"),
    "life": (15, "state N"),
    "broker_offset_sample": (
        16,
        """addr N, broker N, bid i, binc l?, source N, grp N, ptopic N, qid i, off l,
        file_mtime_ns l?, t T""",
    ),
    "broker_queue_sample": (
        17,
        "addr N, broker N, bid i, binc l?, ptopic N, qid i, min l, max l, t T",
    ),
    "scan": (
        18,
        """broker N, bid i, ptopic N, qid i, qoff l, omid x, ukey s?, lane l?, lseq l?, rt i,
        store_ms l""",
    ),
    "run": (
        19,
        """scenario N, arm N, repetition i, seed s, rule_set N, engine N, versions s, switches s,
        topology s""",
    ),
}

TABLES: Final[dict[str, Table]] = {
    name: Table(name, code, _columns(text)) for name, (code, text) in _TEXT.items()
}
TABLE_OF_CODE: Final[dict[int, Table]] = {table.code: table for table in TABLES.values()}

# The last columns of these tables are filled by their end record: (end table, how many).
DELIVER_END_COLUMNS: Final = 4
ASSIGN_END_COLUMNS: Final = 2

DELIVER_STATUSES: Final = ("SUCCESS", "LATER", "EXC", "NULL", "SUSPEND", "ABANDONED")
FAILED_STATUSES: Final = ("LATER", "EXC", "NULL", "SUSPEND")
END_REASONS: Final = (
    "REBALANCE",
    "PULL_EXPIRED",
    "RESET",
    "UNSUBSCRIBE",
    "SHUTDOWN",
    "CRASH",
    "MEMBERSHIP_LOST",
)
ASSIGN_SOURCES: Final = (
    "STORE",
    "NO_ENTRY",
    "MAX",
    "MIN",
    "TIMESTAMP",
    "MEMORY",
    "RECOMPUTED_ORDERLY",
)
SEND_RESULTS: Final = (
    "OK",
    "OK_DEGRADED",
    "TIMEOUT",
    "CONN",
    "WRITE_FAILED",
    "BROKER_ERR",
    "UNKNOWN",
)
COMMIT_KINDS: Final = (
    "TIMER",
    "PULL",
    "REMOVE",
    "ILLEGAL",
    "SHUTDOWN",
    "USER_SYNC",
    "LOCAL_FILE",
    "ADMIN_RESET",
)


def order(table: str) -> tuple[str, ...]:
    """Names of the columns of a hot log record, after its code, seq and two times."""
    return tuple(column.name for column in TABLES[table].own)


_EPOCH: Final = "since 1970-01-01 UTC"
MONOTONIC: Final = "ns, CLOCK_MONOTONIC of the host"
"""The unit of a time in the lake."""

UNITS: Final[dict[str, str]] = {
    "wall_ns": f"ns {_EPOCH}, wall clock of the host",
    "mono_ns": MONOTONIC,
    "born_ms": f"ms {_EPOCH}, clock of the producer",
    "store_ms": f"ms {_EPOCH}, clock of the broker",
    "boot_ms": f"ms {_EPOCH}, clock of the broker",
    "binc": f"ms {_EPOCH}, clock of the broker",
    "src_binc": f"ms {_EPOCH}, clock of the broker",
    "file_mtime_ns": f"ns {_EPOCH}, clock of the broker's machine",
    "offset_ns": "ns",
    "error_ns": "ns",
    "phy": "byte of the commit log",
    "rt": "times",
    "rt_next": "times",
    "queues": "queues",
    "n": "messages",
    "rebalance.result": "queues",
    **dict.fromkeys(
        ("qoff", "lo", "hi", "remove_result", "queue_offset", "req_offset", "commit_offset", "next",
         "min", "max", "first_off", "last_off", "start_off", "off", "prev"),
        "offset in the queue",
    ),
}  # fmt: skip
"""What a number counts, by column or by ``table.column``. Times of kind T are not listed."""


def unit_of(table: str, column: Column) -> str:
    """The unit of a column, empty for text, flags and plain numbers."""
    if column.kind == "T":
        return MONOTONIC
    return UNITS.get(f"{table}.{column.name}", UNITS.get(column.name, ""))


_SPARK: Final = {
    "N": "STRING",
    "s": "STRING",
    "T": "BIGINT",
    "l": "BIGINT",
    "i": "INT",
    "b": "BOOLEAN",
    "id": "BINARY",
    "x": "BINARY",
    "S": "ARRAY<STRING>",
}


def spark_ddl(table: str) -> str:
    """The DDL string that Spark reads this table with."""
    return ", ".join(f"`{column.name}` {_SPARK[column.kind]}" for column in TABLES[table].columns)


@cache
def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a kind letter."""
    import pyarrow as pa

    return {
        "N": pa.dictionary(pa.int32(), pa.utf8()),
        "s": pa.utf8(),
        "T": pa.int64(),
        "l": pa.int64(),
        "i": pa.int32(),
        "b": pa.bool_(),
        "id": pa.binary(16),
        "x": pa.binary(),
        "S": pa.list_(pa.utf8()),
        "d": pa.float64(),
    }[kind]


def schema_of(text: str) -> pa.Schema:
    """The Arrow schema of another table than those of the log, written down as they are."""
    import pyarrow as pa

    return pa.schema([(each.name, arrow_type(each.kind)) for each in _columns(text)])


@cache
def arrow_schema(table: str) -> pa.Schema:
    """The Arrow schema of a table as it is sent and read, with the schema id in its metadata."""
    import pyarrow as pa

    fields = [
        pa.field(column.name, arrow_type(column.kind), column.nullable)
        for column in TABLES[table].columns
    ]
    return pa.schema(fields, metadata={SCHEMA_KEY: SCHEMA_ID})


@cache
def lake_schema(table: str) -> pa.Schema:
    """The Arrow schema of a file of the lake: each field says its ``meaning`` and its ``unit``.

    ``run`` is not in it, because the path has it: what is in both is a conflict for readers.
    """
    import pyarrow as pa

    from failback.client.consumelog.meanings import meaning_of

    fields = []
    for column in TABLES[table].columns:
        if column.name == RUN:
            continue
        said = {"meaning": meaning_of(table, column.name)}
        unit = unit_of(table, column)
        if unit:
            said["unit"] = unit
        fields.append(pa.field(column.name, arrow_type(column.kind), column.nullable, said))
    return pa.schema(fields, metadata={SCHEMA_KEY: SCHEMA_ID})
