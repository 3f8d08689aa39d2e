"""Which setting would save how much: each is changed alone and the fault predicted again. Pure.

The draws use one seed, so the phases are the same before and after and differences are not noise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from failback.analytics.predict.faults import FaultPlan
from failback.analytics.predict.keys import KEYS, RULES
from failback.analytics.predict.prediction import DRAWS, SEED, Prediction, predict
from failback.analytics.predict.settings import Settings
from failback.protocol.errors import ConfigError

Cost = Callable[[Settings, float], str]


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


def _persists(s: Settings, value: float) -> str:
    before, after = 1000 / s.flush_consumer_offset_interval, 1000 / value
    return f"{after - before:+.2g} writes/s of consumerOffset.json at each broker"


def _commits(s: Settings, value: float) -> str:
    more = s.queues * (1000 / value - 1000 / s.persist_consumer_offset_interval)
    return f"{more:+.3g} one-way commits/s of the group"


def _delay_persists(s: Settings, value: float) -> str:
    more = 1000 / value - 1000 / s.flush_delay_offset_interval
    return f"{more:+.2g} writes/s of delayOffset.json"


def _per_member(what: str, field: str) -> Cost:
    def cost(s: Settings, value: float) -> str:
        more = s.members * (1000 / value - 1000 / getattr(s, field))
        return f"{more:+.2g} {what}/s of the group"

    return cost


def _words(text: str) -> Cost:
    return lambda _s, _value: text


_CHANGES: Final[tuple[tuple[str, float | bool | str, Cost], ...]] = (
    ("flushConsumerOffsetInterval", 1_000, _persists),
    ("persistConsumerOffsetInterval", 1_000, _commits),
    ("slaveSyncInterval", 1_000, _words("no key in 4.9: needs a changed slave")),
    ("flushDelayOffsetInterval", 1_000, _delay_persists),
    (
        "pollNameServerInterval",
        5_000,
        _per_member("route queries", "poll_name_server_interval"),
    ),
    (
        "heartbeatBrokerInterval",
        5_000,
        _per_member("heartbeats to each broker", "heartbeat_broker_interval"),
    ),
    (
        "rocketmq.client.rebalance.waitInterval",
        5_000,
        _per_member("member list queries per topic", "rebalance_interval"),
    ),
    ("pullThresholdForQueue", 64, _words("less read ahead: a slow network idles the handlers")),
    ("pullBatchSize", 8, _words("four times as many pulls")),
    (
        "consumeConcurrentlyMaxSpan",
        200,
        _words("one slow message stops its queue after 200 others"),
    ),
    ("awaitTerminationMillisWhenShutdown", 30_000, _words("a clean stop takes up to 30 s")),
    (
        "failbackGuardReturnedOffsets",
        True,
        _words("a start asks the slaves first; engine failback only"),
    ),
    ("failbackGuardSlaveOffsets", True, _words("engine failback only")),
    (
        "failbackGuardConsumerList",
        True,
        _words("new members wait up to 30 s after a broker's restart; engine failback only"),
    ),
    (
        "failbackGuardOffsetFile",
        True,
        _words("a sync of consumerOffset.json at each persist; engine failback only"),
    ),
    (RULES, "guarded", _words("all guards; engine failback only")),
)


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
    for key, value, cost in _CHANGES:
        now = _now(settings, key)
        if now == value or (not isinstance(value, (bool, str)) and _past(key, now, value)):
            continue
        try:
            changed = settings.with_values({key: value})
        except ConfigError:
            continue
        after = predict(changed, fault, draws=draws, seed=seed)
        said = cost(settings, value if not isinstance(value, (bool, str)) else 0.0)
        saved = base.mean - after.mean
        found.append(Knob(key, now, value, fault.name, saved, base.worst - after.worst, said))
    return sorted(found, key=lambda knob: (-round(knob.saved, 1), -knob.saved_worst))


def useful(knobs: Sequence[Knob]) -> list[Knob]:
    """Those that change anything."""
    return [knob for knob in knobs if round(knob.saved) or knob.saved_worst]


def _now(settings: Settings, key: str) -> Any:
    if key == RULES:
        guards = [name for name, row in KEYS.items() if row.kind == "flag"]
        on = all(settings.value_of(name) for name in guards)
        return "guarded" if on else "compat"
    return settings.value_of(key)


def _past(key: str, now: float, value: float) -> bool:
    """Whether a setting is beyond the value to try: less is better but for waiting at a stop."""
    return now >= value if key == "awaitTerminationMillisWhenShutdown" else now <= value
