"""Periodic work: fixed rate, one job at a time, one scale for all intervals."""

from __future__ import annotations

import pytest

from failback.broker.config.time_scale import TimeScale
from failback.client.clock import Scheduler


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def run_until(scheduler: Scheduler, clock: Clock, end: float) -> None:
    while (seconds := scheduler.seconds_to_next()) is not None and clock.now + seconds <= end:
        clock.now += seconds
        await scheduler.run_due()
    clock.now = max(clock.now, end)


async def test_first_delay_and_period_are_kept() -> None:
    clock = Clock()
    scheduler = Scheduler(clock)
    times: list[float] = []
    scheduler.every("persist", 10_000, 5_000, lambda: times.append(clock.now))
    await run_until(scheduler, clock, 122)
    assert times == [110.0, 115.0, 120.0]


async def test_the_scale_changes_first_delay_and_period_alike() -> None:
    clock = Clock()
    scheduler = Scheduler(clock, TimeScale(0.1).seconds)
    times: list[float] = []
    scheduler.every("persist", 10_000, 5_000, lambda: times.append(clock.now))
    await run_until(scheduler, clock, 102.1)
    assert times == pytest.approx([101.0, 101.5, 102.0])


async def test_a_slow_job_delays_the_others_which_then_catch_up() -> None:
    clock = Clock()
    scheduler = Scheduler(clock)
    times: list[float] = []

    async def register() -> None:
        clock.now += 12  # a name server that does not answer

    scheduler.every("register", 1_000, 1_000_000, register)
    scheduler.every("persist", 5_000, 5_000, lambda: times.append(clock.now))
    await run_until(scheduler, clock, 121)
    assert times == [113.0, 113.0, 115.0, 120.0]


async def test_a_failing_job_runs_again_and_stops_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock()
    scheduler = Scheduler(clock)
    seen: list[str] = []

    def fail() -> None:
        seen.append("fail")
        raise OSError("no space left")

    scheduler.every("fail", 1_000, 1_000, fail)
    scheduler.every("other", 1_000, 1_000, lambda: seen.append("other"))
    await run_until(scheduler, clock, 102)
    assert seen == ["fail", "other", "fail", "other"]
    assert "scheduled job fail failed" in caplog.text


def test_no_positive_interval_is_scaled_to_nothing() -> None:
    assert TimeScale(0.001).ms(100) == 1
    assert TimeScale(0.001).ms(0) == 0
    assert TimeScale(0.5).seconds(30_000) == 15.0
