"""Dups as columns, beside the same questions asked of plain rows."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from failback.analytics.analysis.counting import tables
from failback.analytics.report.measures.dups import FIELDS, Dups
from failback.analytics.report.measures.numbers import quantile, total
from failback.analytics.run.history import GroupQueue

SCHEMA = pa.schema(
    [
        *tables.CLASSIFIED,
        ("inherited", pa.bool_()),
        ("partial_view", pa.bool_()),
        ("a_no", pa.int64()),
    ]
)
NULLABLE = ("client_id", "okey", "et", "ok_end", "cause", "after_success", "a_no")


def deliveries(rng: random.Random, count: int) -> list[dict[str, Any]]:
    """Rows with few distinct values, so that all kinds of equality occur."""
    rows = []
    for number in range(count):
        row: dict[str, Any] = {"did": number, "cls": rng.choice(["PRIMARY", "RETRY", "DUP"])}
        for field in SCHEMA:
            if field.name in row or field.name not in FIELDS:
                continue
            if pa.types.is_boolean(field.type):
                row[field.name] = rng.random() < 0.5
            elif pa.types.is_string(field.type):
                row[field.name] = rng.choice("abc")
            else:
                row[field.name] = rng.randrange(-3, 4)
            if field.name in NULLABLE and rng.random() < 0.3:
                row[field.name] = None
        rows.append(row)
    return rows


@pytest.fixture(params=[0, 1, 400], ids="{}-rows".format)
def rows(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return deliveries(random.Random(request.param), request.param)


@pytest.fixture
def dups(rows: list[dict[str, Any]]) -> Dups:
    table = pa.Table.from_pylist(rows, SCHEMA)
    # In pieces, as Spark answers.
    pieces = [table.slice(at, 7).to_batches() for at in range(0, table.num_rows, 7)]
    table = pa.Table.from_batches([b for each in pieces for b in each], SCHEMA)
    return Dups.of(table, pc.greater_equal(table.column("bt"), -3))


def test_only_what_is_shown_counts(rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, SCHEMA)
    found = Dups.of(table, pc.greater_equal(table.column("bt"), 1))
    wanted = [row["bt"] for row in rows if row["cls"] == "DUP" and row["bt"] >= 1]
    assert sorted(found.ints("bt").tolist()) == sorted(wanted)


def test_counts_and_distinct_values(rows: list[dict[str, Any]], dups: Dups) -> None:
    wanted = [row for row in rows if row["cls"] == "DUP"]
    assert len(dups) == len(wanted)
    assert dups.counts("grp", "cause") == Counter((r["grp"], r["cause"]) for r in wanted)
    assert dups.counts("cause", dups.ints("bt") // 2) == Counter(
        (row["cause"], row["bt"] // 2) for row in wanted
    )
    assert dups.queues() == Counter(
        GroupQueue(r["grp"], r["broker"], r["ptopic"], r["qid"]) for r in wanted
    )
    assert dups.distinct("client_id") == len({row["client_id"] for row in wanted})
    assert dups.distinct("lane", "lseq", "fkey") == len(
        {(row["lane"], row["lseq"], row["fkey"]) for row in wanted}
    )


@pytest.mark.parametrize("group", ["a", "b", "c", "nobody"])
def test_parts_by_group(rows: list[dict[str, Any]], dups: Dups, group: str) -> None:
    wanted = [row for row in rows if row["cls"] == "DUP" and row["grp"] == group]
    mine = dups.of_group(group)
    assert mine.counts(*FIELDS_WITHOUT_NULL) == Counter(
        tuple(row[name] for name in FIELDS_WITHOUT_NULL) for row in wanted
    )
    useless = mine.where(mine.flags("after_success"))
    assert useless.ints("bt").sum() == sum(r["bt"] for r in wanted if r["after_success"] is True)
    since = mine.begun(-1, 2)
    assert since.sum() == sum(-1 <= row["bt"] < 2 for row in wanted)
    assert mine.begun(0, None).sum() == sum(row["bt"] >= 0 for row in wanted)
    for causes in ({"a", None}, {"b"}, set()):
        found = mine.of_cause(lambda cause, causes=causes: cause in causes)  # type: ignore[misc]
        assert found.sum() == sum(row["cause"] in causes for row in wanted)


FIELDS_WITHOUT_NULL = tuple(name for name in FIELDS if name not in NULLABLE)


@pytest.mark.parametrize("number", range(-3, 5))
def test_parts_by_assignment(rows: list[dict[str, Any]], dups: Dups, number: int) -> None:
    wanted = [row for row in rows if row["cls"] == "DUP" and row["a_no"] == number]
    assert Counter(dups.of_assignment(number).ints("qoff").tolist()) == Counter(
        row["qoff"] for row in wanted
    )


def test_a_sum_beyond_64_bits_is_exact() -> None:
    assert total(np.full(9, (1 << 62) + 5)) == 9 * ((1 << 62) + 5)
    assert total(np.array([-1, -(1 << 62), -(1 << 62)])) == -1 - (1 << 63)


def test_quantiles_of_arrays_are_python_numbers() -> None:
    found = quantile(np.arange(10), 0.5)
    assert (found, type(found)) == (4, int)
    assert quantile(np.empty(0, np.int64), 0.5) is None
