"""Settings and faults from what people have: an experiment's workload, a run, a cluster. Pure.

All functions take plain mappings as the files hold them (camelCase keys). Their
readers check the files. What a source does not say keeps the value of the settings given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Final

from failback.analytics.predict.faults import FAULTS, FaultPlan, Signal, Start, Stop
from failback.analytics.predict.keys import KEYS, RULES
from failback.analytics.predict.settings import CATCH_UP, Settings
from failback.protocol.errors import ConfigError

SWITCHES: Final = {
    "persist_offset_interval_ms": "persistConsumerOffsetInterval",
    "poll_name_server_interval_ms": "pollNameServerInterval",
    "heartbeat_interval_ms": "heartbeatBrokerInterval",
    "rebalance_interval_ms": "rocketmq.client.rebalance.waitInterval",
    "pull_error_delay_ms": "pullTimeDelayMillsWhenException",
    "pull_batch_size": "pullBatchSize",
    "consume_concurrently_max_span": "consumeConcurrentlyMaxSpan",
    "drain_on_shutdown_ms": "awaitTerminationMillisWhenShutdown",
}
"""Client switches of a workload, under RocketMQ's names."""

_SYSTEM: Final = {
    "flush_interval_ms": "flushConsumerOffsetInterval",
    "slave_sync_interval_ms": "slaveSyncInterval",
    "delay_flush_interval_ms": "flushDelayOffsetInterval",
    "client_commit_interval_ms": "persistConsumerOffsetInterval",
    "rules": RULES,
}
"""``system`` of a run.json."""

START_SECONDS: Final = {"failback": 0.5, "apache": 5.0}
"""From the start of a broker process to its first answer, by engine."""

_PREDICTED: Final = ("kill", "terminate", "kill-consumer", "none")


def with_broker_config(settings: Settings, config: Mapping[str, Any]) -> Settings:
    """Take over what a broker.conf, or ``spec.config`` of a BrokerCluster, says."""
    known = {
        name: value
        for name, value in config.items()
        if name == RULES or (name in KEYS and KEYS[name].side == "broker")
    }
    return settings.with_values(known)


def with_system(settings: Settings, run: Mapping[str, Any]) -> Settings:
    """Take over what a run.json says of brokers and topology."""
    system = run.get("system") or {}
    values = {key: system[name] for name, key in _SYSTEM.items() if system.get(name) is not None}
    pairs = (run.get("topology") or {}).get("pairs") or []
    if pairs:
        values["pairs"] = len(pairs)
        members = [len(pair.get("members") or ()) for pair in pairs]
        values["slavesPerPair"] = max(0, min(members) - 1)
    start = START_SECONDS.get(str(run.get("engine")))
    if start is not None:
        values["brokerStartSeconds"] = start
    values["failbackTimeScale"] = run.get("time_scale", settings.time_scale)
    found = settings.with_values(values)
    return replace(found, slave_copies_offsets=system.get("slave_copies_offsets") is not False)


def with_workload(
    settings: Settings,
    workload: Mapping[str, Any],
    group: str,
    *,
    uptime_seconds: float | None = None,
    longest_uptime_seconds: float | None = None,
) -> Settings:
    """Take over rates, sizes and client switches of one group.

    Args:
        settings: With pairs and time scale already set: a topic's rate and backlog divide over
            the pairs, and a preloaded backlog shrinks while the clients run.
        workload: ``spec.workload`` of an experiment, or ``workload`` of a run.json.
        group: The name of the consumer group.
        uptime_seconds: How long the clients run until the kill, unscaled; ``None``: not known.
        longest_uptime_seconds: The same where everything before the kill takes its full time.

    Raises:
        ConfigError: There is no such group or topic, or a value is out of range.
    """
    consumers = _named(workload.get("groups") or (), group, "spec.workload.groups")
    topic = _named(workload.get("topics") or (), str(consumers["topic"]), "spec.workload.topics")
    handler = consumers.get("handler") or {}
    switches = workload.get("switches") or {}
    share = 1 / settings.pairs
    values: dict[str, Any] = {
        "rate": float(topic["ratePerSecond"]) * share,
        "queues": topic["queues"],
        "members": consumers["members"],
        "consumeThreadMax": consumers["threads"],
        "pullThresholdForQueue": consumers["pullThresholdForQueue"],
        "handlerMs": handler.get("meanMs", 0),
        "handlerJitterMs": handler.get("jitterMs", 0),
    }
    values |= {key: switches[name] for name, key in SWITCHES.items() if name in switches}
    found = replace(settings, backlog=0.0).with_values(values)
    if not (consumers.get("start") or {}).get("spreadSeconds"):
        found = replace(found, client_uptime_seconds=uptime_seconds)
    longest = longest_uptime_seconds or uptime_seconds
    waiting, most = _backlog(found, topic, share, uptime_seconds, longest)
    found = replace(found, backlog=waiting, backlog_most=max(waiting, most))
    burst = float((topic.get("burst") or {}).get("factor", 1.0))
    if burst > 1 and not found.behind:
        peak = min(CATCH_UP * burst * found.rate, replace(found, backlog=None).bound_rate)
        found = replace(found, peak_rate=max(found.consume_rate, peak))
    fails = float(handler.get("failRatio") or 0)
    return replace(found, retry_rate=fails * found.consume_rate)


def _backlog(
    settings: Settings,
    topic: Mapping[str, Any],
    share: float,
    uptime: float | None,
    longest: float | None,
) -> tuple[float, float]:
    """What waits when the master dies: as planned, and at most. Counts scale as times do."""
    preloaded = float(topic.get("preloadMessages") or 0) * share * settings.time_scale
    growth = settings.rate - settings.most_rate
    waiting = max(0.0, preloaded + growth * (uptime or 0.0) * settings.time_scale)
    if preloaded or growth > 0:
        most = preloaded + settings.rate * (longest or 0.0) * settings.time_scale
    else:
        most = settings.rate * CATCH_UP
    return float(round(waiting)), float(ceil(most))


def kill_seconds(faults: Sequence[Mapping[str, Any]]) -> float:
    """When the first broker dies, seconds after run zero; 0 without such a fault.

    A jitter counts half: what it adds lies around that, as the phases that are drawn do.
    """
    return min(
        (
            float(each.get("at") or 0) + float(each.get("jitterSeconds") or 0) / 2
            for each in faults
            if each["fault"] in ("kill", "terminate")
        ),
        default=0.0,
    )


def uptimes_of(
    warmup_seconds: float,
    steady_state: Mapping[str, float],
    faults: Sequence[Mapping[str, Any]],
) -> tuple[float, float]:
    """How long clients run before the kill: they start, warm up, are steady, then run zero.

    The second is with the longest wait for the steady state.
    """
    always = warmup_seconds + kill_seconds(faults) + steady_state["hold_seconds"]
    return always, always + steady_state["timeout_seconds"]


def plan_of(faults: Sequence[Mapping[str, Any]], group: str, where: str) -> FaultPlan:
    """The fault that an arm of an experiment injects, as a plan of the predictor.

    Raises:
        ConfigError: Names the first fault that cannot be predicted, and why.
    """
    for index, each in enumerate(faults):
        if each["fault"] not in _PREDICTED:
            problem = f'"{each["fault"]}" is not predicted, only {", ".join(_PREDICTED)}'
            raise ConfigError(f"{where}[{index}].fault", problem)
    brokers = [each for each in faults if each["fault"] in ("kill", "terminate")]
    ends = [each for each in faults if each["fault"] == "kill-consumer"]
    ends = [each for each in ends if (each.get("target") or {}).get("group") in ("", None, group)]
    if len(brokers) > 1 or len(ends) > 1:
        kind = "broker" if len(brokers) > 1 else "consumer"
        raise ConfigError(where, f"more than one {kind} fault in one arm is not predicted")
    for each in brokers:
        if (each.get("target") or {}).get("role") == "slave":
            raise ConfigError(where, "a fault of a slave is not predicted: it repeats nothing")
    if not brokers:
        return _consumers_alone(ends)
    broker = brokers[0]
    with_ = broker.get("with") or {}
    plan = replace(
        FAULTS["kill"],
        name="experiment",
        title="the faults of the experiment",
        down_seconds=float(with_.get("downSeconds") or 0),
        offsets="file" if broker["fault"] == "kill" else "CopyMax",
    )
    if not ends:
        return plan
    stop, start = _stop(ends[0], broker, where), _start(ends[0], where)
    rows = "1+2+3+6" if start.after_return or stop.moment == "return" else "5"
    return replace(plan, rows=rows, stop=stop, start=start)


def _consumers_alone(ends: Sequence[Mapping[str, Any]]) -> FaultPlan:
    """Consumers end, brokers don't; or nothing at all happens."""
    if not ends:
        return FaultPlan("none", "no fault", "8", down_seconds=0.0)
    signal = _signal(ends[0])
    return replace(
        FAULTS["consumer-crash"],
        name="experiment",
        title=f"the experiment's end of consumers by {signal}",
        stop=Stop("outage", 0.0, signal=signal),
    )


def _signal(fault: Mapping[str, Any]) -> Signal:
    return "TERM" if (fault.get("with") or {}).get("signal") == "TERM" else "KILL"


def _stop(fault: Mapping[str, Any], broker: Mapping[str, Any], where: str) -> Stop:
    with_ = fault.get("with") or {}
    at, signal = float(fault.get("at") or 0), _signal(fault)
    milestone, _, other = str(with_.get("after") or "").partition(":")
    if milestone and other != broker["id"]:
        raise ConfigError(
            where, f'"after: {milestone}:{other}" is no milestone of the broker\'s fault'
        )
    match milestone:
        case "":
            return Stop("outage", max(0.0, at - float(broker.get("at") or 0)), signal=signal)
        case "gone":
            return Stop("outage", at, signal=signal)
        case "slave-serving":
            messages = float(with_.get("minServed") or 100)
            return Stop("served", messages=messages, signal=signal)
        case _:
            return Stop("return", at, signal=signal)


def _start(fault: Mapping[str, Any], where: str) -> Start:
    with_ = fault.get("with") or {}
    seconds = float(with_.get("restartAfterSeconds", 5.0))
    milestone = str(with_.get("restartAfter") or "").partition(":")[0]
    if milestone in ("accept", "registered"):
        return Start(seconds, after_return=True)
    if milestone not in ("", "gone"):
        raise ConfigError(where, f'"restartAfter: {milestone}" is not predicted')
    return Start(seconds)


def _named(items: Sequence[Mapping[str, Any]], name: str, where: str) -> Mapping[str, Any]:
    for each in items:
        if each["name"] == name:
            return each
    names = ", ".join(str(each["name"]) for each in items) or "none"
    raise ConfigError(where, f'no "{name}", there is {names}')
