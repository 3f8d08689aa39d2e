"""Offsets of queues over hours as points: thinned out, but whole around faults."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.counting import tables
from failback.analytics.report.measures import points
from failback.analytics.report.measures.curves import extremes
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.numbers import NS
from failback.analytics.report.measures.point_rows import Point, points_of
from failback.analytics.run.history import FaultStep, GroupQueue, Held, Series
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.run_analysis import analysed

FALL = 70_000
"""The second in which the offsets fall back, far from every fault."""


@pytest.fixture
def figures(tmp_path: Path) -> Figures:
    generate(Plan(rows=1_000, queues=1, seed=4), tmp_path / "run")
    return Figures(analysed(tmp_path / "run"))


def long_run(figures: Figures, seconds: int) -> GroupQueue:
    """Let the only queue advance by ten messages a second, but fall back once."""
    (queue,) = figures.rates
    nothing = {f.name: "" if f.type == pa.utf8() else 0 for f in tables.VALUES}
    nothing |= {"grp": queue.grp, "broker": queue.broker, "topic": queue.ptopic, "n1": queue.qid}
    fronts = [
        nothing | {"n2": at, "value": 10 * at - (500_000 if at == FALL else 0)}
        for at in range(seconds)
    ]
    values = figures.analysis.counts.values
    values["front"] = pa.Table.from_pylist(fronts, tables.VALUES)  # type: ignore[index]
    return queue


def step(kind: str, second: int) -> FaultStep:
    """A step of the fault F1 that a witness saw."""
    nothing = {field.name: None for field in fields(FaultStep)}
    return FaultStep(**nothing | {"fid": "F1", "kind": kind, "observed": second * NS})  # type: ignore[arg-type]


def delivered(figures: Figures) -> list[Point]:
    return [p for p in points_of(points.points_table(figures)) if p.kind == "delivered"]


def test_a_curve_of_a_day_keeps_its_lows_and_what_lies_around_faults(figures: Figures) -> None:
    day = 86_400
    queue = long_run(figures, day)
    figures.analysis.history.faults[:] = [step("KILL", 40_000), step("ACCEPT", 40_020)]
    found = delivered(figures)
    assert points.MAX_STAIRS / 2 <= len(found) <= points.MAX_STAIRS + 200
    assert {
        GroupQueue(p.group or "", p.broker or "", p.topic or "", p.qid or 0) for p in found
    } == {queue}
    seconds = [p.t_ns // NS - 1 for p in found]
    assert seconds == sorted(seconds), "in order of time"
    assert set(range(39_939, 40_139)) <= set(seconds), "whole around the fault"
    assert {0, FALL, day - 1} <= set(seconds), "the ends and the fall"
    by_second = {p.t_ns // NS - 1: p.value for p in found}
    assert by_second[FALL] == 10 * FALL - 500_000
    assert by_second[40_000] == 400_000


def test_a_curve_of_an_hour_is_whole(figures: Figures) -> None:
    long_run(figures, 3_600)
    assert [p.value for p in delivered(figures)] == [10 * at for at in range(3_600)]


class Looked:
    """Looks that somebody had: one curve."""

    def __init__(self, series: Series, looks: Held) -> None:
        self.found: dict[Series, Held] = {series: looks}

    def held_at(self, instants: Ints) -> Mapping[Series, Held]:
        return {}

    def curves(
        self, queues: Collection[GroupQueue], near: Sequence[tuple[int, int]]
    ) -> Mapping[Series, Held]:
        return self.found


def test_of_a_sampled_offset_only_the_ends_of_flat_stretches_are_shown(figures: Figures) -> None:
    queue = long_run(figures, 10)
    offsets = np.array([5, 5, 5, 5, 9, 9, 9, 12])
    looks = (np.arange(offsets.size) * NS, offsets)
    figures.analysis.history.looks = Looked((queue, "code43", 1), looks)
    found = [p for p in points_of(points.points_table(figures)) if p.kind == "slave_table"]
    assert [(p.t_ns // NS, p.value) for p in found] == [(0, 5), (3, 5), (4, 9), (6, 9), (7, 12)]


@pytest.mark.parametrize("count", [1, 7, 10, 11, 999])
def test_extremes_are_those_of_equal_spans(count: int) -> None:
    seeded = Random(count)
    values = [seeded.randrange(1 << 60) for _ in range(count)]
    found = extremes(values, 10)
    if count <= 10:
        assert found.tolist() == list(range(count))
        return
    span = -(-count // 5)
    wanted = set()
    for begin in range(0, count, span):
        places = range(begin, min(begin + span, count))
        wanted |= {min(places, key=values.__getitem__), max(places, key=values.__getitem__)}
    assert found.tolist() == sorted(wanted)
    assert len(found) <= 10
    assert np.array_equal(extremes(np.array(values), 10), found)
