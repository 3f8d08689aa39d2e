"""How fast groups commit, from counts that are looked at again and again."""

from __future__ import annotations

from failback.analytics.live.rates import RateMeter


def meter_of(points: list[tuple[float, int]], time_scale: float = 1.0) -> dict[str, float]:
    meter = RateMeter[str](30.0)
    for at, count in points:
        meter.look(at, {"billing": count}, time_scale)
    return meter.per_second


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
    assert meter_of(points) == {"billing": 600 / 14}


def test_a_count_that_fell_begins_anew() -> None:
    assert meter_of([(0.0, 900), (6.0, 300), (9.0, 600)]) == {}
    assert meter_of([(0.0, 900), (6.0, 300), (12.0, 900)]) == {"billing": 100.0}


def test_until_a_count_that_fell_is_known_again_its_rate_is_the_last_one() -> None:
    before = [(0.0, 0), (10.0, 1000)]
    assert meter_of([*before, (11.0, 400), (12.0, 410)]) == {"billing": 100.0}
    assert meter_of([*before, (11.0, 400), (21.0, 600)]) == {"billing": 20.0}


def test_one_that_comes_later_has_a_rate_of_its_own() -> None:
    meter = RateMeter[str](30.0)
    for at in range(10):
        meter.look(float(at), {"billing": 0})
    for at in range(10, 18):
        meter.look(float(at), {"billing": 0, "audit": at * 10})
    assert meter.per_second == {"billing": 0.0, "audit": 10.0}


def test_what_is_gone_is_forgotten() -> None:
    meter = RateMeter[str](30.0)
    for at in (0.0, 10.0):
        meter.look(at, {"billing": round(at), "audit": round(at)})
    meter.look(11.0, {"audit": 11})
    assert meter.per_second == {"audit": 1.0}


def test_looks_are_kept_for_the_window_and_a_few_of_them() -> None:
    meter = RateMeter[str](30.0)
    for at in range(1000):
        meter.look(at / 10, {"billing": at})
    assert len(meter._looks) <= 8
