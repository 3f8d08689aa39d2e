"""Predict a fault: draw, sum up, and compare settings. The entry points of the package. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from failback.analytics.analysis.causes.labels import report_group
from failback.analytics.predict.faults import OFFSET_FREE, FaultPlan
from failback.analytics.predict.members import draw_running
from failback.analytics.predict.restarts import Draws, draw_restart
from failback.analytics.predict.settings import Settings
from failback.analytics.predict.timers import PERSIST_FIRST, Ages, Array, draw_ages, since_tick
from failback.analytics.predict.worst import Term, worst_case, worst_terms
from failback.protocol.errors import ConfigError

DRAWS: Final = 10_000
SEED: Final = 42
MOST_DRAWS: Final = 1_000_000
_CELLS_AT_ONCE: Final = 500_000
"""Draws x members that are in memory together."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Duplicates to expect of one fault. All figures are messages."""

    fault: FaultPlan
    median: float
    mean: float
    p5: float
    p95: float
    most: float
    """Highest draw: never above ``worst``."""
    worst: int
    terms: tuple[Term, ...]
    causes: Mapping[str, float]
    """Mean by cause, under the report's names; without causes that never occur."""

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        return {
            "fault": self.fault.name,
            "title": self.fault.title,
            "rows": self.fault.rows,
            "median": round(self.median),
            "mean": round(self.mean, 1),
            "p5": round(self.p5),
            "p95": round(self.p95),
            "max": round(self.most),
            "worst": self.worst,
            "terms": [
                {"formula": term.formula, "messages": round(term.messages, 1)}
                for term in self.terms
            ],
            "causes": {cause: round(value, 1) for cause, value in self.causes.items()},
            "report_groups": self.report_groups(),
        }

    def report_groups(self) -> dict[str, float]:
        """Mean by report group."""
        found: dict[str, float] = {}
        for cause, value in self.causes.items():
            group = report_group(cause)
            found[group] = round(found.get(group, 0.0) + value, 1)
        return found

    def holds(self, observed: float) -> bool:
        """Whether what was observed lies in the 90 % band."""
        return round(self.p5) <= observed <= round(self.p95)


def predict(
    settings: Settings, fault: FaultPlan, *, draws: int = DRAWS, seed: int = SEED
) -> Prediction:
    """Predict one fault. Equal arguments give equal figures.

    Args:
        settings: Unscaled, as configured; ``failbackTimeScale`` is applied here.
        fault: Unscaled as well.
        draws: How many phases of all timers are drawn.
        seed: Of the generator.

    Raises:
        ConfigError: ``draws`` is out of range, or the fault has no bound under these settings.
    """
    if reason := boundless(settings, fault):
        raise ConfigError(fault.name, reason)
    if not 1 <= draws <= MOST_DRAWS:
        raise ConfigError("--draws", f"must be between 1 and {MOST_DRAWS}, got {draws}")
    scaled, plan = settings.scaled(), fault.scaled(settings.time_scale)
    by_cause = draw(scaled, plan, draws, seed)
    total = np.rint(sum(by_cause.values(), start=np.zeros(draws)))
    low, median, high = np.percentile(total, (5, 50, 95))
    terms = worst_terms(scaled, plan)
    means = {cause: float(np.mean(values)) for cause, values in by_cause.items()}
    return Prediction(
        fault=fault,
        median=float(median),
        mean=float(np.mean(total)),
        p5=float(low),
        p95=float(high),
        most=float(np.max(total)),
        worst=worst_case(terms),
        terms=terms,
        causes={cause: mean for cause, mean in sorted(means.items()) if mean > 0},
    )


def boundless(s: Settings, plan: FaultPlan) -> str:
    """Why no figure bounds a fault: it rests on a copy that the slave never makes; else empty."""
    stop = plan.stop
    if (
        s.slave_copies_offsets
        or stop is None
        or not (s.slaves if plan.slaves is None else plan.slaves)
    ):
        return ""
    by_slave = plan.kills_master and stop.moment != "return" and not plan.start.after_return
    if not by_slave and plan.offsets not in ("None", "WaitSync"):
        return ""
    return (
        "a slave of Apache 5.5.0 copies no offsets (apache/rocketmq#10284), so all that the queues"
        " hold may be re-consumed or skipped"
    )


def draw(s: Settings, plan: FaultPlan, draws: int, seed: int) -> Draws:
    """Duplicates by cause, each array of shape (draws,). Scaled settings and plan."""
    rng = np.random.default_rng(seed)
    at_once = max(1, int(_CELLS_AT_ONCE // max(1, s.members)))
    parts = [_draw_part(s, plan, min(at_once, draws - at), rng) for at in range(0, draws, at_once)]
    causes = {cause for part in parts for cause in part}
    return {cause: np.concatenate([part[cause] for part in parts]) for cause in sorted(causes)}


def _draw_part(s: Settings, plan: FaultPlan, draws: int, rng: np.random.Generator) -> Draws:
    ages = draw_ages(s, plan.broker_uptime_seconds, draws, rng)
    found: Draws = {}
    if plan.name not in OFFSET_FREE:
        one = draw_running if plan.stop is None else draw_restart
        found = one(s, plan, ages, draws, rng)
    if plan.down_seconds > 0:
        age = _delay_age(s, plan, ages)
        found["BROKER_COPY"] = s.delayed_rate * age
        found["DELAY_REPLAY"] = s.retry_rate * age
    return found


def _delay_age(s: Settings, plan: FaultPlan, ages: Ages) -> Array:
    """Seconds of deliveries that the answering master does not know of."""
    if not plan.kills_master:
        return ages.slave_copy
    period = s.flush_delay_offset_interval / 1000
    return since_tick(ages.broker, PERSIST_FIRST * s.constants, period)
