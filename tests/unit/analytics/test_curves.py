"""Numbers of full seconds per queue and per holder, against what a dictionary of rows says."""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from failback.analytics.analysis.counting import families, tables
from failback.analytics.report.measures.curves import Curve, curves_of, held_curves_of, summed
from failback.analytics.run.history import GroupQueue

Rows = list[dict[str, Any]]


@pytest.fixture
def rows() -> Rows:
    """Seconds of eight queues and four holders each, in no order."""
    seeded = Random(7)
    keys = [
        {"grp": grp, "broker": "broker-a", "topic": topic, "n1": qid, "n2": second, "n3": holder}
        for grp in ("orders", "refunds")
        for topic in ("Topic", "%RETRY%orders")
        for qid in (0, 3)
        for second in seeded.sample(range(100, 200), 40)
        for holder in (1, 2)
    ]
    seeded.shuffle(keys)
    return [key | {"n4": key["n2"], "value": seeded.randrange(1 << 40)} for key in keys]


def table_of(rows: Rows) -> pa.Table:
    nothing = {f.name: "" if f.type == pa.utf8() else 0 for f in tables.VALUES}
    return pa.Table.from_pylist([nothing | row for row in rows], tables.VALUES)


def plain(curve: Curve) -> list[tuple[int, int]]:
    return list(zip(curve.at.tolist(), curve.value.tolist(), strict=True))


def test_each_queue_has_its_seconds_in_order(rows: Rows) -> None:
    rows = [row for row in rows if row["n3"] == 1]
    wanted: dict[GroupQueue, dict[int, int]] = defaultdict(dict)
    for row in rows:
        queue = GroupQueue(row["grp"], row["broker"], row["topic"], row["n1"])
        wanted[queue][row["n2"]] = row["value"]
    found = curves_of(families.RATE.named(table_of(rows), "value"))
    assert {queue: plain(curve) for queue, curve in found.items()} == {
        queue: sorted(seconds.items()) for queue, seconds in wanted.items()
    }


def test_each_holder_of_a_queue_has_its_own(rows: Rows) -> None:
    rows = [row | {"n2": row["n3"], "n3": -row["n3"]} for row in rows]
    found = held_curves_of(families.FINISHED.named(table_of(rows), "value"))
    assert len(found) == 8
    for queue, holders in found.items():
        assert set(holders) == {(1, -1), (2, -2)}
        for (inc, pqe), curve in holders.items():
            place = (*queue, inc, pqe)
            mine = [
                (row["n4"], row["value"])
                for row in rows
                if (*(row[n] for n in ("grp", "broker", "topic", "n1", "n2", "n3")),) == place
            ]
            assert plain(curve) == sorted(mine)


def test_no_rows_are_no_curves() -> None:
    assert curves_of(families.RATE.of({})) == {}
    assert held_curves_of(families.FINISHED.of({})) == {}
    assert plain(summed([])) == []


def test_curves_are_summed_second_by_second(rows: Rows) -> None:
    curves = list(
        curves_of(
            families.RATE.named(table_of([row for row in rows if row["n3"] == 2]), "value")
        ).values()
    )
    wanted: Counter[int] = Counter()
    for curve in curves:
        wanted.update(dict(plain(curve)))
    assert plain(summed(curves)) == sorted(wanted.items())


def test_a_window_has_its_first_second_and_not_its_last() -> None:
    curve = Curve(np.array([3, 5, 6, 9]), np.array([30, 50, 60, 90]))
    assert plain(curve.within(range(5, 9))) == [(5, 50), (6, 60)]
    assert (curve.within(range(5, 10)).total(), curve.within(range(5, 10)).most()) == (200, 90)
    for nothing in (range(7, 9), range(9, 5), range(20, 30)):
        assert (curve.within(nothing).total(), curve.within(nothing).most()) == (0, 0)


def test_the_highest_so_far_stays_where_a_curve_falls_back() -> None:
    curve = Curve(np.array([3, 5, 6, 9]), np.array([30, 70, 60, 90]))
    seconds = np.array([2, 3, 4, 5, 6, 8, 9, 100])
    assert curve.highest(seconds).tolist() == [0, 30, 30, 70, 70, 70, 90, 90]
    assert Curve(seconds[:0], seconds[:0]).highest(seconds).tolist() == [0] * 8
