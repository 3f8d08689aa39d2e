"""The shape of a cluster: how the rendered objects deviate from the spec, and the spec with it.

An operation or an experiment deviates from the spec on purpose; rendering takes both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from failback.operator.kinds.base import Engine
from failback.operator.kinds.broker_cluster import BrokerCluster, Pair

_OF_ANY_ENGINE = ("image_pull_policy", "image_pull_secrets")
MOST_MEMBERS = 4
"""Of one pair."""
Member = tuple[int, int]
"""Pair index and ordinal of a broker."""


@dataclass(frozen=True, slots=True)
class Guarding:
    """How far access control and TLS of a cluster are switched on."""

    acl: bool = False
    """``aclEnable``."""
    acl_mode: str = ""
    """``failbackAclMode``; empty: no line."""
    tls: str = ""
    """Which connections members take: ``disabled``, ``permissive``, ``enforcing``; empty: no line.
    """
    own_tls: bool = False
    """Whether their own connections speak TLS."""


def wanted_guarding(cluster: BrokerCluster) -> Guarding:
    """Return what the spec wants in the end."""
    acl, tls = cluster.spec.acl, cluster.spec.tls
    ours = cluster.spec.engine.type == "Failback"
    return Guarding(
        acl is not None and (ours or acl.mode == "Enforce"),
        acl.mode.lower() if acl is not None and ours else "",
        "" if tls is None else tls.mode.lower(),
        tls is not None and tls.mode != "Disabled",
    )


@dataclass(frozen=True, slots=True)
class Shape:
    """How the desired objects deviate from the spec at this moment of the cluster's life."""

    pairs: int
    """Number of pairs to render: those of the spec and those that are leaving."""
    slaves: Mapping[int, int] = field(default_factory=dict)
    """Pair → number of slaves to render, where it differs from the spec."""
    masters: Mapping[int, int] = field(default_factory=dict)
    """Pair → master member in force, from the ConfigMaps."""
    closed: frozenset[int] = frozenset()
    """Pairs whose master has ``brokerPermission=4``."""
    stopped: frozenset[Member] = frozenset()
    """Members whose StatefulSet has no replicas now."""
    gated: frozenset[Member] = frozenset()
    """Members whose pod only reads where their log ends, and starts no broker."""
    masters_held: frozenset[int] = frozenset()
    """Pairs with a ready master that a budget of its own keeps (``failover.onDrain``)."""
    read_forced: frozenset[int] = frozenset()
    """Pairs whose slaves serve reads against the spec (failover ``SlaveReadOnly``)."""
    live: Mapping[Member, Mapping[str, str | None]] = field(default_factory=dict)
    """Live keys that a member's ConfigMap keeps for now, because its turn has not come;
    ``None`` = the file has no such line yet."""
    overlay: Mapping[str, str] = field(default_factory=dict)
    """``config`` of the running experiment's arm, over the cluster's."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """``engine`` of the running experiment's arm, over the cluster's."""
    guarding: Guarding | None = None
    """Access control and TLS of now; ``None`` = as the spec wants them in the end."""


def shaped_cluster(cluster: BrokerCluster, shape: Shape | None) -> BrokerCluster:
    """Return the cluster with the engine of the shape: an arm's, or the one that is held."""
    if shape is None or not shape.engine:
        return cluster
    engine = _engine(cluster.spec.engine, shape.engine)
    return cluster.model_copy(update={"spec": cluster.spec.model_copy(update={"engine": engine})})


def shaped_pair(cluster: BrokerCluster, index: int, shape: Shape | None) -> Pair:
    """Return pair ``index`` with the shape's slaves, master, configuration and reads."""
    pair = cluster.pair(index)
    if shape is None:
        return pair
    pair.slaves = shape.slaves.get(index, pair.slaves)
    pair.master_member = shape.masters.get(index, pair.master_member)
    pair.config = {**pair.config, **shape.overlay}
    return pair


def live_values(
    pair: Pair, ordinal: int, properties: Mapping[str, str], shape: Shape | None
) -> dict[str, str]:
    """Return a member's properties with the live values of the shape: forced reads, held keys."""
    found = dict(properties)
    if shape is None:
        return found
    if pair.index in shape.read_forced and pair.broker_id(ordinal) != 0:
        found["slaveReadEnable"] = "true"
    for key, value in shape.live.get((pair.index, ordinal), {}).items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def _engine(engine: Engine, over: Mapping[str, Any]) -> Engine:
    """Return the engine with what lies over it, whose type is a program's name, as ``apache``."""
    fields = engine.model_dump(by_alias=True, exclude_none=True)
    program = over.get("type", engine.program)
    if program != engine.program:
        fields = engine.model_dump(by_alias=True, include=set(_OF_ANY_ENGINE))
    return Engine.model_validate({**fields, **over, "type": program.capitalize()})
