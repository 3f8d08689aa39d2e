"""The definitions as plain SQL, run by DuckDB over the literal rows of a case."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from failback.analytics.run.history import Assignment
from tests.support.analytics.run_builder import MS, ZERO_MONO_NS, RunBuilder

SQL = Path(__file__).parents[2] / "data" / "analytics" / "reference.sql"
_TIMES = {"bt", "et", "t", "t0", "t1", "end_t", "observed"}
_SHAPES = {
    "deliver": (
        "did BIGINT, grp TEXT, lid TEXT, rt INT, broker TEXT, ptopic TEXT, "
        "qid INT, qoff BIGINT, omid BLOB, inc INT, pqe INT, bt DOUBLE, "
        "et DOUBLE, status TEXT, okey TEXT, kseq BIGINT"
    ),
    "assign": (
        "grp TEXT, inc INT, pqe INT, broker TEXT, ptopic TEXT, qid INT, "
        "t DOUBLE, start_off BIGINT, src TEXT, src_bid INT, src_binc BIGINT, "
        "end_t DOUBLE, end_reason TEXT"
    ),
    "commit": (
        "grp TEXT, broker TEXT, ptopic TEXT, qid INT, off BIGINT, t DOUBLE, "
        "sent BOOLEAN, bid INT, binc BIGINT"
    ),
    "sendback": "grp TEXT, lid TEXT, rt_next INT, reason TEXT",
    "produce": (
        "lid TEXT, att INT, ukey TEXT, res TEXT, t0 DOUBLE, t1 DOUBLE"
    ),
    "scan": "lid TEXT, ptopic TEXT",
    "fault": "fid TEXT, kind TEXT, broker TEXT, t DOUBLE",
    "pull": (
        "grp TEXT, broker TEXT, ptopic TEXT, qid INT, t0 DOUBLE, t1 DOUBLE, "
        "res TEXT"
    ),
}  # fmt: skip


def reference(builder: RunBuilder, assignments: list[Assignment]) -> duckdb.DuckDBPyConnection:
    """A connection with all views of the reference over the case's rows.

    Assignments come normalised (derived ends, NO_ENTRY), as the SQL expects them.
    """
    db = duckdb.connect(":memory:")
    for table, shape in _SHAPES.items():
        names = [part.split()[0] for part in shape.split(", ")]
        rows = builder.rows[table]
        if table == "assign":
            plain = [_of(a) for a in assignments]
        else:
            plain = [{name: _value(row, name) for name in names} for row in rows]
        db.execute(f'CREATE TABLE "{table}" (run TEXT, {shape})')
        if plain:
            marks = ", ".join("?" for _ in range(len(names) + 1))
            values = [["case", *(row[name] for name in names)] for row in plain]
            db.executemany(f'INSERT INTO "{table}" VALUES ({marks})', values)
    text = "\n".join(line.partition("--")[0] for line in SQL.read_text().splitlines())
    text = text.replace("startswith(", "starts_with(").replace(" JOIN commit k", ' JOIN "commit" k')
    for statement in text.split(";"):
        if statement.strip():
            db.execute(statement)
    return db


def rows_of(db: duckdb.DuckDBPyConnection, query: str) -> list[dict[str, Any]]:
    found = db.execute(query)
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _value(row: dict[str, Any], name: str) -> Any:
    if name == "lid":
        return None if row["lane"] is None else f"{row['lane']}-{row['lseq']}"
    value = row["observed"] if name == "t" and "observed" in row else row[name]
    return (value - ZERO_MONO_NS) / MS if name in _TIMES and value is not None else value


def _of(a: Assignment) -> dict[str, Any]:
    return {
        "grp": a.key.grp,
        "inc": a.inc,
        "pqe": a.pqe,
        "broker": a.key.broker,
        "ptopic": a.key.ptopic,
        "qid": a.key.qid,
        "t": a.t / MS,
        "start_off": a.start_off,
        "src": a.src,
        "src_bid": a.src_bid,
        "src_binc": a.src_binc,
        "end_t": None if a.end_t is None else a.end_t / MS,
        "end_reason": a.end_reason,
    }
