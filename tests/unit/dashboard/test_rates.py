"""How fast groups commit, from counts that are looked at again and again."""

from __future__ import annotations

from failback.analytics.dashboard.poller import RateMeter


def meter_of(points: list[tuple[float, int]], time_scale: float = 1.0) -> dict[str, float]:
    meter = RateMeter(30.0)
    for at, count in points:
        meter.add("billing", at, count, time_scale)
    return meter.rates()


def test_a_rate_needs_a_fifth_of_the_window() -> None:
    assert meter_of([(0.0, 0)]) == {}
    assert meter_of([(0.0, 0), (5.9, 590)]) == {}
    assert meter_of([(0.0, 0), (6.0, 600)]) == {"billing": 100.0}


def test_scaled_timers_shorten_the_window() -> None:
    assert meter_of([(0.0, 0), (0.5, 50)], 0.1) == {}
    assert meter_of([(0.0, 0), (0.6, 60)], 0.1) == {"billing": 100.0}
    # What was three seconds ago says nothing any more.
    points = [(0.0, 0), (10.0, 0), (11.0, 0), (12.0, 200), (13.0, 400), (14.0, 600)]
    assert meter_of(points, 0.1) == {"billing": 200.0}
    assert meter_of(points) == {"billing": round(600 / 14, 2)}


def test_a_count_that_fell_begins_anew() -> None:
    assert meter_of([(0.0, 900), (6.0, 300), (9.0, 600)]) == {}
    assert meter_of([(0.0, 900), (6.0, 300), (12.0, 900)]) == {"billing": 100.0}


def test_what_is_gone_is_forgotten() -> None:
    meter = RateMeter(30.0)
    for at in (0.0, 10.0):
        meter.add("billing", at, round(at))
        meter.add("audit", at, round(at))
    meter.keep({"audit"})
    assert meter.rates() == {"audit": 1.0}
