"""What stands now, beside the spec: members, masters in force, closed pairs, arm, held engine.

Read from the children themselves, so that an operator that starts anew finds the same. Every
operation and :mod:`failback.operator.planning.cluster.shaping` begin here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from failback.operator.engines.catalogue import quirk
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Key, MemberView, Object, ObservedCluster
from failback.operator.render.config import member_name
from failback.operator.render.shape import Member, Shape

FAILOVER_SECONDS: Final = 30.0
"""How long a master must be gone before reads of its slaves are forced."""
APACHE_OF_ARMS: Final = "4.9.7"
"""Version of Apache's broker in an arm, where the cluster itself runs another engine."""
_OVER: Final = frozenset({"Completed", "Aborted", "Failed"})
_SLAVE: Final = "SLAVE"
_SERVERS: Final = ("broker", "namesrv")
_OF_APACHE: Final = ("./mqbroker", "./mqnamesrv")


def ordinals(observed: ObservedCluster, pair: int) -> tuple[int, ...]:
    """Return the ordinals of a pair that have objects or a pod; a bare claim is no member."""
    found = (view for (index, _), view in observed.members.items() if index == pair)
    return tuple(sorted(view.ordinal for view in found if _stands(view)))


def pairs(observed: ObservedCluster) -> tuple[int, ...]:
    """Return the indices of the pairs that have any member."""
    return tuple(sorted({pair for (pair, _), view in observed.members.items() if _stands(view)}))


def _stands(view: MemberView) -> bool:
    return view.statefulset is not None or view.config_map is not None or view.pod is not None


def is_leaving(cluster: BrokerCluster, pair: int, ordinal: int = 0) -> bool:
    """Tell whether the spec has no place for a member any more."""
    return pair >= cluster.spec.pairs or ordinal > cluster.pair(pair).slaves


def members(cluster: BrokerCluster, pair: int) -> tuple[Member, ...]:
    """Return the members of a pair as the spec wants them."""
    return tuple((pair, ordinal) for ordinal in cluster.pair(pair).ordinals)


def master_member(
    cluster: BrokerCluster, observed: ObservedCluster, pair: int, status: Mapping[str, Any]
) -> int:
    """Return the ordinal that is master: the one whose ConfigMap says so.

    Where none or several do, the status decides, then the spec (a cluster made anew over kept
    claims).
    """
    said = [
        ordinal
        for ordinal in ordinals(observed, pair)
        if _says_master(observed.member(pair, ordinal).config_map)
    ]
    if len(said) == 1:
        return said[0]
    recorded = [row.get("masterMember") for row in _rows(status) if row.get("index") == pair]
    remembered = recorded[0] if recorded else None
    if isinstance(remembered, int) and (not said or remembered in said):
        return remembered
    return cluster.pair(pair).master_member


def _says_master(config_map: Object | None) -> bool:
    found = facts.properties(config_map)
    return bool(found) and found.get("brokerRole", _SLAVE) != _SLAVE


def _rows(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list(status.get("pairs") or ())


def master_of(desired: Mapping[Key, Object], cluster: BrokerCluster, pair: int) -> int:
    """Return the master member of a pair among rendered objects.

    Raises:
        LookupError: The pair is not rendered.
    """
    for ordinal in range(4):
        rendered = desired.get(("ConfigMap", member_name(cluster, pair, ordinal)))
        if rendered is not None and _says_master(rendered):
            return ordinal
    raise LookupError(f"pair {pair} is not rendered")


def base_shape(
    cluster: BrokerCluster, status: Mapping[str, Any], observed: ObservedCluster
) -> Shape:
    """Return the shape before any operation: what stands is kept, what the spec adds is added."""
    standing = pairs(observed)
    count = max([cluster.spec.pairs, *(pair + 1 for pair in standing)])
    masters = {pair: master_member(cluster, observed, pair, status) for pair in range(count)}
    slaves = {
        pair: present[-1]
        for pair in standing
        if (present := ordinals(observed, pair)) and present[-1] > cluster.pair(pair).slaves
    }
    fresh = _is_fresh(status, observed)
    arm = running_arm(observed)
    engine = arm_engine(cluster, arm)
    shape = Shape(
        pairs=count,
        slaves=slaves,
        masters=masters,
        closed=frozenset(
            pair for pair in range(count) if _is_closed(observed, pair, masters[pair], fresh)
        ),
        read_forced=frozenset(
            pair for pair in standing if _reads_are_forced(cluster, observed, pair, masters[pair])
        ),
        overlay=dict(arm.get("brokerConfig") or {}) if arm else {},
        engine=engine,
    )
    held = held_engine(cluster, observed, engine)
    return shape if held is None else dataclasses.replace(shape, engine=held)


def _is_fresh(status: Mapping[str, Any], observed: ObservedCluster) -> bool:
    """Tell whether the cluster is made for the first time: nothing serves that could be copied."""
    if status.get("observedGeneration"):
        return False
    return not any(view.pod is not None and view.pod.ready for view in observed.members.values())


def _is_closed(observed: ObservedCluster, pair: int, master: int, fresh: bool) -> bool:
    """Tell whether a pair takes no writes now: its master's file says so, or it is new."""
    view = observed.member(pair, master)
    if view.config_map is not None:
        return facts.properties(view.config_map).get("brokerPermission") == "4"
    if not ordinals(observed, pair):
        return not fresh
    config = view.broker.config if view.broker else None
    return (config or {}).get("brokerPermission") == "4"


# --- failover: slaves that serve reads while the master is gone ---------------------------------


def _reads_are_forced(
    cluster: BrokerCluster, observed: ObservedCluster, pair: int, master: int
) -> bool:
    """Decide ``failover.mode: SlaveReadOnly`` for one pair; what was forced stays so until
    the master is registered and its slaves have its tables."""
    if cluster.spec.failover.mode != "SlaveReadOnly" or is_leaving(cluster, pair):
        return False
    if cluster.pair(pair).slave_read_enable or is_leaving(cluster, pair, master):
        return False
    slaves = [ordinal for ordinal in ordinals(observed, pair) if ordinal != master]
    gone = not is_ready(observed.member(pair, master))
    since = observed.masterless_since.get(pair)
    if gone and since is not None and observed.at - since >= FAILOVER_SECONDS:
        return True
    forced = any(
        facts.properties(observed.member(pair, ordinal).config_map).get("slaveReadEnable") == "true"
        for ordinal in slaves
    )
    return forced and not _is_restored(cluster, observed, pair, master, slaves)


def _is_restored(
    cluster: BrokerCluster,
    observed: ObservedCluster,
    pair: int,
    master: int,
    slaves: list[int],
) -> bool:
    view = observed.member(pair, master)
    if not facts.is_registered(observed, cluster.broker_name(pair), view, 0):
        return False
    tables = [
        facts.compare_metadata(view.broker, observed.member(pair, ordinal).broker)
        for ordinal in slaves
    ]
    return all(table and table.equal and not table.stale and not table.ahead for table in tables)


def is_ready(view: MemberView) -> bool:
    """Tell whether a member has a ready pod that is not going away."""
    return view.pod is not None and view.pod.ready and not view.pod.deleting


# --- experiments --------------------------------------------------------------------------------


def running_arm(observed: ObservedCluster) -> Mapping[str, Any] | None:
    """Return the arm whose configuration is merged over the cluster's now, or ``None``."""
    for experiment in observed.experiments:
        status = experiment.get("status") or {}
        active = status.get("activeArm")
        if not active or status.get("phase") in _OVER:
            continue
        for arm in experiment.get("spec", {}).get("arms") or ():
            if arm.get("name") == active:
                return dict(arm)
    return None


def arm_engine(cluster: BrokerCluster, arm: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what an arm changes of the cluster's engine: an arm names a type, never a version."""
    kind = str((arm or {}).get("engine") or "")
    if not kind:
        return {}
    if kind == "apache" and cluster.spec.engine.type != kind:
        return {"type": kind, "version": APACHE_OF_ARMS}
    return {"type": kind}


# --- engines ------------------------------------------------------------------------------------


def engine_of(statefulset: Object) -> dict[str, str]:
    """Return engine type, version and image that a StatefulSet runs."""
    template = statefulset["spec"]["template"]
    named = [item for item in template["spec"]["containers"] if item.get("name") in _SERVERS]
    container = named[0] if named else {}
    labels = template.get("metadata", {}).get("labels", {})
    found = {
        "type": "apache" if container.get("args", [""])[0] in _OF_APACHE else "failback",
        "version": labels.get("app.kubernetes.io/version", ""),
    }
    if container.get("image"):
        found["image"] = container["image"]
    return found


def held_engine(
    cluster: BrokerCluster, observed: ObservedCluster, over: Mapping[str, Any]
) -> dict[str, str] | None:
    """Return the engine that must stay because the wanted one can't read the store, or ``None``.

    A store that 5.x wrote may hold records, timer logs and reset state that 4.x does not read.
    """
    kind = str(over.get("type") or cluster.spec.engine.type)
    version = str(over.get("version") or cluster.spec.engine.version or "")
    if _family(kind, version) != "v4":
        return None
    for _, view in sorted(observed.members.items()):
        if view.statefulset is None:
            continue
        running = engine_of(view.statefulset)
        if _family(running["type"], running["version"]) == "v5":
            return running
    return None


def _family(engine: str, version: str) -> str:
    return str(quirk("storeFamily", engine, version))
