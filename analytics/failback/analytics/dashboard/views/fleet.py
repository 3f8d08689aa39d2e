"""The fleet as pages show it: pairs, roles, lag, ages, what a kill would repeat now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from failback.analytics.dashboard.sources.clusters import KUBERNETES, ClusterRef, PairRef
from failback.analytics.dashboard.sources.observe import BrokerSeen, GroupTopic
from failback.analytics.predict.exposure import exposure
from failback.analytics.predict.settings import Settings
from failback.protocol.errors import ConfigError
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX

PERSIST_MS: Final = 5_000
OVERWRITE_SECONDS: Final = 40.0
"""A returned master's old table is on every slave after 30 s (registration) and 10 s (copy)."""
SYSTEM_GROUPS: Final = (
    "CID_RMQ_SYS_",
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "FAILBACK_WITNESS",
)

Json = dict[str, Any]
Seen = Mapping[str, BrokerSeen]
"""Brokers by address."""
Rates = Mapping[tuple[str, str, GroupTopic], float]
"""Messages per second by (cluster key, broker name, group and topic)."""


@dataclass(frozen=True, slots=True)
class PairSeen:
    """One pair with what its brokers said."""

    cluster: ClusterRef
    ref: PairRef
    brokers: tuple[BrokerSeen, ...]

    @property
    def master(self) -> BrokerSeen | None:
        return next((each for each in self.brokers if each.is_master and each.answered), None)

    @property
    def last_master(self) -> BrokerSeen | None:
        """The master, answering or not; the one that never did if all others are slaves."""
        known = self.master or next((each for each in self.brokers if each.is_master), None)
        if known is not None or not self.slaves:
            return known
        silent = [each for each in self.brokers if each.broker_id is None]
        return silent[0] if len(silent) == 1 else None

    @property
    def slaves(self) -> tuple[BrokerSeen, ...]:
        return tuple(each for each in self.brokers if not each.is_master and each.answered)

    @property
    def broker_name(self) -> str:
        return self.ref.members[0].broker_name if self.ref.members else self.ref.name


def pairs_of(cluster: ClusterRef, seen: Seen) -> list[PairSeen]:
    return [
        PairSeen(
            cluster,
            pair,
            tuple(seen[each.address] for each in pair.members if each.address in seen),
        )
        for pair in cluster.pairs
    ]


def user_keys(tables: Iterable[Mapping[GroupTopic, Any]]) -> list[GroupTopic]:
    """Groups and topics that are people's own, in order; retry topics and tools left out."""
    keys = {key for table in tables for key in table}
    return sorted(
        key
        for key in keys
        if key.group
        and not key.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
        and not key.group.startswith(SYSTEM_GROUPS)
    )


def cluster_document(cluster: ClusterRef, seen: Seen, rates: Rates, now: float) -> Json:
    """One cluster for the API and the Fleet page."""
    pairs = [pair_document(pair, rates, now) for pair in pairs_of(cluster, seen)]
    return {
        "cluster": cluster.key,
        "name": cluster.name,
        "source": cluster.source,
        "where": cluster.where,
        "engine": cluster.engine,
        "namesrv": list(cluster.namesrv),
        "notes": list(cluster.notes),
        "pairs": pairs,
        "state": worst_state(pair["state"] for pair in pairs),
    }


def worst_state(states: Iterable[str]) -> str:
    """``down`` before ``degraded`` before ``ok``; ``unknown`` for nothing."""
    found = set(states)
    return next((each for each in ("down", "degraded", "ok") if each in found), "unknown")


def pair_document(pair: PairSeen, rates: Rates, now: float) -> Json:
    """One pair: its members, how it is, and what a kill of its master would repeat now."""
    master = pair.master
    members = [member_document(pair, each, now) for each in pair.brokers]
    exposed = exposures(pair, rates, now)
    config = pair.last_master.config if pair.last_master is not None else {}
    reads = flag(config.get("slaveReadEnable"))
    return {
        "pair": pair.ref.name,
        "broker": pair.broker_name,
        "state": pair_state(pair),
        "members": members,
        "slave_read_enable": pair.ref.slave_read_enable if reads is None else reads,
        "groups": exposed,
        "exposure": max((row["most"] for row in exposed if row["most"] is not None), default=None),
        "overwrite_in_seconds": overwrite_countdown(pair, now),
        "slave_ahead": slave_ahead(pair) if master is not None else None,
    }


def pair_state(pair: PairSeen) -> str:
    if pair.master is None:
        return "down"
    return "ok" if len(pair.slaves) == len(pair.ref.members) - 1 else "degraded"


def flag(text: str | None) -> bool | None:
    return None if text is None else text.strip().lower() == "true"


def member_document(pair: PairSeen, broker: BrokerSeen, now: float) -> Json:
    master = pair.last_master
    lag = None
    if master is not None and not broker.is_master and broker.answered:
        lag = max(0, master.log_end - broker.log_end)
    role = "unknown" if broker.broker_id is None else "master" if broker.is_master else "slave"
    return {
        "member": broker.member.name,
        "address": broker.member.address,
        "broker_id": broker.broker_id,
        "role": role,
        "state": broker.member.state or ("Answers" if broker.answered else "Silent"),
        "answered": broker.answered,
        "problem": broker.problem,
        "up_seconds": max(0.0, round(now - broker.boot_ms / 1000, 1)) if broker.answered else None,
        "ha_lag_bytes": lag,
        "sync_age_seconds": None if broker.is_master else broker.sync_age,
        "persist_age_seconds": broker.persist_age if broker.answered else broker.file_age,
        "restarts": broker.member.restarts,
        "next": _next_step(pair.cluster, broker),
    }


def _next_step(cluster: ClusterRef, broker: BrokerSeen) -> str:
    """What to type to look further."""
    if not broker.answered and broker.member.store:
        return f"failback logs {broker.member.name}"
    if not broker.answered and cluster.source == KUBERNETES:
        namespace = cluster.where.partition("/")[0]
        return f"kubectl describe pod -n {namespace} {broker.member.name}"
    return f"failback admin getBrokerConfig -b {broker.member.address}"


def exposures(pair: PairSeen, rates: Rates, now: float) -> list[Json]:
    """What each group would consume again on this pair if its master died now."""
    source = pair.last_master
    if source is None:
        return []
    rows = []
    for key in user_keys([source.offsets]):
        rate = rates.get((pair.cluster.key, pair.broker_name, key))
        rows.append(
            {"group": key.group, "topic": key.topic, "rate": rate, **_exposed(pair, key, rate)}
        )
    return rows


def _exposed(pair: PairSeen, key: GroupTopic, rate: float | None) -> Json:
    nothing: Json = {"after_return": None, "on_slave": None, "most": None}
    source = pair.last_master
    if rate is None or source is None or source.persist_age is None:
        return nothing
    if not rate:  # nothing is consumed that could be forgotten
        return {"after_return": 0, "on_slave": 0 if pair.slaves else None, "most": 0}
    queues = max(1, len(source.offsets.get(key, {})))
    config = source.config
    try:
        settings = Settings(rate=rate, queues=queues, backlog=lag_of(source, key) or 0).with_values(
            {
                "flushConsumerOffsetInterval": config.get(
                    "flushConsumerOffsetInterval", str(PERSIST_MS)
                ),
                "failbackTimeScale": str(source.time_scale),
            }
        )
    except ConfigError:
        return nothing
    # Whichever slave is asked: the one that copied longest ago bounds them all.
    ages = [each.sync_age for each in pair.slaves if each.sync_age is not None]
    found = exposure(
        settings,
        persist_age_seconds=source.persist_age,
        copy_age_seconds=max(ages, default=None),
    )
    return {
        "after_return": round(found.after_return),
        "on_slave": None if found.on_slave is None else round(found.on_slave),
        "most": round(found.most),
    }


def lag_of(broker: BrokerSeen, key: GroupTopic) -> int | None:
    """Messages behind the end, over all queues; ``None`` when no end is known."""
    found = [
        max(0, broker.ends[key.topic, queue] - offset)
        for queue, offset in broker.offsets.get(key, {}).items()
        if (key.topic, queue) in broker.ends
    ]
    return sum(found) if found else None


def slave_ahead(pair: PairSeen) -> int:
    """Messages by which the best slave's table is ahead of the master's, over all groups."""
    master = pair.last_master
    if master is None:
        return 0
    best = 0
    for slave in pair.slaves:
        ahead = 0
        for key in user_keys([slave.offsets]):
            for queue, offset in slave.offsets[key].items():
                ahead += ahead_of(master, key, queue, offset)
        best = max(best, ahead)
    return best


def ahead_of(master: BrokerSeen | None, key: GroupTopic, queue: int, offset: int) -> int:
    """How far an offset is beyond what the master has; 0 where nobody knows what that is."""
    if master is None:
        return 0
    if master.was_asked:
        return max(0, offset - master.offsets.get(key, {}).get(queue, 0))
    if master.file_offsets is not None:  # what it will start with
        return max(0, offset - master.file_offsets.get(key, {}).get(queue, 0))
    return 0


def overwrite_countdown(pair: PairSeen, now: float) -> float | None:
    """Seconds until the slave's better table is surely overwritten; ``None``: nothing to lose.

    Counted from the master's start. The copy may come at any moment before.
    """
    master = pair.master
    if master is None or not slave_ahead(pair):
        return None
    left = master.boot_ms / 1000 + OVERWRITE_SECONDS * master.time_scale - now
    return round(left, 1) if left > 0 else None


def summary(clusters: Sequence[Json]) -> Json:
    """The first line of the Fleet page."""
    pairs = [pair for cluster in clusters for pair in cluster["pairs"]]
    known = [pair["exposure"] for pair in pairs if pair["exposure"] is not None]
    return {
        "clusters": len(clusters),
        "pairs": len(pairs),
        "down": sum(pair["state"] == "down" for pair in pairs),
        "degraded": sum(pair["state"] == "degraded" for pair in pairs),
        "exposure": max(known, default=None),
        "overwrites": sum(pair["overwrite_in_seconds"] is not None for pair in pairs),
    }
