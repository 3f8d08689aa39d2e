"""Keys of ``config`` that are not rolled out. Pure.

Some keys can't change once a store exists. A broker whose log has files of another size ends at its
start. An index of another size is read wrongly. Rolled out, such a change would take down one
member after the other.

Other keys the engine does not know: a slip is not rolled out. Such a key stays in force where the
file of a member has it already, so an upgrade does not take back what an earlier release applied.
Nor does it apply what an earlier release left out, before the spec changes or a restart is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from failback.operator.engines.catalogue import (
    ACCEPT_UNKNOWN_KEY,
    config_keys,
    known_keys,
    quirk,
    same_value,
)
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import Key, Object, ObservedCluster
from failback.operator.planning.plan.memory import Memory
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.schema.rule_texts import MANAGED_BROKER_KEYS

FIXED: Final[Mapping[str, str]] = {
    name: row.default or ""
    for name, row in config_keys().items()
    if row.change == "immutable" and name not in MANAGED_BROKER_KEYS and name[:9] != "storePath"
}
"""Key → what a broker has when its file does not name it."""


def refused_changes(observed: ObservedCluster, desired: Mapping[Key, Object]) -> list[str]:
    """Say which keys of ``config`` may not change, once each, with the value in force.

    Only a member that is ready proves that its store is of this value: a wrong one over the kept
    volume of an earlier cluster can be corrected.
    """
    found: dict[str, str] = {}
    for _, view in sorted(observed.members.items()):
        if view.claim is None or view.config_map is None or not view.is_ready:
            continue
        wanted = desired.get(("ConfigMap", view.config_map["metadata"]["name"]))
        for key, value in _changes(view.config_map, wanted):
            text = f"is fixed once a store exists, there it is {value or 'not set'}"
            found.setdefault(key, f"config_keys spec.config: {key}: {text}")
    return list(found.values())


def _changes(current: Object, wanted: Object | None) -> Iterator[tuple[str, str]]:
    if wanted is None:
        return
    have, want = facts.properties(current), facts.properties(wanted)
    for key, default in FIXED.items():
        value = have.get(key, default)
        if not same_value(key, value, want.get(key, default)):
            yield key, value


def left_out(state: ClusterState, version: str, release: str) -> frozenset[str]:
    """Return the keys of the spec that are not applied.

    Args:
        version: Of the engine that is wanted.
        release: Of Failback, which the members' pods are of.
    """
    cluster, spec, observed = state.cluster, state.cluster.spec, state.observed
    engine = state.held_engine or {"type": spec.engine.program, "version": version}
    keys = {*spec.config, *(key for each in spec.pair_overrides for key in each.config)}
    known = known_keys(engine["type"], engine["version"])
    is_new = state.status.get("observedGeneration") != cluster.metadata.generation
    if not (is_new or quirk("keysOfJars", "failback", release)):
        known = MappingProxyType({key: row for key, row in known.items() if row.source})
    unknown = keys - known.keys()
    if not unknown:
        return frozenset()
    accepted = cluster.metadata.annotations.get(ACCEPT_UNKNOWN_KEY, "").replace(" ", "").split(",")
    files = [facts.properties(view.config_map) for view in observed.members.values()]
    in_force = {key for key in unknown if any(key in file for file in files)}
    return frozenset(unknown.difference(accepted) - in_force)


def without(cluster: BrokerCluster, keys: frozenset[str], memory: Memory) -> BrokerCluster:
    """Return the cluster as it is rendered; the very same object for the same arguments."""
    if not keys:
        return cluster
    known = memory.applied
    if known is not None and known[0] is cluster and known[1] == keys:
        return known[2]
    spec = cluster.spec
    config = {key: value for key, value in spec.config.items() if key not in keys}
    overrides = [
        each.model_copy(
            update={"config": {key: text for key, text in each.config.items() if key not in keys}}
        )
        for each in spec.pair_overrides
    ]
    update = {"config": config, "pair_overrides": overrides}
    made: BrokerCluster = cluster.model_copy(update={"spec": spec.model_copy(update=update)})
    memory.applied = (cluster, keys, made)
    return made
