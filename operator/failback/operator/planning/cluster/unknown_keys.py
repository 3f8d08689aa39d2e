"""Keys of ``config`` that the engine does not know: a slip is not rolled out. Pure.

A key that stands in the file of a member already stays in force: what an earlier release applied is
not taken back by an upgrade.
"""

from __future__ import annotations

from failback.operator.engines.catalogue import ACCEPT_UNKNOWN_KEY, known_keys
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.observed.observed import ObservedCluster
from failback.operator.planning.plan.memory import Memory


def left_out(cluster: BrokerCluster, observed: ObservedCluster, version: str) -> frozenset[str]:
    """Return the keys of the spec that are not applied.

    Args:
        version: Of the engine.
    """
    spec = cluster.spec
    keys = {*spec.config, *(key for each in spec.pair_overrides for key in each.config)}
    unknown = keys - known_keys(spec.engine.program, version).keys()
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
