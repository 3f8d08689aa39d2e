"""A run too long for a row per second: the figures are the same, its curves have wider spans."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.partials import seconds
from failback.analytics.report.compare import differences
from failback.analytics.report.document import build_report
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.point_rows import Point, points_of
from failback.analytics.report.page.time_series import cause_time_data, timeline_data
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.run_analysis import analysed

BY_SECOND = [family for _, family in families.all_families() if "second" in family.stored]
COUNTED = ("produce_rate", "deliver_rate", "dup_rate", "dup_by_group", "dup_by_queue")


def messages_of(points: list[Point]) -> dict[tuple[str, ...], int]:
    """By kind and place how many messages the points tell of."""
    found: dict[tuple[str, ...], float] = defaultdict(float)
    for point in points:
        if point.kind in COUNTED:
            seconds_of = point.width_s if point.kind.endswith("_rate") else 1
            place = (point.kind, point.group or "", point.label or "", str(point.qid))
            found[place] += point.value * seconds_of
    return {place: round(count) for place, count in found.items()}


def test_figures_are_those_of_every_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = tmp_path / "run"
    generate(Plan(rows=24_000, queues=2, groups=1, dup_share=0.2, seed=3), run)
    exact = analysed(run)
    monkeypatch.setattr(seconds, "MAX_SPANS", 8)
    coarse = analysed(run)
    for family in BY_SECOND:
        mine, theirs = (family.of({**each.counts.values, **each.repeats.values}).num_rows
                        for each in (coarse, exact))  # fmt: skip
        assert mine <= theirs, family.name
    assert coarse.context.seconds.widths[0] > 10
    rates = Figures(coarse).table(families.RATE)
    assert rates.num_rows <= 2 * 9 < Figures(exact).table(families.RATE).num_rows / 5
    (mine_report, mine), (their_report, theirs) = (build_report(each, "local")
                                                   for each in (coarse, exact))  # fmt: skip
    for report in (mine_report, their_report):
        for coarser in ("exposure", "tool"):
            report.pop(coarser, None)
    assert differences(mine_report, their_report) == []
    points, all_points = points_of(mine), points_of(theirs)
    assert messages_of(points) == messages_of(all_points)
    assert messages_of(points)


def test_a_curve_is_not_higher_than_what_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    generate(Plan(rows=24_000, queues=2, groups=1, dup_share=0.2, seed=3), run)
    most = {}
    for spans in (3_600, 8):
        monkeypatch.setattr(seconds, "MAX_SPANS", spans)
        report, table = build_report(analysed(run), "local")
        points = points_of(table)
        timeline, causes = timeline_data(report, points), cause_time_data(report, points)
        assert timeline.rates["deliveries"].values
        most[spans] = [
            *(max(each.values) for each in timeline.rates.values()),
            *(max(each) for each in causes.rates.values()),
        ]
        total = sum(sum(each) for each in causes.rates.values())
        width = causes.seconds[1] - causes.seconds[0]
        assert total * width == pytest.approx(report["totals"]["dup"])
    assert all(wide <= every + 1e-9 for every, wide in zip(most[3_600], most[8], strict=True))
