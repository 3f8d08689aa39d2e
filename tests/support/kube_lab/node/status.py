"""What the API server is told about a pod. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.kube_lab.api import Object


@dataclass(slots=True)
class ContainerState:
    """One container as the node knows it; ``state`` and ``last`` are shaped as in the API."""

    name: str
    image: str
    sidecar: bool = False
    state: Object = field(default_factory=dict)
    last: Object = field(default_factory=dict)
    restarts: int = 0
    ready: bool = False
    started: bool = False
    container_id: str = ""

    def take_over(self, statuses: Iterable[Object]) -> None:
        """Count on from what a node process before this one told: its containers died with it."""
        for told in statuses:
            if told["name"] == self.name and told.get("containerID"):
                self.restarts = told["restartCount"] + 1
                self.last = {
                    "terminated": {
                        "exitCode": 137,
                        "reason": "ContainerStatusUnknown",
                        "containerID": told["containerID"],
                    }
                }

    @property
    def image_id(self) -> str:
        """The image with a digest, once it runs. One image has one digest; it is nobody's else."""
        digest = hashlib.sha256(self.image.encode()).hexdigest()
        return f"{self.image}@sha256:{digest}" if self.container_id else ""

    def waits(self, reason: str, message: str = "") -> None:
        """Go to ``waiting``; what ended before becomes the last state."""
        if "terminated" in self.state:
            self.last = self.state
        waiting = {"reason": reason, **({"message": message} if message else {})}
        self.state = {"waiting": waiting}
        self.ready = self.started = False

    def runs(self, container_id: str, now: str) -> None:
        """Go to ``running``."""
        if "terminated" in self.state:
            self.last = self.state
        self.state = {"running": {"startedAt": now}}
        self.container_id = container_id
        self.ready = self.started = False

    def ended(self, code: int, message: str, now: str) -> None:
        """Go to ``terminated``."""
        began = self.state.get("running", {}).get("startedAt", now)
        terminated: Object = {
            "exitCode": code,
            "reason": "Completed" if code == 0 else "Error",
            "startedAt": began,
            "finishedAt": now,
            "containerID": self.container_id,
        }
        if message:
            terminated["message"] = message
        self.state = {"terminated": terminated}
        self.ready = self.started = False

    @property
    def code(self) -> int | None:
        """The exit code when it has ended."""
        return self.state["terminated"]["exitCode"] if "terminated" in self.state else None

    def report(self) -> Object:
        """Return the entry of ``containerStatuses``."""
        found: Object = {
            "name": self.name,
            "image": self.image,
            "imageID": self.image_id,
            "state": self.state or {"waiting": {"reason": "PodInitializing"}},
            "lastState": self.last,
            "restartCount": self.restarts,
            "ready": self.ready,
            "started": self.started,
        }
        if self.container_id:
            found["containerID"] = self.container_id
        return found


def pod_status(
    pod: Object,
    inits: Sequence[ContainerState],
    containers: Sequence[ContainerState],
    *,
    phase: str,
    address: str,
    node_address: str,
    started: str,
    now: str,
) -> Object:
    """Return the status to report.

    Conditions keep their ``lastTransitionTime`` from ``pod`` unless they change; conditions of
    others, such as readiness gates, are read and not written.
    """
    old = {item["type"]: item for item in pod.get("status", {}).get("conditions") or ()}
    initialized = all(state.started if state.sidecar else state.code == 0 for state in inits)
    beside = [state for state in inits if state.sidecar]
    ready = phase == "Running" and all(state.ready for state in (*beside, *containers))
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates", ())]
    closed = [gate for gate in gates if old.get(gate, {}).get("status") != "True"]
    wanted = {
        "PodScheduled": (True, "", ""),
        "Initialized": (initialized or phase == "Succeeded", "ContainersNotInitialized", ""),
        "ContainersReady": (ready, *_why(phase, (*beside, *containers))),
        "Ready": (
            (ready and not closed),
            *(_why(phase, (*beside, *containers)) if not ready else _why_gates(closed)),
        ),
    }
    conditions = [
        _condition(kind, value, reason, message, old.get(kind), now)
        for kind, (value, reason, message) in wanted.items()
    ]
    found: Object = {
        "phase": phase,
        "conditions": conditions,
        "hostIP": node_address,
        "hostIPs": [{"ip": node_address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": started,
        "containerStatuses": [state.report() for state in containers],
        "qosClass": pod.get("status", {}).get("qosClass", "BestEffort"),
    }
    if inits:
        found["initContainerStatuses"] = [state.report() for state in inits]
    return found


def final_phase(containers: Iterable[ContainerState]) -> str:
    """Return the phase of a pod whose containers have all ended for good, whatever sidecars did."""
    codes = [state.code for state in containers if not state.sidecar]
    return "Failed" if any(code != 0 for code in codes) else "Succeeded"


def _why(phase: str, containers: Sequence[ContainerState]) -> tuple[str, str]:
    if phase in ("Succeeded", "Failed"):
        return ("PodCompleted" if phase == "Succeeded" else "PodFailed"), ""
    unready = [state.name for state in containers if not state.ready]
    return "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"


def _why_gates(closed: Sequence[str]) -> tuple[str, str]:
    if not closed:
        return "", ""
    return "ReadinessGatesNotReady", f'corresponding condition of pod readiness gate "{closed[0]}"'


def _condition(
    kind: str, value: bool, reason: str, message: str, old: Object | None, now: str
) -> Object:
    status = "True" if value else "False"
    since = now
    if old is not None and old.get("status") == status:
        since = old.get("lastTransitionTime", now)
    # Explicit nulls: a merge patch would keep the reason of a former state.
    told: dict[str, Any] = {"reason": None, "message": None}
    if not value:
        told = {"reason": reason or None, "message": message or None}
    return {"type": kind, "status": status, "lastTransitionTime": since, **told}
