"""The settings of a prediction under their keys: unit, range and meaning of each. Pure.

``KEYS`` is the one table. Times are milliseconds as in ``broker.conf`` and ClientConfig.
"""

from __future__ import annotations

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
    field: str
    kind: Kind
    side: Side
    low: float
    high: float
    meaning: str
    scales: bool = False
    optional: bool = False


def _timer(name: str, field: str, side: Side, meaning: str, low: float = 1) -> Key:
    return Key(name, field, "ms", side, low, 86_400_000, meaning, scales=True)


def _count(name: str, field: str, side: Side, low: float, high: float, meaning: str) -> Key:
    return Key(name, field, "count", side, low, high, meaning)


def _guard(name: str, field: str, meaning: str) -> Key:
    return Key(name, field, "flag", "broker", 0, 1, meaning)


_ROWS: Final = (
    _timer(
        "flushConsumerOffsetInterval",
        "flush_consumer_offset_interval",
        "broker",
        "I_b: between two persists of consumerOffset.json, the first 10 s after the start",
    ),
    _timer(
        "flushDelayOffsetInterval",
        "flush_delay_offset_interval",
        "broker",
        "I_d: between two persists of delayOffset.json",
    ),
    _timer(
        "slaveSyncInterval",
        "slave_sync_interval",
        "broker",
        "I_s: between two copies of the master's offsets by the slave; fixed in 4.9 (10 s), no key",
    ),
    _guard(
        "failbackGuardReturnedOffsets",
        "guard_returned_offsets",
        "a returned master takes the larger offsets of its slave before it serves",
    ),
    _guard(
        "failbackGuardSlaveOffsets",
        "guard_slave_offsets",
        "a slave keeps the larger offset when it copies those of its master",
    ),
    _guard(
        "failbackGuardConsumerList",
        "guard_consumer_list",
        "no member list for a heartbeat period after a start, so nobody claims all queues",
    ),
    _guard(
        "failbackGuardOffsetFile",
        "guard_offset_file",
        "consumerOffset.json is replaced in one step",
    ),
    _timer(
        "persistConsumerOffsetInterval",
        "persist_consumer_offset_interval",
        "client",
        "I_c: between two commits of a client, the first 10 s after its start",
    ),
    _timer(
        "pollNameServerInterval",
        "poll_name_server_interval",
        "client",
        "I_rt: between two checks of the route",
    ),
    _timer(
        "heartbeatBrokerInterval",
        "heartbeat_broker_interval",
        "client",
        "I_hb: between two heartbeats, the first 1 s after the start",
    ),
    _timer(
        "rocketmq.client.rebalance.waitInterval",
        "rebalance_interval",
        "client",
        "I_rb: between two rebalances",
    ),
    _timer(
        "pullTimeDelayMillsWhenException",
        "pull_error_delay",
        "client",
        "wait after a failed pull",
        low=0,
    ),
    _count("pullBatchSize", "pull_batch_size", "client", 1, 1024, "messages per pull"),
    _count(
        "pullThresholdForQueue",
        "pull_threshold_for_queue",
        "client",
        1,
        65_535,
        "cached messages of a queue above which it is not pulled",
    ),
    _count(
        "consumeConcurrentlyMaxSpan",
        "consume_concurrently_max_span",
        "client",
        1,
        65_535,
        "widest span of unfinished offsets in a queue",
    ),
    _count("consumeThreadMax", "consume_threads", "client", 1, 1000, "handler threads of a member"),
    _timer(
        "awaitTerminationMillisWhenShutdown",
        "await_termination",
        "client",
        "how long a clean stop waits for handlers",
        low=0,
    ),
    Key("rate", "rate", "rate", "load", 0, 1e7, "messages/s that the group consumes on the pair"),
    Key(
        "capacity",
        "capacity",
        "rate",
        "load",
        0,
        1e7,
        "messages/s that the group could consume; else from handler and threads, else the rate",
        optional=True,
    ),
    Key(
        "peakRate",
        "peak_rate",
        "rate",
        "load",
        0,
        1e7,
        "R of the worst case: the highest consume rate ever; else from the handler's shortest time",
        optional=True,
    ),
    _count("queues", "queues", "load", 1, 65_536, "Q: queues of the topic on the pair"),
    _count("members", "members", "load", 1, 1024, "consumers of the group"),
    _count("slavesPerPair", "slaves", "broker", 0, 3, "slaves of the master"),
    _count("pairs", "pairs", "broker", 1, 64, "pairs that carry the topic"),
    Key(
        "backlog",
        "backlog",
        "count",
        "load",
        0,
        1e12,
        "messages that wait on the pair at the kill; not given: enough for the whole outage",
        optional=True,
    ),
    Key(
        "backlogMost",
        "backlog_most",
        "count",
        "load",
        0,
        1e12,
        "the same for the worst case; not given: as backlog",
        optional=True,
    ),
    Key("handlerMs", "handler_ms", "factor", "load", 0, 86_400_000, "mean time of a handler, ms"),
    Key(
        "handlerJitterMs",
        "handler_jitter_ms",
        "factor",
        "load",
        0,
        86_400_000,
        "most that a handler differs from it, ms",
    ),
    Key(
        "handlerSlack",
        "handler_slack",
        "factor",
        "load",
        0,
        0.9,
        "share of the rate that handlers may lose to machine and client; 0 to this is drawn",
    ),
    Key("delayedRate", "delayed_rate", "rate", "load", 0, 1e7, "delayed messages delivered per s"),
    Key("retryRate", "retry_rate", "rate", "load", 0, 1e7, "retries delivered per s"),
    Key(
        "brokerStartSeconds",
        "broker_start_seconds",
        "seconds",
        "broker",
        0,
        3600,
        "from a broker's start to its first answer",
    ),
    Key(
        "brokerUptimeSeconds",
        "broker_uptime_seconds",
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
        "client_uptime_seconds",
        "seconds",
        "client",
        0,
        1e9,
        "how long the clients had run at the kill; not given: long, each at a phase of its own",
        scales=True,
        optional=True,
    ),
    Key("failbackTimeScale", "time_scale", "factor", "broker", 0.05, 1, "multiplies all timers"),
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
