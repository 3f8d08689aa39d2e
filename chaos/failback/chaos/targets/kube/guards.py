"""When a cluster on Kubernetes must not be touched, judged from its objects. Pure.

Each function raises ``GuardRefused`` or says nothing. They are asked before a run and again before
each of its faults.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from failback.chaos.cluster.target import Injection
from failback.chaos.errors import GuardRefused
from failback.chaos.targets.kube.members import broker_container

Object = Mapping[str, Any]

NAMESPACE_LABEL: Final = "failback.dev/chaos-allowed"
CONSENT: Final[Mapping[str, str]] = {"swap-roles": "role-swap"}
"""Faults that need consent, and the word for it; the same in
``failback.operator.planning.jobs.guards``."""
_NEEDED: Final = ("Ready", "RolesConsistent")


def require_label(namespace: str, labels: Mapping[str, str]) -> None:
    """The namespace allows chaos."""
    if labels.get(NAMESPACE_LABEL) != "true":
        why = f"namespace {namespace} has no label {NAMESPACE_LABEL}=true"
        raise GuardRefused("NotAllowed", why)


def require_steady_cluster(cluster: Object) -> None:
    """The cluster is ready, its roles are consistent and nothing is being done to it."""
    name, status = cluster["metadata"]["name"], cluster.get("status") or {}
    conditions = {each["type"]: each for each in status.get("conditions") or ()}
    for kind in _NEEDED:
        found = conditions.get(kind)
        if found is None:
            raise GuardRefused("ClusterBusy", f"cluster {name} has no condition {kind} yet")
        if found["status"] != "True":
            why = f"{kind} is {found['status']} ({found.get('reason', '')})"
            raise GuardRefused("ClusterBusy", f"cluster {name}: {why}")
    operation = status.get("currentOperation")
    if operation:
        raise GuardRefused("ClusterBusy", f"cluster {name}: {operation['type']} is in progress")


def require_survivable_pause(pods: Sequence[Object], injection: Injection) -> None:
    """A frozen broker must not be ended by its liveness probe: that would be another fault."""
    if injection.fault != "pause":
        return
    for pod in pods:
        window = liveness_window(pod)
        if window is not None and injection.seconds > window:
            raise GuardRefused(
                "LivenessWindow",
                f"a pause of {injection.seconds:g} s is longer than the liveness window of "
                f"{window:g} s of {pod['metadata']['name']}: set lifecycle.livenessProbe: false",
            )


def liveness_window(pod: Object) -> float | None:
    """Seconds until the kubelet ends a broker that does not answer; ``None`` without a probe."""
    probe = broker_container(pod).get("livenessProbe")
    if not probe:
        return None
    return float(probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3))


def require_consent(injection: Injection) -> None:
    """Refuse a fault that the cluster's owner has not agreed to."""
    word = CONSENT.get(injection.fault)
    if word is not None and word not in injection.consent:
        raise GuardRefused("Consent", f"{injection.fault} needs guard.consent: [{word}]")
