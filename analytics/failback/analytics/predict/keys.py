"""The settings of a prediction under their keys: unit, range and meaning of each. Pure.

``KEYS`` is the one table. Times are milliseconds as in ``broker.conf`` and ClientConfig.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, Literal

from failback.common.text import did_you_mean
from failback.protocol.errors import ConfigError

Kind = Literal["ms", "seconds", "count", "rate", "flag", "factor"]
Side = Literal["broker", "client", "load"]


@dataclass(frozen=True, slots=True)
class Key:
    """One setting. ``low`` and ``high`` are included; ``meaning`` is for people."""

    name: str
    kind: Kind
    side: Side
    low: float
    high: float
    meaning: str
    scales: bool = False
    optional: bool = False
    given_field: str = ""
    """Its field of the settings, where the name does not give it."""

    @property
    def field(self) -> str:
        """The field of the settings: ``guard_offset_file`` of ``failbackGuardOffsetFile``."""
        words = re.sub("[A-Z]", r"_\g<0>", self.name.removeprefix("failback")).lower()
        return self.given_field or words.lstrip("_")


def _timer(name: str, side: Side, meaning: str, low: float = 1, given_field: str = "") -> Key:
    return Key(name, "ms", side, low, 86_400_000, meaning, scales=True, given_field=given_field)


def _guard(name: str, meaning: str) -> Key:
    return Key(name, "flag", "broker", 0, 1, meaning)


def _count(name: str, high: float, meaning: str, given_field: str = "") -> Key:
    return Key(name, "count", "client", 1, high, meaning, given_field=given_field)


def _load(name: str, kind: Kind, high: float, meaning: str, *, optional: bool = False) -> Key:
    return Key(name, kind, "load", 0, high, meaning, optional=optional)


_ROWS: Final = (
    _timer(
        "flushConsumerOffsetInterval",
        "broker",
        "I_b: between two persists of consumerOffset.json, the first 10 s after the start",
    ),
    _timer("flushDelayOffsetInterval", "broker", "I_d: between two persists of delayOffset.json"),
    _timer(
        "slaveSyncInterval",
        "broker",
        "I_s: between two copies of the master's offsets by the slave; fixed in 4.9 (10 s), no key",
    ),
    _guard(
        "failbackGuardReturnedOffsets",
        "a returned master takes the larger offsets of its slave before it serves",
    ),
    _guard(
        "failbackGuardSlaveOffsets",
        "a slave keeps the larger offset when it copies those of its master",
    ),
    _guard(
        "failbackGuardConsumerList",
        "no member list for a heartbeat period after a start, so nobody claims all queues",
    ),
    _guard("failbackGuardOffsetFile", "consumerOffset.json is replaced in one step"),
    _timer(
        "persistConsumerOffsetInterval",
        "client",
        "I_c: between two commits of a client, the first 10 s after its start",
    ),
    _timer("pollNameServerInterval", "client", "I_rt: between two checks of the route"),
    _timer(
        "heartbeatBrokerInterval",
        "client",
        "I_hb: between two heartbeats, the first 1 s after the start",
    ),
    _timer(
        "rocketmq.client.rebalance.waitInterval",
        "client",
        "I_rb: between two rebalances",
        given_field="rebalance_interval",
    ),
    _timer(
        "pullTimeDelayMillsWhenException",
        "client",
        "wait after a failed pull",
        low=0,
        given_field="pull_error_delay",
    ),
    _count("pullBatchSize", 1024, "messages per pull"),
    _count(
        "pullThresholdForQueue", 65_535, "cached messages of a queue above which it is not pulled"
    ),
    _count("consumeConcurrentlyMaxSpan", 65_535, "widest span of unfinished offsets in a queue"),
    _count("consumeThreadMax", 1000, "handler threads of a member", given_field="consume_threads"),
    _timer(
        "awaitTerminationMillisWhenShutdown",
        "client",
        "how long a clean stop waits for handlers",
        low=0,
        given_field="await_termination",
    ),
    _load("rate", "rate", 1e7, "messages/s that the group consumes on the pair"),
    _load(
        "capacity",
        "rate",
        1e7,
        "messages/s that the group could consume; else from handler and threads, else the rate",
        optional=True,
    ),
    _load(
        "peakRate",
        "rate",
        1e7,
        "R of the worst case: the highest consume rate ever; else from the handler's shortest time",
        optional=True,
    ),
    Key("queues", "count", "load", 1, 65_536, "Q: queues of the topic on the pair"),
    Key("members", "count", "load", 1, 1024, "consumers of the group"),
    Key("slavesPerPair", "count", "broker", 0, 3, "slaves of the master", given_field="slaves"),
    Key("pairs", "count", "broker", 1, 64, "pairs that carry the topic"),
    _load(
        "backlog",
        "count",
        1e12,
        "messages that wait on the pair at the kill; not given: enough for the whole outage",
        optional=True,
    ),
    _load(
        "backlogMost",
        "count",
        1e12,
        "the same for the worst case; not given: as backlog",
        optional=True,
    ),
    _load("handlerMs", "factor", 86_400_000, "mean time of a handler, ms"),
    _load("handlerJitterMs", "factor", 86_400_000, "most that a handler differs from it, ms"),
    _load(
        "handlerSlack",
        "factor",
        0.9,
        "share of the rate that handlers may lose to machine and client; 0 to this is drawn",
    ),
    _load("delayedRate", "rate", 1e7, "delayed messages delivered per s"),
    _load("retryRate", "rate", 1e7, "retries delivered per s"),
    Key(
        "brokerStartSeconds",
        "seconds",
        "broker",
        0,
        3600,
        "from a broker's start to its first answer",
    ),
    Key(
        "brokerUptimeSeconds",
        "seconds",
        "broker",
        0,
        1e9,
        "how long the master had run at the kill; not given: long",
        scales=True,
        optional=True,
    ),
    Key(
        "clientUptimeSeconds",
        "seconds",
        "client",
        0,
        1e9,
        "how long the clients had run at the kill; not given: long, each at a phase of its own",
        scales=True,
        optional=True,
    ),
    Key("failbackTimeScale", "factor", "broker", 0.05, 1, "multiplies all timers"),
)

KEYS: Final[Mapping[str, Key]] = MappingProxyType({row.name: row for row in _ROWS})
"""Settings by key."""

GUARDS: Final = tuple(row.name for row in _ROWS if row.kind == "flag")
RULES: Final = "failbackRules"
"""``compat`` or ``guarded``: all four :data:`GUARDS` at once."""

ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "I_b": "flushConsumerOffsetInterval",
        "I_c": "persistConsumerOffsetInterval",
        "I_s": "slaveSyncInterval",
        "I_d": "flushDelayOffsetInterval",
        "I_rt": "pollNameServerInterval",
        "I_hb": "heartbeatBrokerInterval",
        "I_rb": "rocketmq.client.rebalance.waitInterval",
    }
)
"""The symbols of the formulas; their values are seconds."""


def find_key(name: str) -> Key:
    """Return a key. Raises ``ConfigError`` with the nearest known name."""
    key = KEYS.get(name)
    if key is None:
        hint = did_you_mean(name, [*KEYS, RULES, *ALIASES]) or "; see: failback predict --list"
        raise ConfigError(name, f"is no setting of the predictor{hint}")
    return key


def parse_value(key: Key, value: Any) -> Any:
    """Return a value of the key's type, from text or JSON. Raises ``ConfigError``."""
    if key.kind == "flag":
        found = {"true": True, "false": False}.get(str(value).strip().lower())
        if found is None:
            raise ConfigError(key.name, f'must be true or false, got "{value}"')
        return found
    if key.optional and (value is None or str(value).strip().lower() in ("", "none", "unknown")):
        return None
    if isinstance(value, bool):
        raise ConfigError(key.name, f'must be a number, got "{value}"')
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(key.name, f'must be a number, got "{value}"') from None


def check_value(key: Key, value: Any) -> None:
    """Raise ``ConfigError`` for a value out of range."""
    if key.kind == "flag" or (value is None and key.optional):
        return
    if not isfinite(value) or not key.low <= value <= key.high:
        unit = {"ms": " ms", "seconds": " s", "rate": "/s"}.get(key.kind, "")
        problem = f"must be between {key.low:g} and {key.high:g}{unit}, got {value:g}"
        raise ConfigError(key.name, problem)
    if key.kind == "count" and value != int(value):
        raise ConfigError(key.name, f"must be a whole number, got {value:g}")


def parse_assignments(texts: Iterable[str], option: str = "--set") -> dict[str, str]:
    """Return ``KEY=VALUE`` texts as a mapping. Raises ``ConfigError`` naming the option."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(option, f'must be KEY=VALUE, got "{text}"')
        found[name.strip()] = value.strip()
    return found
