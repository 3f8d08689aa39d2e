"""The timeline shows when a route changed, and when clients took the change over."""

from __future__ import annotations

from pathlib import Path

from failback.analytics.report.document import build_report
from failback.analytics.report.measures.point_rows import points_of
from failback.analytics.report.page.time_series import timeline_data
from tests.support.analytics.bad_input import clean
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import MS, ZERO_MONO_NS

FULL = "broker-a/0=127.0.0.1:10911,broker-a/1=127.0.0.2:10911"
SLAVE = "broker-a/1=127.0.0.2:10911"


def test_changes_of_routes_are_events(tmp_path: Path) -> None:
    b = clean()

    def route(t_ms: int, before: str | None, after: str, trigger: str, proc: int) -> None:
        b.add("route", proc=proc, before=before, after=after, trigger=trigger)
        b.rows["route"][-1]["mono_ns"] = ZERO_MONO_NS + t_ms * MS

    route(10, None, FULL, "WITNESS:ns-0", 99)
    route(20, None, "x", "POLL:T", 1)
    for server in ("ns-0", "ns-1"):
        route(2100, FULL, SLAVE, f"WITNESS:{server}", 99)
    route(2900, "x", "y", "POLL:T", 1)
    route(2950, "x", "y", "POLL:T", 2)
    route(2960, "x", "y", "POLL:U", 2)
    route(5200, SLAVE, FULL, "WITNESS:ns-0", 99)
    route(9000, "y", "x", "POLL:T", 1)
    document, points = build_report(analysed(b.write(tmp_path / "run")), "local")
    events = timeline_data(document, points_of(points)).events
    assert [event for event in events if "route" in event[1]] == [
        (2_000 * MS, "route: -broker-a/0; 2 clients took the new route"),
        (5_000 * MS, "route: +broker-a/0"),
        (9_000 * MS, "1 client took the new route"),
    ]
