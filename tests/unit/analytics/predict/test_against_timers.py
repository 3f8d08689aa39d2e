"""The draws agree with a simulation that lives through the timers tick by tick."""

from __future__ import annotations

import numpy as np
import pytest

from failback.analytics.predict.faults import FaultPlan, Start, Stop
from failback.analytics.predict.prediction import draw
from failback.analytics.predict.settings import Settings
from tests.unit.analytics.predict.timer_simulation import Lab, quantiles

RUNS = 20_000
SETTINGS = Settings(
    rate=100,
    capacity=100,
    queues=4,
    consume_threads=1,
    pull_threshold_for_queue=64,
    await_termination=60_000,
    broker_start_seconds=0,
)
HANDOVER = FaultPlan(
    "handover",
    "",
    "",
    down_seconds=60,
    stop=Stop("served", messages=1200),
    start=Start(5, after_return=True),
)


def on_slave(at: float, signal: str = "TERM") -> FaultPlan:
    """Members end ``at`` seconds after the kill and are back before the master."""
    assert signal in ("TERM", "KILL")
    stop = Stop("outage", at, signal="TERM" if signal == "TERM" else "KILL")
    return FaultPlan("on-slave", "", "", down_seconds=60, stop=stop, start=Start(1))


def after_return(seconds: float) -> FaultPlan:
    stop = Stop("return", seconds, signal="KILL")
    return FaultPlan("after-return", "", "", down_seconds=60, stop=stop, start=Start(1))


CASES = {
    "handover": (SETTINGS, HANDOVER, Lab(served=1200)),
    "a shorter flush": (
        SETTINGS.with_values({"I_b": 1}),
        HANDOVER,
        Lab(served=1200, flush=1.0),
    ),
    "before and after the route changed": (SETTINGS, on_slave(15), Lab(stop=15, start=16)),
    "crash on the slave": (
        SETTINGS,
        on_slave(50, "KILL"),
        Lab(stop=50, start=51, clean=False),
    ),
    "crash after the return": (
        SETTINGS,
        after_return(0.5),
        Lab(stop=60.5, start=61.5, clean=False),
    ),
    "crash later after the return": (
        SETTINGS,
        after_return(4),
        Lab(stop=64, start=65, clean=False),
    ),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CASES)
def test_quantiles_are_those_of_the_simulated_timers(name: str) -> None:
    settings, plan, lab = CASES[name]
    drawn = draw(settings, plan, RUNS, seed=1)
    total = np.sum([*drawn.values()], axis=0)
    # A member that is cut off also leaves the one message in its handler; the oracle has none.
    total -= 0 if lab.clean else 1
    wanted = quantiles(lab, RUNS, seed=2)
    found = (*np.percentile(total, (5, 50, 95)), np.mean(total))
    scale = max(wanted[2], 1.0)
    for mine, theirs in zip(found, wanted, strict=True):
        assert abs(mine - theirs) <= 0.02 * scale, (name, found, wanted)
