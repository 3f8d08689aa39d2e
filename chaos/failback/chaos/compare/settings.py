"""What is compared: the settings of each engine, and the groups that share its one kill. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from failback.common.text import did_you_mean
from failback.protocol.errors import ConfigError

KAFKA: Final = "kafka"
REDIS: Final = "redis"
KAFKA_VERSION: Final = "4.1.0"
FETCH: Final = "python tools/setup_compare.py, in the checkout"
TOPIC: Final = "compared"
QUEUES: Final = 4
STAY: Final = "stay"
HANDOVER: Final = "handover"
EARLY: Final = "early"
NEW_MEMBER_SECONDS: Final = 5.0
"""A new consumer starts so long after the server serves again."""
ONCE: Final = "once"
UNTIL_TAKEN: Final = "until taken"
"""How often ``XACK`` is tried; else as often as the client does by itself."""


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One consumer group: its arm, what differs from the client's defaults, and whether the server
    that is killed keeps its offsets.

    ``stay``: the consumer runs through. ``handover``: it is ended while the server is down, and a
    new one starts after the return. ``early``: the same, ended before another server took over.
    """

    label: str
    arm: str = STAY
    client: Mapping[str, str] = field(default_factory=dict)
    on_victim: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """What producers send and handlers take."""

    preload: int = 3600
    """Messages that are there before the groups start, so that none of them has caught up."""
    per_second: float = 60.0
    handler_ms: float = 8.0
    before_kill_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One cluster with one kill. Times are seconds after the kill."""

    name: str
    engine: str
    says: str
    hold_seconds: float
    """How long the server stays down."""
    stop_seconds: float
    """When consumers of arm handover are asked to end."""
    groups: tuple[GroupPlan, ...]
    cluster: Mapping[str, str] = field(default_factory=dict)
    """What differs from the servers' defaults."""
    cut_seconds: float = 0.0
    """How long before the kill the victim's replica gets nothing."""
    load: Load = Load()


_TEN: Final = {"session.timeout.ms": "10000"}
_BOTH: Final = (GroupPlan("stay"), GroupPlan("handover", HANDOVER))
_KAFKA: Final = (
    *(*_BOTH, GroupPlan("early", EARLY), GroupPlan("stay-10s-a", client=_TEN)),
    GroupPlan("stay-10s-b", client=_TEN, on_victim=False),
    GroupPlan("handover-10s", HANDOVER, client=_TEN, on_victim=False),
)
_REDIS: Final = (
    *(*_BOTH, GroupPlan("stay-one-xack", client={"xack": ONCE})),
    GroupPlan("stay-until-taken", client={"xack": UNTIL_TAKEN}),
)
_ONE: Final = {"offsets.topic.replication.factor": "1"}
SETTINGS: Final[Mapping[str, tuple[Setting, ...]]] = {
    KAFKA: (
        Setting("defaults", KAFKA, "some of the groups have sessions of 10 s", 25, 18, _KAFKA),
        Setting("one-replica", KAFKA, "one replica of the offsets", 75, 18, _BOTH, _ONE),
    ),
    REDIS: (
        Setting("defaults", REDIS, "a replica is promoted", 20, 12, _REDIS),
        Setting("lagging-replica", REDIS, "a replica that was cut off for 8 s is promoted", 20, 12,
                _REDIS, cut_seconds=8),
    ),
}  # fmt: skip


def settings_of(engine: str, name: str = "") -> tuple[Setting, ...]:
    """All settings of an engine, or the one with a name.

    Raises:
        ConfigError: There is no such engine or setting.
    """
    if engine not in SETTINGS:
        raise ConfigError("ENGINE", f'must be {" or ".join(SETTINGS)}, got "{engine}"')
    names = [each.name for each in SETTINGS[engine]]
    if name and name not in names:
        hint = did_you_mean(name, names)
        problem = f'must be {" or ".join(names)} for {engine}, got "{name}"{hint}'
        raise ConfigError("--setting", problem)
    return tuple(each for each in SETTINGS[engine] if name in ("", each.name))
