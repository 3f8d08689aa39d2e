"""Which pods a cluster has, and where its brokers are, by its objects alone. Pure.

Members come from the BrokerCluster, so that one without a pod is still a member. The address here
is what the operator rendered; a broker that answers knows better.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from failback.chaos.cluster.view import DeathRecord, Stamp

Object = Mapping[str, Any]

CONTAINER: Final = "broker"
HOLD_ANNOTATION: Final = "failback.dev/hold-member"
_LISTEN_PORT: Final = 10911
_SIGNAL_BASE: Final = 128
_SIGNALS: Final = frozenset(signal.Signals)
_OUT_OF_MEMORY: Final = "OOMKilled"


@dataclass(frozen=True, slots=True)
class Place:
    """One member of the cluster and its pod, if there is one."""

    index: int
    ordinal: int
    pod: str
    broker_name: str
    address: str
    manifest: Object | None

    @property
    def uid(self) -> str:
        return str(self.manifest["metadata"]["uid"]) if self.manifest else ""


def places(cluster: Object, pods: Sequence[Object], domain: str) -> list[Place]:
    """Return all members in order of pair and ordinal."""
    spec, name = cluster["spec"], cluster["metadata"]["name"]
    prefix = spec.get("brokerNamePrefix") or name
    by_name = {pod["metadata"]["name"]: pod for pod in pods}
    found = []
    for index, ordinal in _wanted(spec):
        pod = f"{name}-{index}-{ordinal}-0"
        manifest = by_name.get(pod)
        address = _address(cluster, pod, index, ordinal, manifest, domain)
        found.append(Place(index, ordinal, pod, f"{prefix}-{index}", address, manifest))
    return found


def _wanted(spec: Object) -> Iterator[tuple[int, int]]:
    overrides = {each["index"]: each for each in spec.get("pairOverrides") or ()}
    for index in range(spec.get("pairs", 1)):
        slaves = overrides.get(index, {}).get("slavesPerPair", spec.get("slavesPerPair", 1))
        for ordinal in range(1 + slaves):
            yield index, ordinal


def _address(
    cluster: Object, pod: str, index: int, ordinal: int, manifest: Object | None, domain: str
) -> str:
    name, namespace = cluster["metadata"]["name"], cluster["metadata"]["namespace"]
    networking = cluster["spec"].get("networking") or {}
    external = cluster["spec"].get("external") or {}
    port = networking.get("listenPort", _LISTEN_PORT)
    if "firstNodePort" in external:
        port = external["firstNodePort"] + 16 * index + 4 * ordinal
    host = f"{pod}.{name}-brokers.{namespace}.svc.{domain}"
    match networking.get("brokerAddress", "DNS").lower():
        case "podip":
            host = (manifest or {}).get("status", {}).get("podIP") or host
        case "external":
            host = str(networking["externalTemplate"])
            words = {"cluster": name, "pair": index, "ordinal": ordinal, "namespace": namespace}
            for word, value in words.items():
                host = host.replace(f"{{{word}}}", str(value))
    return f"{host}:{port}"


def broker_container(pod: Object) -> Object:
    """Return the broker's container as the pod's spec has it; empty when there is none."""
    containers = pod["spec"].get("containers") or ()
    return next((each for each in containers if each["name"] == CONTAINER), {})


def member_name(pod: str, cluster: Object) -> str:
    """Return how ``failback.dev/hold-member`` names the member of a pod of ours."""
    prefix = cluster["spec"].get("brokerNamePrefix") or cluster["metadata"]["name"]
    index, ordinal = pod.rsplit("-", 3)[1:3]
    return f"{prefix}-{index}-{ordinal}"


def container_of(pod: Object | None) -> Object:
    """Return the status of the broker's container; empty while there is none."""
    statuses = (pod or {}).get("status", {}).get("containerStatuses") or ()
    return next((each for each in statuses if each.get("name") == CONTAINER), {})


def container_id(pod: Object | None) -> str:
    """The incarnation of the broker's container; empty while it has none."""
    return str(container_of(pod).get("containerID") or "")


def image_id(pod: Object | None) -> str:
    """The image that the broker's container runs, with its digest; empty while that is unknown."""
    return str(container_of(pod).get("imageID") or "")


def is_running(pod: Object | None) -> bool:
    """Whether something can be run inside the broker's container."""
    return "running" in (container_of(pod).get("state") or {})


def platform_state(pod: Object | None) -> str:
    """The platform's own word for a pod, as far as its status goes."""
    if pod is None:
        return "Gone"
    if pod["metadata"].get("deletionTimestamp"):
        return "Stopping"
    status = container_of(pod)
    state = status.get("state") or {}
    if "running" in state:
        return "Ready" if status.get("ready") else "Running"
    if "terminated" in state:
        return "BackOff"
    waiting = str((state.get("waiting") or {}).get("reason") or "")
    return "BackOff" if waiting == "CrashLoopBackOff" else "Starting"


def ended(pod: Object, container: str) -> Object | None:
    """How exactly this incarnation of the container ended, ``None`` when it has not."""
    status = container_of(pod)
    for state in (status.get("state") or {}, status.get("lastState") or {}):
        found: Object | None = state.get("terminated")
        if found is not None and found.get("containerID") == container:
            return found
    return None


def death_of_container(terminated: Object, pid: int, ticks: int, seen: Stamp) -> DeathRecord:
    """A death by the container's exit code: that of the broker, 128 + n for signal n.

    A JVM that could not start ends with 253 to 255, which is no signal.
    """
    code = int(terminated.get("exitCode", 0))
    by_signal = code - _SIGNAL_BASE in _SIGNALS
    signum = terminated.get("signal") or (code - _SIGNAL_BASE if by_signal else None)
    return DeathRecord(
        pid,
        ticks,
        int(signum) if signum is not None else None,
        None if signum is not None else code,
        seen,
        doubt_of_container(terminated),
    )


def doubt_of_container(terminated: Object | None) -> str:
    """Why an end was not the signal's doing; empty when the platform names nothing else."""
    reason = (terminated or {}).get("reason")
    return "the container ran out of memory" if reason == _OUT_OF_MEMORY else ""


def last_end(pod: Object) -> Object | None:
    """How the incarnation of the container before this one ended, ``None`` when it is the first."""
    found: Object | None = (container_of(pod).get("lastState") or {}).get("terminated")
    return found


def deletion_of(pod: Object) -> str:
    """Say that a pod is being deleted; empty while it is not."""
    deleted = pod["metadata"].get("deletionTimestamp")
    return f"its pod was being deleted since {deleted}" if deleted else ""


def held_members(cluster: Object) -> list[str]:
    """Names in the annotation ``failback.dev/hold-member``."""
    text = (cluster["metadata"].get("annotations") or {}).get(HOLD_ANNOTATION, "")
    return [each.strip() for each in text.split(",") if each.strip()]


def with_hold(cluster: Object, member: str, *, on: bool) -> str | None:
    """The annotation with or without a member; ``None`` when no member is held any more."""
    rest = [each for each in held_members(cluster) if each != member]
    return ",".join([*rest, member] if on else rest) or None


Numbered = tuple[int, str, DeathRecord]


class DeathBook:
    """Remembers which containers were asked, and every death once. Not thread-safe."""

    def __init__(self) -> None:
        self._asked: dict[str, tuple[str, str]] = {}
        self._deaths: list[Numbered] = []
        self._known: set[tuple[str, str, int, int]] = set()

    def is_news(self, pod: str, uid: str, container: str) -> bool:
        """Whether this incarnation of the pod's container has not been asked yet."""
        return self._asked.get(pod) != (uid, container)

    def add(
        self, pod: str, uid: str, container: str, heard: Sequence[DeathRecord], at: Stamp
    ) -> None:
        """Take the deaths of one container. A pod of another uid took its records along."""
        before = self._asked.get(pod)
        if before is not None and before[0] != uid:
            self._append(pod, DeathRecord(0, 0, None, None, at, "its pod was replaced"))
        self._asked[pod] = (uid, container)
        for death in heard:
            key = (pod, uid, death.pid, death.ticks)
            if key not in self._known:
                self._known.add(key)
                self._append(pod, death)

    def since(self, number: int) -> list[Numbered]:
        """All deaths with a higher number."""
        return self._deaths[number:]

    def _append(self, pod: str, death: DeathRecord) -> None:
        self._deaths.append((len(self._deaths) + 1, pod, death))
