"""The operator's settings: one environment variable each, read once at start."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import version as package_version
from pathlib import Path
from typing import Final

from failback.operator.kinds.permits import Permits, read_permits
from failback.protocol.errors import FailbackError

MANAGER: Final = "failback-operator"
"""The field manager of everything that the operator writes, and its name in requests."""
IMAGE_VARIABLES: Final = {
    "failback": "FAILBACK_IMAGE_BROKER",
    "namesrv": "FAILBACK_IMAGE_NAMESRV",
    "tools": "FAILBACK_IMAGE_TOOLS",
    "chaos": "FAILBACK_IMAGE_CHAOS",
    "spark": "FAILBACK_IMAGE_SPARK",
    "apache": "FAILBACK_IMAGE_APACHE",
}


class SettingError(FailbackError):
    """An environment variable has a value that means nothing."""

    def __init__(self, name: str, value: str, expected: str) -> None:
        super().__init__(f'{name} must be {expected}, got "{value}"')


@dataclass(frozen=True, slots=True)
class Settings:
    """All that can be set about an operator process."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to watch; empty = the whole cluster."""
    version: str = ""
    """This release: default engine version and image tag."""
    domain: str = "cluster.local"
    resync_seconds: float = 60.0
    """A pass happens at least so often."""
    admin_timeout_seconds: float = 2.0
    """A broker or name server that does not answer for so long is unknown."""
    api_timeout_seconds: float = 10.0
    leader_election: bool = False
    lease_namespace: str = "default"
    lease_name: str = MANAGER
    """Operators that share this Lease take turns; those of two releases do not."""
    identity: str = ""
    """Name of this process in the Lease."""
    http_host: str = "0.0.0.0"
    http_port: int = 8080
    """``/healthz``, ``/readyz`` and ``/metrics``; 0 = any free port."""
    log_format: str = "json"
    log_level: str = "INFO"
    watch_crds: bool = False
    """Whether kopf may list and watch CustomResourceDefinitions."""
    pod_monitors: bool = False
    """Whether this operator may make PodMonitors."""
    spark_operator: bool = False
    """Whether this operator may make SparkApplications."""
    access_folder: Path | None = None
    """Folder of the keys by which guarded clusters are asked; ``None``: there are none."""
    poll_scale: float = 1.0
    """Multiplies the periods at which brokers and name servers are asked."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Images that resources get when they name none, by engine or purpose."""
    permits: Permits = field(default_factory=Permits)
    """What resources may name."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """All variables with our prefix: planners of jobs find their own there."""


def read_settings(environment: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of this process.

    Raises:
        SettingError: A variable has a value that means nothing.
    """
    given = dict(os.environ if environment is None else environment)
    own = {key: value for key, value in given.items() if key.startswith("FAILBACK_")}
    namespaces = own.get("FAILBACK_WATCH_NAMESPACES", "").replace(" ", "")
    return Settings(
        namespaces=tuple(filter(None, namespaces.split(","))),
        version=own.get("FAILBACK_VERSION") or package_version("failback"),
        domain=own.get("FAILBACK_CLUSTER_DOMAIN") or "cluster.local",
        resync_seconds=_number(own, "FAILBACK_RESYNC_SECONDS", 60.0),
        admin_timeout_seconds=_number(own, "FAILBACK_ADMIN_TIMEOUT_SECONDS", 2.0),
        api_timeout_seconds=_number(own, "FAILBACK_API_TIMEOUT_SECONDS", 10.0),
        leader_election=_switch(own, "FAILBACK_LEADER_ELECTION"),
        lease_namespace=own.get("FAILBACK_NAMESPACE") or given.get("POD_NAMESPACE") or "default",
        lease_name=own.get("FAILBACK_LEASE_NAME") or MANAGER,
        identity=given.get("POD_NAME") or f"{given.get('HOSTNAME', 'operator')}-{os.getpid()}",
        http_host=own.get("FAILBACK_HTTP_HOST") or "0.0.0.0",
        http_port=int(_number(own, "FAILBACK_HTTP_PORT", 8080, least=0)),
        log_format=_choice(own, "FAILBACK_LOG_FORMAT", "json", ("json", "text")),
        log_level=_choice(own, "FAILBACK_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR")),
        watch_crds=_switch(own, "FAILBACK_WATCH_CRDS"),
        pod_monitors=_switch(own, "FAILBACK_POD_MONITORS"),
        spark_operator=_switch(own, "FAILBACK_SPARK_OPERATOR"),
        access_folder=Path(folder) if (folder := own.get("FAILBACK_ACCESS_FOLDER")) else None,
        poll_scale=_number(own, "FAILBACK_POLL_SCALE", 1.0),
        images={purpose: own[name] for purpose, name in IMAGE_VARIABLES.items() if own.get(name)},
        permits=read_permits(own),
        environment=own,
    )


def _number(own: Mapping[str, str], name: str, default: float, *, least: float = 0.01) -> float:
    text = own.get(name, "")
    if not text:
        return float(default)
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value < float("inf"):
        raise SettingError(name, text, "a number above 0")
    return value


def _switch(own: Mapping[str, str], name: str) -> bool:
    return _choice(own, name, "false", ("true", "false")) == "true"


def _choice(own: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    text = own.get(name) or default
    for word in allowed:
        if word.lower() == text.lower():
            return word
    raise SettingError(name, text, " or ".join(allowed))
