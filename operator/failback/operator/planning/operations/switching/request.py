"""What a RoleSwitch object asks for, and what its running operation remembers. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from failback.operator.kinds.base import API_VERSION
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.role_switch import RoleSwitchSpec
from failback.operator.planning.observed.observed import Object, ObservedCluster
from failback.operator.planning.operations.switching import snapshot
from failback.operator.planning.plan.encoding import from_time, to_time
from failback.operator.planning.plan.types import Operation
from failback.operator.planning.state.cluster_state import ClusterState

TYPE: Final = "RoleSwitch"
ENDED: Final = frozenset({"Complete", "Failed"})
"""Phases that a RoleSwitch does not leave."""
EXPERIMENT: Final = "failback.dev/experiment"
"""Label with the ChaosExperiment that made a RoleSwitch as one of its faults."""


@dataclass(frozen=True, slots=True)
class Request:
    """One RoleSwitch object."""

    name: str
    uid: str
    spec: RoleSwitchSpec
    created_at: float = 0.0
    deleted_at: float | None = None
    """Unix time of ``metadata.deletionTimestamp``."""
    phase: str = ""
    experiment: str = ""
    """Name of the ChaosExperiment that made it (label :data:`EXPERIMENT`)."""

    @classmethod
    def of(cls, found: Object) -> Request | None:
        """Read an object of the API server; ``None`` when its spec is none."""
        metadata = found["metadata"]
        try:
            spec = RoleSwitchSpec.model_validate(found.get("spec", {}))
        except ValidationError:
            return None
        return cls(
            name=metadata["name"],
            uid=metadata.get("uid", ""),
            spec=spec,
            created_at=from_time(metadata.get("creationTimestamp")) or 0.0,
            deleted_at=from_time(metadata.get("deletionTimestamp")),
            phase=(found.get("status") or {}).get("phase") or "",
            experiment=(metadata.get("labels") or {}).get(EXPERIMENT, ""),
        )

    @property
    def deadline(self) -> float:
        """Unix time after which a switch that has not begun does not begin."""
        return self.created_at + self.spec.timeout_seconds


def requests(cluster: BrokerCluster, observed: ObservedCluster) -> list[Request]:
    """Return the cluster's RoleSwitch objects, the oldest first."""
    found = [Request.of(item) for item in observed.role_switches]
    mine = [item for item in found if item and item.spec.cluster_ref.name == cluster.name]
    return sorted(mine, key=lambda item: (item.created_at, item.name))


def find(cluster: BrokerCluster, observed: ObservedCluster, uid: str) -> Request | None:
    """Return the RoleSwitch object of a uid, or ``None`` when it is gone."""
    return next((item for item in requests(cluster, observed) if item.uid == uid), None)


def reference(name: str, uid: str) -> dict[str, Any]:
    """Return the owner reference to a RoleSwitch; it names the object of an event too."""
    return {
        "apiVersion": API_VERSION,
        "kind": "RoleSwitch",
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def open_operation(
    state: ClusterState, request: Request, old_master: int, first_step: str
) -> Operation:
    """Return the operation of a request, with all that it needs to end without the object."""
    spec = request.spec
    return state.begin(
        TYPE,
        first_step,
        request.uid,
        pair=spec.pair,
        member=spec.target_member,
        data={
            "name": request.name,
            "experiment": request.experiment,
            "uid": request.uid,
            "from": old_master,
            "to": spec.target_member,
            "mode": spec.mode,
            "policy": spec.offset_policy,
            "maxLagBytes": spec.max_lag_bytes,
            "timeoutSeconds": spec.timeout_seconds,
            "onTimeout": spec.on_timeout,
            "snapshot": snapshot.name_of(request.name),
            "steps": [{"name": first_step, "startedAt": to_time(state.now)}],
            "unsafe": _unsafe_from_the_start(spec),
        },
    )


def _unsafe_from_the_start(spec: RoleSwitchSpec) -> list[str]:
    if spec.mode == "Forced":
        return ["Forced"]
    return ["OffsetPolicyNone"] if spec.offset_policy == "None" else []


def step_ended(
    steps: list[Mapping[str, Any]], evidence: Mapping[str, Any], following: str | None, now: float
) -> list[dict[str, Any]]:
    """Return the diary with its last step closed and the next one open."""
    found = [dict(step) for step in steps]
    if found and "finishedAt" not in found[-1]:
        found[-1]["finishedAt"] = to_time(now)
        if evidence:
            found[-1]["evidence"] = dict(evidence)
    if following is not None:
        found.append({"name": following, "startedAt": to_time(now)})
    return found
