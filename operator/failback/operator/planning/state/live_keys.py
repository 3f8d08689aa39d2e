"""Live keys of ``broker.conf``: what each member should have, and what it has. Pure.

A live key is set in a running broker (25) and in the member's ConfigMap, member by member. Until
a member's turn has come its ConfigMap keeps the old value, so :func:`held` tells rendering.
``brokerPermission`` is not among them: the operations that close and open pairs own it. Nor is
``failbackMembers``: it is rendered, and a broker needs it when it starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from failback.operator.engines.catalogue import config_keys, same_value
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.planning.observed import facts
from failback.operator.planning.state.cluster_state import ClusterState
from failback.operator.render.shape import Member, Shape, shaped_pair

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
    want = wanted(state.cluster, shape, member, state.observed.name_servers)
    gone = [key for key in current if is_live(key) and key not in want and key != "namesrvAddr"]
    changed = {key: value for key, value in want.items() if current.get(key) != value}
    return {**changed, **dict.fromkeys(gone)}


def broker_changes(state: ClusterState, shape: Shape, member: Member) -> dict[str, str]:
    """Return the live keys that a member's broker answers differently (26); empty if unknown.

    A line that goes from the file is set back to the broker's own default.
    """
    view = state.observed.member(*member)
    if view.broker is None or view.broker.config is None:
        return {}
    want: dict[str, str] = dict(wanted(state.cluster, shape, member, state.observed.name_servers))
    for key, value in file_changes(state, shape, member).items():
        if value is None and key in DEFAULTS:
            want[key] = DEFAULTS[key]
    answer = view.broker.config
    return {
        key: value
        for key, value in sorted(want.items())
        if not same_value(key, answer.get(key, ""), value)
    }
