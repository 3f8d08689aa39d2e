"""Finds clusters: local runtimes by their control socket, name servers, Kubernetes objects.

A runtime is asked over its socket, never imported: it belongs to another part of the product.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from failback.analytics.dashboard.clusters import (
    ClusterRef,
    clusters_of_table,
    clusters_of_view,
)
from failback.analytics.dashboard.settings import DashboardSettings
from failback.client.admin import AdminClient
from failback.client.connection import RemotingClient

logger = logging.getLogger(__name__)

_ANSWER_SECONDS: Final = 3.0
_GROUP: Final = "failback.dev"
_VERSION: Final = "v1alpha1"


def runtime_roots(settings: DashboardSettings) -> list[Path]:
    """Roots that may have a live runtime: those named, and those of demos below the runs."""
    below = sorted(path.parent for path in settings.runs.glob("*/roots/*/control.json"))
    return list(dict.fromkeys([*settings.roots, *below]))


def ask_runtime(root: Path, command: str = "view") -> dict[str, Any] | None:
    """One command to the runtime of ``root``; ``None`` when none lives there. Blocks."""
    try:
        control = json.loads((root / "control.json").read_bytes())
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(control["socket"])
            connection.sendall(json.dumps({"cmd": command}).encode() + b"\n")
            with connection.makefile("rb") as answers:
                reply = json.loads(answers.readline())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return reply if isinstance(reply, dict) and reply.get("ok") else None


def local_clusters(settings: DashboardSettings) -> list[ClusterRef]:
    """The clusters of every local runtime that answers. Blocks."""
    return list(_of_roots(runtime_roots(settings)))


def _of_roots(roots: list[Path]) -> Iterator[ClusterRef]:
    for root in roots:
        view = ask_runtime(root)
        if view is not None:
            yield from clusters_of_view(view, str(root))


async def named_clusters(
    namesrv: tuple[str, ...], client: RemotingClient, source: str = "name server"
) -> list[ClusterRef]:
    """The clusters that name servers list. Raises what the admin client raises."""
    admin = AdminClient(namesrv, client=client, timeout_ms=_ANSWER_SECONDS * 1000)
    table = (await admin.cluster_info()).broker_addr_table
    brokers = {name: (data.cluster, data.broker_addrs) for name, data in table.items()}
    return clusters_of_table(brokers, source, namesrv)


def kubernetes_name_servers(settings: DashboardSettings) -> list[tuple[tuple[str, ...], list[str]]]:
    """Name servers of a namespace's clusters, each with what its BrokerClusters say. Blocks.

    Raises:
        Exception: The API server cannot be asked; what the Kubernetes client says.
    """
    from kubernetes import client, config

    loader: Any = config
    if settings.kubeconfig is not None:
        loader.load_kube_config(str(settings.kubeconfig))
    else:
        loader.load_config()
    api: Any = client.CustomObjectsApi()

    def items(plural: str) -> list[dict[str, Any]]:
        found = api.list_namespaced_custom_object(
            _GROUP, _VERSION, settings.kube_namespace, plural, _request_timeout=_ANSWER_SECONDS
        )
        listed: list[dict[str, Any]] = found["items"]
        return listed

    addresses = {
        each["metadata"]["name"]: tuple((each.get("status") or {}).get("addresses") or ())
        for each in items("nameservers")
    }
    found: dict[tuple[str, ...], list[str]] = {}
    for cluster in items("brokerclusters"):
        spec = cluster.get("spec") or {}
        reference = (spec.get("nameServerRef") or {}).get("name", "")
        where = addresses.get(reference) or tuple(spec.get("nameServerAddresses") or ())
        if where:
            found.setdefault(where, []).extend(notes_of(cluster))
    return list(found.items())


def notes_of(cluster: dict[str, Any]) -> list[str]:
    """The conditions of a BrokerCluster that are not as they should be, as sentences."""
    name = cluster["metadata"]["name"]
    return [
        f"{name}: {each['type']} is {each['status']}: {each.get('message', '')}"
        for each in (cluster.get("status") or {}).get("conditions") or ()
        if each["status"] == "False" and each["type"] not in {"Paused", "Progressing"}
    ]
