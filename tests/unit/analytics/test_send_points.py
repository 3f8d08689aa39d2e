"""The slowest sends of a run as points, thinned out for runs of many days."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from failback.analytics.analysis.counting import tables
from failback.analytics.analysis.counting.partials.sends import LATENCY_POINT_NS
from failback.analytics.report.measures import points
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.point_rows import points_of
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.run_analysis import analysed


@pytest.fixture
def figures(tmp_path: Path) -> Figures:
    generate(Plan(rows=1_000, seed=4), tmp_path / "run")
    return Figures(analysed(tmp_path / "run"))


def send_points(figures: Figures, rows: list[tuple[str, int, int]]) -> list[tuple[str, int, float]]:
    """What is made of (result, tenth of a second, latency in ns)."""
    nothing = {f.name: "" if f.type == pa.utf8() else 0 for f in tables.VALUES}
    table = pa.Table.from_pylist(
        [{**nothing, "grp": res, "n1": at, "value": latency} for res, at, latency in rows],
        tables.VALUES,
    )
    figures.analysis.counts.values["send_point"] = table  # type: ignore[index]
    found = points_of(points.points_table(figures))
    return [
        (point.label or "", point.t_ns // LATENCY_POINT_NS, point.value * 1e6)
        for point in found
        if point.kind == "send_latency"
    ]


@pytest.mark.few(1)
@pytest.mark.parametrize("most", [1000, 60, 1])
def test_each_result_has_its_slowest_send_of_each_stretch(
    most: int, figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points, "MAX_POINTS", most)
    seeded = Random(most)
    bins = [(res, at) for res in ("OK", "TIMEOUT", "CONN") for at in range(100)]
    rows = [(res, at, seeded.randrange(8) * 10**6) for res, at in bins]
    step = -(-len(rows) // most)
    slowest: dict[tuple[str, int], tuple[int, int]] = {}
    for res, at, latency in rows:
        place = (res, at // step)
        slowest[place] = max(slowest.get(place, (0, 0)), (latency, at))
    found = send_points(figures, rows)
    assert sorted(found) == sorted((res, at, ns) for (res, _), (ns, at) in slowest.items())


def test_a_run_without_sends_has_no_such_points(figures: Figures) -> None:
    assert send_points(figures, []) == []
