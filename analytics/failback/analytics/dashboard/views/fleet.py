"""The fleet as pages show it: pairs, roles, lag, ages, what a kill would repeat now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from failback.analytics.dashboard.sources.brokers import BrokerSeen
from failback.analytics.dashboard.sources.clusters import KUBERNETES, ClusterRef, PairRef
from failback.analytics.dashboard.sources.stakes import Stake, StakesFound
from failback.analytics.live.exposure import GroupExposure, exposure
from failback.analytics.live.facts import GroupTopic, PairFacts, user_keys
from failback.analytics.live.known import restarted_seconds
from failback.analytics.live.queues import lag, overwrite_countdown, slave_ahead
from failback.analytics.live.watch import first_look
from failback.common.text import typed

Json = dict[str, Any]
Seen = Mapping[str, BrokerSeen]
"""Brokers by address."""
Rates = Mapping[tuple[str, str], Mapping[GroupTopic, float]]
"""Messages per second by (cluster key, broker name), then by group and topic."""


@dataclass(frozen=True, slots=True)
class PairSeen:
    """One pair with the answers of its brokers."""

    cluster: ClusterRef
    ref: PairRef
    brokers: tuple[BrokerSeen, ...]

    @property
    def last_master(self) -> BrokerSeen | None:
        """As :attr:`PairFacts.last_master`: of those that answer it is the master."""
        found = PairFacts(self.broker_name, self.brokers, 0.0).last_master
        return next((each for each in self.brokers if each is found), None)

    @property
    def facts(self) -> PairFacts:
        """Return the pair as the live view of all tools, with what was seen before."""
        before = next((each.before for each in self.brokers if each.before is not None), None)
        return first_look(self.tables) if before is None else replace(self.tables, seen=before)

    @property
    def tables(self) -> PairFacts:
        """Return the answers of the pair's brokers; ends and begins of the fullest one."""
        ends: dict[str, dict[int, int]] = {}
        begins: dict[str, dict[int, int]] = {}
        for broker in self.brokers:
            for topic, queues in broker.ends.items():
                known = ends.setdefault(topic, {})
                known |= {qid: max(end, known.get(qid, 0)) for qid, end in queues.items()}
            begins |= {topic: dict(queues) for topic, queues in broker.begins.items()}
        source = self.last_master
        answering = [each for each in self.brokers if each.answered]
        return PairFacts(
            self.broker_name,
            self.brokers,
            max((each.at for each in self.brokers), default=0.0),
            ends,
            begins,
            {
                group: max(each.consumers.members.get(group, 0) for each in answering)
                for group in {group for each in answering for group in each.consumers.members}
            },
            frozenset() if source is None else source.consumers.broadcasting,
            frozenset() if source is None else source.consumers.deleted,
        )

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


def committed(brokers: Sequence[BrokerSeen]) -> dict[GroupTopic, int]:
    """What groups committed to whichever of these brokers knows more, over all queues."""
    best: dict[GroupTopic, dict[int, int]] = {}
    for broker in brokers:
        for key, queues in broker.offsets.items():
            known = best.setdefault(key, {})
            known |= {qid: max(offset, known.get(qid, 0)) for qid, offset in queues.items()}
    return {key: sum(queues.values()) for key, queues in best.items()}


def cluster_document(
    cluster: ClusterRef,
    seen: Seen,
    rates: Rates,
    now: float,
    stakes: StakesFound | None = None,
) -> Json:
    """One cluster for the API and the Fleet page. ``stakes``: what was overwritten, by pair."""
    pairs = [
        pair_document(pair, rates, now, (stakes or {}).get((cluster.key, pair.broker_name)))
        for pair in pairs_of(cluster, seen)
    ]
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
    """The first of ``down``, ``at stake``, ``degraded``, ``restarted`` and ``ok``.

    ``unknown`` for nothing.
    """
    found = set(states)
    order = ("down", "at stake", "degraded", "restarted", "ok")
    return next((each for each in order if each in found), "unknown")


def pair_document(pair: PairSeen, rates: Rates, now: float, stake: Stake | None = None) -> Json:
    """One pair: its members, how it is, and what a kill of its master would repeat now."""
    members = [member_document(pair, each, now) for each in pair.brokers]
    facts = replace(pair.facts, at=now)
    exposed = exposures(facts, rates.get((pair.cluster.key, pair.broker_name), {}))
    config = facts.last_master.config if facts.last_master is not None else {}
    reads = config.get("slaveReadEnable")
    return {
        "pair": pair.ref.name,
        "broker": pair.broker_name,
        "state": pair_state(pair, facts, stake),
        "members": members,
        "slave_read_enable": pair.ref.slave_read_enable
        if reads is None
        else reads.strip().lower() == "true",
        "groups": exposed,
        "exposure": max((row["most"] for row in exposed if row["most"] is not None), default=None),
        "overwrite_in_seconds": overwrite_countdown(facts),
        "slave_ahead": slave_ahead(facts) if facts.master is not None else None,
    }


def pair_state(pair: PairSeen, facts: PairFacts, stake: Stake | None) -> str:
    """Return ``restarted`` while the master's start may hide what groups had handled."""
    if facts.master is None:
        return "down"
    if slave_ahead(facts) or (stake is not None and not stake.is_dismissed):
        return "at stake"
    if len(facts.slaves) != len(pair.ref.members) - 1:
        return "degraded"
    return "ok" if restarted_seconds(facts) is None else "restarted"


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
        "persist_age_seconds": broker.persist_age
        if broker.answered
        else broker.file and broker.file.age_seconds,
        "restarts": broker.member.restarts,
        "next": _next_step(pair.cluster, broker),
    }


def _next_step(cluster: ClusterRef, broker: BrokerSeen) -> str:
    """Return the command that shows more."""
    if not broker.answered and broker.member.store:
        return typed("failback", "logs", broker.member.name)
    if not broker.answered and cluster.source == KUBERNETES:
        namespace = cluster.where.partition("/")[0]
        return typed("kubectl", "describe", "pod", "-n", namespace, broker.member.name)
    return typed("failback", "admin", "getBrokerConfig", "-b", broker.member.address)


def exposures(facts: PairFacts, rates: Mapping[GroupTopic, float]) -> list[Json]:
    """What each group would re-consume on this pair if its master died now."""
    source = facts.last_master
    if source is None or source.offsets is None:
        return []
    found = exposure(facts, rates)
    topics: dict[str, list[str]] = {}
    for key in user_keys([source.offsets]):
        if facts.offsets_count(key.group) or key.group in facts.broadcasting:
            topics.setdefault(key.group, []).append(key.topic)
    by_group: dict[str, float] = {}
    for key, rate in rates.items():
        by_group[key.group] = by_group.get(key.group, 0.0) + rate
    held = source.offsets
    lags = {
        group: [
            lag(facts.ends.get(name, {}), held[key], facts.begins.get(name, {}))
            for name in names
            if (key := GroupTopic(group, name))
        ]
        for group, names in topics.items()
        # The last answer of a silent master is no lag of now.
        if facts.offsets_count(group) and facts.master is not None
    }
    return [
        exposure_document(
            group,
            names,
            by_group.get(group) if facts.offsets_count(group) else None,
            found.get(group),
        )
        | {
            "lag": _sum_of_known(lags.get(group, ())),
            "queues": sum(len(held[GroupTopic(group, name)]) for name in names),
            "members": facts.group_members.get(group),
            "broadcasting": group in facts.broadcasting,
        }
        for group, names in topics.items()
    ]


def _sum_of_known(values: Sequence[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return sum(known) if known else None


def exposure_document(
    group: str, topics: Sequence[str], rate: float | None, found: GroupExposure | None
) -> Json:
    """One group; its figures are ``None`` while its rate or the master is not known."""
    document: Json = {
        "group": group,
        "topic": ", ".join(topics),
        "topics": list(topics),
        "rate": None if rate is None else round(rate, 2),
        **dict.fromkeys(("after_return", "on_slave", "most", "measured", "bound")),
    }
    if found is None:
        return document
    return document | {
        "after_return": found.bound.of(round(found.after_return)),
        "on_slave": None if found.on_slave is None else found.bound.of(round(found.on_slave)),
        "most": round(found.most),
        "measured": found.measured,
        "bound": found.bound.value,
    }


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
        "exposure_minute": max(
            (
                row["minute"]["most"]
                for pair in pairs
                for row in pair["groups"]
                if row.get("minute", {}).get("most") is not None
            ),
            default=None,
        ),
        "overwrites": sum(pair["overwrite_in_seconds"] is not None for pair in pairs),
    }
