"""Finds clusters: local runtimes by their control socket, others by their name servers.

A runtime is asked over its socket, never imported: it belongs to another part of the product.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources.clusters import BrokerTable, ClusterRef, clusters_of_view
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient

_ANSWER_SECONDS: Final = 3.0


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


async def registered(namesrv: tuple[str, ...], client: RemotingClient) -> BrokerTable:
    """What name servers list. Raises what the admin client raises."""
    admin = AdminClient(namesrv, client=client, timeout_ms=_ANSWER_SECONDS * 1000)
    table = (await admin.cluster_info()).broker_addr_table
    return {name: (data.cluster, data.broker_addrs) for name, data in table.items()}
