"""The last spec that could be carried out: by it a resource is kept while its own can't be. Pure.

It lies in a ConfigMap of the resource, which outlives every operator, and which is applied after
all other objects: what the API server refuses does not get into it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from failback.operator.kinds.base import Model
from failback.operator.kinds.broker_cluster import BrokerCluster, BrokerClusterSpec
from failback.operator.kinds.name_server import NameServer, NameServerSpec
from failback.operator.planning.observed.observed import Key, Object
from failback.operator.planning.plan.memory import Memory
from failback.operator.render import common
from failback.operator.render.config import config_map
from failback.operator.render.context import Context
from failback.operator.render.nameserver import name_server_labels

_FILE: Final = "spec.json"
_Spec = TypeVar("_Spec", bound=Model)


def key_of(cluster: str) -> Key:
    """Return kind and name of the ConfigMap of a cluster."""
    return "ConfigMap", f"{cluster}-last-valid-spec"


def note(cluster: BrokerCluster, context: Context, memory: Memory) -> dict[str, Any]:
    """Return the ConfigMap that holds the cluster's spec; the same object for the same cluster."""
    known = memory.note
    if known is None or known[0] is not cluster:
        marks = common.labels(cluster, "broker", cluster=cluster.name)
        made = _note(cluster, key_of(cluster.name)[1], marks, context)
        memory.note = known = (cluster, made)
    return known[1]


def _note(
    owner: BrokerCluster | NameServer, name: str, marks: dict[str, str], context: Context
) -> dict[str, Any]:
    spec = owner.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return {**config_map(owner, name, {_FILE: text}, marks, context)}


def stored_spec(found: Object | None) -> Mapping[str, Any] | None:
    """Return the spec that a ConfigMap holds, or ``None`` when it holds none."""
    try:
        spec = json.loads((found or {}).get("data", {}).get(_FILE, ""))
    except ValueError:
        return None
    return spec if isinstance(spec, dict) else None


def kept(
    cluster: BrokerCluster, objects: Mapping[Key, Object], memory: Memory
) -> BrokerCluster | None:
    """Return the cluster as its last valid spec wants it; ``None`` when that is not known.

    Args:
        memory: The very same object comes of the same spec again: what is rendered of it is kept.
    """
    found = objects.get(key_of(cluster.name))
    known = memory.last_valid
    if known is not None and known[0] is cluster and known[1] is found:
        return known[2]
    model = _decoded(found, BrokerClusterSpec)
    if model is None or found is None:
        return None
    wanted = model.model_copy(update={"suspend": cluster.spec.suspend})
    made: BrokerCluster = cluster.model_copy(update={"spec": wanted})
    memory.last_valid = (cluster, found, made)
    return made


def _decoded(found: Object | None, kind: type[_Spec]) -> _Spec | None:
    spec = stored_spec(found)
    try:
        return None if spec is None else kind.model_validate(spec)
    except ValidationError:  # of another release
        return None


# --- NameServers ----------------------------------------------------------------------------------


def name_server_key(name: str) -> Key:
    """Return kind and name of the ConfigMap of a NameServer: a cluster may have its name."""
    return "ConfigMap", f"{name}-last-valid-namesrv-spec"


def name_server_note(name_server: NameServer, context: Context) -> dict[str, Any]:
    """Return the ConfigMap that holds the NameServer's spec."""
    marks = name_server_labels(name_server)
    return _note(name_server, name_server_key(name_server.name)[1], marks, context)


def kept_name_server(name_server: NameServer, objects: Mapping[Key, Object]) -> NameServer | None:
    """Return the NameServer as its last valid spec wants it; ``None`` when that is not known."""
    model = _decoded(objects.get(name_server_key(name_server.name)), NameServerSpec)
    if model is None:
        return None
    wanted = model.model_copy(update={"suspend": name_server.spec.suspend})
    made: NameServer = name_server.model_copy(update={"spec": wanted})
    return made
