"""Status of custom resources: one function per kind and condition. Pure.

Messages hold no time, age or counter, so that a steady cluster's status does not change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.planning.cluster.carried import carried_status, offsets_carried
from failback.operator.planning.observed.observed import Carried
from failback.operator.planning.plan.encoding import find_condition
from failback.operator.render.members import pod_name
from failback.operator.render.nameserver import statefulset_name

Status = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodFact:
    """What is known of one pod."""

    state: str
    ready: bool
    address: str
    restarts: int
    carried: Mapping[str, Any] | None = None
    """What its sidecar said of the last start, empty before it; ``None`` without a sidecar."""


def condition(
    previous: Mapping[str, Any], kind: str, value: bool | None, reason: str, message: str, now: str
) -> Status:
    """Return one ``metav1.Condition``; ``lastTransitionTime`` moves only with the status.

    Args:
        previous: The status before, whose condition of this kind is looked up.
        value: ``None`` is ``Unknown``.
        now: RFC 3339 time of this pass.
    """
    text = {True: "True", False: "False", None: "Unknown"}[value]
    old = find_condition(previous, kind)
    since = old["lastTransitionTime"] if old and old["status"] == text else now
    return {
        "type": kind,
        "status": text,
        "reason": reason,
        "message": message[:512],
        "lastTransitionTime": since,
    }


def name_server_status(
    name_server: NameServer,
    addresses: Sequence[str],
    pods: Mapping[str, PodFact],
    previous: Mapping[str, Any],
    now: str,
) -> Status:
    """Return the status of a NameServer. Addresses come from the spec, never from pods."""
    names = [
        f"{statefulset_name(name_server)}-{index}" for index in range(name_server.spec.replicas)
    ]
    unready = [name for name in names if not _ready(pods, name)]
    return {
        "observedGeneration": name_server.metadata.generation,
        "replicas": sum(name in pods for name in names),
        "readyReplicas": len(names) - len(unready),
        "addresses": list(addresses),
        "conditions": [_ready_condition(previous, unready, "PodNotReady", pods, now)],
    }


def cluster_status(
    cluster: BrokerCluster,
    pods: Mapping[str, PodFact],
    previous: Mapping[str, Any],
    now: str,
) -> Status:
    """Return the status of a BrokerCluster as far as its pods tell."""
    pairs = [_pair_status(cluster, index, pods, previous) for index in range(cluster.spec.pairs)]
    unready = [member["pod"] for pair in pairs for member in pair["members"] if not member["ready"]]
    masters = {pod_name(cluster, pair["index"], pair["masterMember"]) for pair in pairs}
    reason = "MasterDown" if masters & set(unready) else "SlaveDown"
    conditions = [_ready_condition(previous, unready, reason, pods, now)]
    carried = {
        member["pod"].removesuffix("-0"): member.get("carried")
        for pair in pairs
        for member in pair["members"]
        if member["brokerId"] == 0 and member["pod"] in pods
        if pods[member["pod"]].carried is not None
    }
    if carried:
        conditions.append(condition(previous, *offsets_carried(carried), now))
    return {
        "observedGeneration": cluster.metadata.generation,
        "replicas": len(pairs),
        "readyPairs": sum(all(member["ready"] for member in pair["members"]) for pair in pairs),
        "pairs": pairs,
        "conditions": conditions,
    }


def _pair_status(
    cluster: BrokerCluster, index: int, pods: Mapping[str, PodFact], previous: Mapping[str, Any]
) -> Status:
    pair = cluster.pair(index)
    members: list[Status] = []
    before = {
        member["pod"]: member.get("carried")
        for each in previous.get("pairs") or ()
        for member in each["members"]
    }
    for ordinal in pair.ordinals:
        pod = pod_name(cluster, index, ordinal)
        fact = pods.get(pod)
        members.append(
            {
                "ordinal": ordinal,
                "pod": pod,
                "brokerId": pair.broker_id(ordinal),
                "desiredRole": pair.master_role if pair.broker_id(ordinal) == 0 else "SLAVE",
                "address": fact.address if fact else "",
                "ready": _ready(pods, pod),
                "restarts": fact.restarts if fact else 0,
            }
        )
        try:
            said = msgspec.convert(fact.carried, Carried) if fact and fact.carried else None
        except msgspec.ValidationError:
            said = None  # it is written again at the next start
        if carried := carried_status(said, before.get(pod)):
            members[-1]["carried"] = carried
    ready = [member["ready"] for member in members]
    phase = "Running" if all(ready) else "Degraded" if any(ready) else "Pending"
    return {
        "name": pair.broker_name,
        "index": index,
        "phase": phase,
        "masterMember": pair.master_member,
        "members": members,
    }


def _ready(pods: Mapping[str, PodFact], name: str) -> bool:
    return name in pods and pods[name].ready


def _ready_condition(
    previous: Mapping[str, Any],
    unready: Sequence[str],
    reason: str,
    pods: Mapping[str, PodFact],
    now: str,
) -> Status:
    if not unready:
        return condition(previous, "Ready", True, "AllReady", "", now)
    missing = [name for name in unready if name not in pods]
    text = ", ".join(
        f"{name} {pods[name].state}" if name in pods else f"{name} not created" for name in unready
    )
    return condition(previous, "Ready", False, "Creating" if missing else reason, text, now)
