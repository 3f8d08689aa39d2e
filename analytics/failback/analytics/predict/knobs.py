"""Which setting would save how much: each is changed alone and the fault predicted again. Pure.

The draws use one seed, so the phases are the same before and after and differences are not noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from failback.analytics.predict.faults import FaultPlan
from failback.analytics.predict.keys import GUARDS, RULES
from failback.analytics.predict.prediction import DRAWS, SEED, Prediction, predict
from failback.analytics.predict.settings import Settings
from failback.protocol.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Knob:
    """One change of one setting and what it does to one fault. Messages."""

    key: str
    before: Any
    after: Any
    fault: str
    saved: float
    """Mean duplicates less; negative: more."""
    saved_worst: int
    cost: str

    def to_dict(self) -> dict[str, Any]:
        """As ``--json`` prints it; the names are those of a report's ``knobs``."""
        return {
            "name": self.key,
            "from": self.before,
            "to": self.after,
            "fault": self.fault,
            "predicted_reduction": round(self.saved, 1),
            "worst_reduction": self.saved_worst,
            "cost": self.cost,
        }


_CHANGES: Final[tuple[tuple[str, float | bool | str, str], ...]] = (
    (
        "flushConsumerOffsetInterval",
        1_000,
        "{each:+.2g} writes/s of consumerOffset.json at each broker",
    ),
    ("persistConsumerOffsetInterval", 1_000, "{queues:+.3g} one-way commits/s of the group"),
    ("slaveSyncInterval", 1_000, "no key in 4.9: needs a changed slave"),
    ("flushDelayOffsetInterval", 1_000, "{each:+.2g} writes/s of delayOffset.json"),
    ("pollNameServerInterval", 5_000, "{members:+.2g} route queries/s of the group"),
    ("heartbeatBrokerInterval", 5_000, "{members:+.2g} heartbeats to each broker/s of the group"),
    (
        "rocketmq.client.rebalance.waitInterval",
        5_000,
        "{members:+.2g} member list queries per topic/s of the group",
    ),
    ("pullThresholdForQueue", 64, "less read ahead: a slow network idles the handlers"),
    ("pullBatchSize", 8, "four times as many pulls"),
    ("consumeConcurrentlyMaxSpan", 200, "one slow message stops its queue after 200 others"),
    ("awaitTerminationMillisWhenShutdown", 30_000, "a clean stop takes up to 30 s"),
    ("failbackGuardReturnedOffsets", True, "a start asks the slaves first; engine failback only"),
    ("failbackGuardSlaveOffsets", True, "engine failback only"),
    (
        "failbackGuardConsumerList",
        True,
        "new members wait up to 30 s after a broker's restart; engine failback only",
    ),
    (
        "failbackGuardOffsetFile",
        True,
        "a sync of consumerOffset.json at each persist; engine failback only",
    ),
    (RULES, "guarded", "all guards; engine failback only"),
)
"""What is tried of which setting, and what it costs: how many more a second of what a timer does,
``each`` time, for all ``queues`` or for all ``members``."""


def _cost(s: Settings, key: str, value: float | bool | str, words: str) -> str:
    if "{" not in words:
        return words
    more = 1000 / float(value) - 1000 / s.value_of(key)
    return words.format(each=more, queues=s.queues * more, members=s.members * more)


def rank_knobs(
    settings: Settings,
    fault: FaultPlan,
    *,
    before: Prediction | None = None,
    draws: int = DRAWS,
    seed: int = SEED,
) -> list[Knob]:
    """Change one setting at a time; the largest saving first.

    A knob that is set so far already, or lower, is left out. Equal savings keep a fixed order.
    """
    base = before or predict(settings, fault, draws=draws, seed=seed)
    found = []
    for key, value, words in _CHANGES:
        now = _now(settings, key)
        if now == value or (not isinstance(value, (bool, str)) and _past(key, now, value)):
            continue
        try:
            changed = settings.with_values({key: value})
        except ConfigError:
            continue
        after = predict(changed, fault, draws=draws, seed=seed)
        said = _cost(settings, key, value, words)
        saved = base.mean - after.mean
        found.append(Knob(key, now, value, fault.name, saved, base.worst - after.worst, said))
    return sorted(found, key=lambda knob: (-round(knob.saved, 1), -knob.saved_worst))


def useful(knobs: Sequence[Knob]) -> list[Knob]:
    """Those that change anything."""
    return [knob for knob in knobs if round(knob.saved) or knob.saved_worst]


def _now(settings: Settings, key: str) -> Any:
    if key == RULES:
        return "guarded" if all(map(settings.value_of, GUARDS)) else "compat"
    return settings.value_of(key)


def _past(key: str, now: float, value: float) -> bool:
    """Whether a setting is beyond the value to try: less is better but for waiting at a stop."""
    return now >= value if key == "awaitTerminationMillisWhenShutdown" else now <= value
