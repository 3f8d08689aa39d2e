"""Where rendered objects will live: the only thing that differs between cluster and laptop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from failback.operator.kinds.permits import Permits

Object = dict[str, Any]
"""One Kubernetes object, as JSON data."""

KUBERNETES_HOME: Final = "/home/rocketmq"
KUBERNETES_RUN_DIR: Final = "/run/failback"
POD_NAME: Final = "$(POD_NAME)"
"""Placeholder of the pod's name in templates that several pods share."""
_IMAGES: Final[Mapping[str, str]] = {
    "failback": "failback/broker",
    "namesrv": "failback/broker",
    "tools": "failback/broker",
    "apache": "apache/rocketmq",
}


@dataclass(frozen=True, slots=True)
class Context:
    """Names, folders and addresses of the place that will run the objects."""

    namespace: str
    home: Callable[[str], str]
    """Pod name → its home folder."""
    run_dir: Callable[[str], str]
    """Pod name → the folder of hold files and death records."""
    address_of: Callable[[str, str], str]
    """Pod name and headless Service → the host under which others reach the pod."""
    port_of: Callable[[str, str, int], int]
    """StatefulSet, port name (``remoting`` or ``http``) and default → the port number.

    The fast port is always 2 below ``remoting`` and the HA port 1 above it.
    """
    version: str
    """Release of Failback: default engine version and image tag. For existing objects it is the
    release that made them (:mod:`failback.operator.planning.state.running_engine`)."""
    own_version: str = ""
    """Release of the operator, where ``version`` is another one's."""
    pod_monitors: bool = False
    """Whether the PodMonitor CRD is served."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Engine, ``namesrv`` or ``tools`` → image that resources get when they name none; one
    without a tag gets the version."""
    permits: Permits | None = None
    """What resources may name; ``None`` = anything, where it has no effect."""
    external: Mapping[str, str] = field(default_factory=dict)
    """Member → host that its load balancer has, or that it announces until that is known."""

    def image(self, engine: str, version: str) -> str:
        """Return the image an engine runs from when the resource names none."""
        given = self.images.get(engine) or _IMAGES[engine]
        return given if ":" in given.rpartition("/")[2] else f"{given}:{version}"

    @property
    def tools_image(self) -> str:
        """The image of init containers."""
        return self.image("tools", self.version)


def kubernetes_context(
    namespace: str, version: str, *, domain: str = "cluster.local", pod_monitors: bool = False
) -> Context:
    """Return the context of a real cluster: fixed folders, DNS names, default ports."""
    return Context(
        namespace=namespace,
        home=lambda pod: KUBERNETES_HOME,
        run_dir=lambda pod: KUBERNETES_RUN_DIR,
        address_of=lambda pod, service: f"{pod}.{service}.{namespace}.svc.{domain}",
        port_of=lambda statefulset, name, default: default,
        version=version,
        pod_monitors=pod_monitors,
    )
