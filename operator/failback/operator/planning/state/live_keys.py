"""Live keys of ``broker.conf``: what each member should have, and what it has. Pure.

A live key is set in a running broker (25) and in the member's ConfigMap, member by member. Keys
that a broker refuses by request it takes from the ConfigMap, once the kubelet has mounted it. Until
a member's turn has come its ConfigMap keeps the old value, so :func:`held` tells rendering.
``brokerPermission`` is not among them: the operations that close and open pairs own it. Nor is
``failbackMembers``: it is rendered, and a broker needs it when it starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from failback.broker.config.config_keys import needs_admin
from failback.operator.engines.catalogue import config_keys, same_value
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.members import ACL_MODE, FAILBACK_TLS
from failback.operator.render.shape import Member, Shape, shaped_pair, wanted_guarding

PERMISSION: Final = "brokerPermission"
MEMBERS: Final = "failbackMembers"
READ: Final = "slaveReadEnable"
# What a broker has when its file does not name the key, hence what a removed line must be set to.
DEFAULTS: Final[Mapping[str, str]] = {
    name: row.default
    for name, row in config_keys().items()
    if row.change == "live" and row.default is not None
}


def is_live(key: str) -> bool:
    """Tell whether a running broker takes a new value of ``key`` from LiveConfig."""
    row = config_keys().get(key)
    return row is not None and row.change == "live" and key not in (PERMISSION, MEMBERS)


def wanted(
    cluster: BrokerCluster, shape: Shape, member: Member, name_servers: Sequence[str] | None
) -> dict[str, str]:
    """Return the live keys that a member's file should name, with their values.

    While the name servers are not known ``namesrvAddr`` is not among them: what is there stays.
    """
    index, ordinal = member
    pair = shaped_pair(cluster, index, shape)
    found = {key: value for key, value in pair.config.items() if is_live(key)}
    forced = index in shape.read_forced and pair.broker_id(ordinal) != 0
    found[READ] = "true" if forced or pair.slave_read_enable else "false"
    if name_servers is not None:
        found["namesrvAddr"] = ";".join(name_servers)
    guarding = shape.guarding or wanted_guarding(cluster)
    if cluster.spec.engine.program == "failback":
        found |= {ACL_MODE: guarding.acl_mode} if guarding.acl_mode else {}
        own = "true" if guarding.own_tls else "false"
        found |= zip(FAILBACK_TLS, (guarding.tls, own), strict=True) if guarding.tls else ()
    return found


def held(state: ClusterState, shape: Shape) -> dict[Member, dict[str, str | None]]:
    """Return what each member's ConfigMap keeps for now; members without one keep nothing."""
    found: dict[Member, dict[str, str | None]] = {}
    for member, view in sorted(state.observed.members.items()):
        if view.config_map is None or member[0] >= shape.pairs:
            continue
        current = {k: v for k, v in facts.properties(view.config_map).items() if is_live(k)}
        want = wanted(state.cluster, shape, member, state.observed.name_servers)
        keys = [key for key in sorted({*current, *want}) if current.get(key) != want.get(key)]
        if keys:
            found[member] = {key: current.get(key) for key in keys}
    return found


def file_changes(state: ClusterState, shape: Shape, member: Member) -> dict[str, str | None]:
    """Return the live keys whose line in a member's ConfigMap must change; ``None`` = goes."""
    current = facts.properties(state.observed.member(*member).config_map)
    lines = _lines(state, shape, member)
    return {key: value for key, value in lines.items() if current.get(key) != value}


def broker_changes(state: ClusterState, shape: Shape, member: Member) -> dict[str, str]:
    """Return the live keys that a member's broker answers differently (26); empty if unknown.

    Without those that it takes from its mounted file.
    """
    found = _other_values(state, shape, member)
    return {key: value for key, value in found.items() if not _is_mounted(state, member, key)}


def mounted_changes(state: ClusterState, shape: Shape, member: Member) -> dict[str, str]:
    """Return the live keys that a member's broker will take from its mounted file."""
    found = _other_values(state, shape, member)
    return {key: value for key, value in found.items() if _is_mounted(state, member, key)}


def _is_mounted(state: ClusterState, member: Member, key: str) -> bool:
    """Tell whether a member takes ``key`` from its mounted file: it refuses it by request (25)."""
    statefulset = state.observed.member(*member).statefulset
    guarded = state.cluster.spec.engine.rules == "guarded"
    return needs_admin(key, guarded=guarded) and "--mounted" in facts.broker_arguments(statefulset)


def _other_values(state: ClusterState, shape: Shape, member: Member) -> dict[str, str]:
    broker = state.observed.member(*member).broker
    if broker is None or broker.config is None:
        return {}
    return {
        key: value
        for key, value in sorted(_lines(state, shape, member).items())
        if value is not None and not same_value(key, broker.config.get(key, ""), value)
    }


def _lines(state: ClusterState, shape: Shape, member: Member) -> dict[str, str | None]:
    """Return the live lines that a member's ConfigMap should have now; ``None`` = goes.

    A line that is no longer wanted names the broker's own default until the broker answers that
    value. Nothing else tells that the broker was given another one.
    """
    view = state.observed.member(*member)
    answer = view.broker.config if view.broker else None
    want = wanted(state.cluster, shape, member, state.observed.name_servers)
    found: dict[str, str | None] = {**want}
    for key in facts.properties(view.config_map):
        if is_live(key) and key not in want and key != "namesrvAddr":
            value = DEFAULTS.get(key)
            if value is not None and answer is not None:
                value = None if same_value(key, answer.get(key, value), value) else value
            found[key] = value
    return found
