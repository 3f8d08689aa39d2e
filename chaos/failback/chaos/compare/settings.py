"""What is compared: the settings of each engine, and the groups that share its one kill. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from failback.common.text import did_you_mean
from failback.protocol.errors import ConfigError

KAFKA: Final = "kafka"
REDIS: Final = "redis"
ENGINES: Final = (KAFKA, REDIS)
TOPIC: Final = "compared"
QUEUES: Final = 4
STAY: Final = "stay"
HANDOVER: Final = "handover"
EARLY: Final = "early"


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One consumer group: what its members do around the kill, and how its clients are set."""

    label: str
    """Its arm and what makes it special: ``stay``, ``stay-10s``. Unique in a setting."""
    arm: str = STAY
    """``stay``: runs through. ``handover``: ended while the server is down, a new one starts after
    the return. ``early``: the same, but ended before another server has taken over."""
    client: Mapping[str, str] = field(default_factory=dict)
    """What differs from the client's defaults."""
    on_victim: bool = True
    """Whether the server that is killed keeps the group's offsets."""


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
    """What is special, in a clause."""
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


EARLY_SECONDS: Final = 4.0
NEW_MEMBER_SECONDS: Final = 5.0
"""A new consumer starts so long after the server serves again."""
_TEN: Final = {"session.timeout.ms": "10000"}
_KAFKA: Final = (
    Setting(
        name="defaults",
        engine=KAFKA,
        says="offsets on three replicas; a second set of groups has sessions of 10 s",
        hold_seconds=25,
        stop_seconds=18,
        groups=(
            GroupPlan("stay"),
            GroupPlan("handover", HANDOVER),
            GroupPlan("early", EARLY),
            GroupPlan("stay-10s-a", client=_TEN),
            GroupPlan("stay-10s-b", client=_TEN, on_victim=False),
            GroupPlan("handover-10s", HANDOVER, client=_TEN, on_victim=False),
        ),
    ),
    Setting(
        name="one-replica",
        engine=KAFKA,
        says="one replica of the offsets, and the server that keeps them is away for long",
        hold_seconds=75,
        stop_seconds=18,
        groups=(GroupPlan("stay"), GroupPlan("handover", HANDOVER)),
        cluster={"offsets.topic.replication.factor": "1"},
    ),
)
ONCE: Final = "once"
UNTIL_TAKEN: Final = "until taken"
"""How often ``XACK`` is tried; else as often as the client does by itself."""
_REDIS_GROUPS: Final = (
    GroupPlan("stay"),
    GroupPlan("handover", HANDOVER),
    GroupPlan("stay-one-xack", client={"xack": ONCE}),
    GroupPlan("stay-until-taken", client={"xack": UNTIL_TAKEN}),
)
_REDIS: Final = (
    Setting(
        name="defaults",
        engine=REDIS,
        says="three masters with a replica each; the replica of the killed one is promoted",
        hold_seconds=20,
        stop_seconds=12,
        groups=_REDIS_GROUPS,
    ),
    Setting(
        name="lagging-replica",
        engine=REDIS,
        says="the replica got nothing for 8 s before the kill",
        hold_seconds=20,
        stop_seconds=12,
        groups=_REDIS_GROUPS,
        cut_seconds=8,
    ),
)


def settings_of(engine: str) -> tuple[Setting, ...]:
    """All settings of an engine.

    Raises:
        ConfigError: There is no such engine.
    """
    if engine not in ENGINES:
        raise ConfigError("ENGINE", f'must be {" or ".join(ENGINES)}, got "{engine}"')
    return _KAFKA if engine == KAFKA else _REDIS


def setting_of(engine: str, name: str) -> Setting:
    """One setting by its name.

    Raises:
        ConfigError: There is no such engine or setting.
    """
    known = {each.name: each for each in settings_of(engine)}
    if name not in known:
        names = " or ".join(known)
        hint = did_you_mean(name, known)
        raise ConfigError("--setting", f'must be {names} for {engine}, got "{name}"{hint}')
    return known[name]
