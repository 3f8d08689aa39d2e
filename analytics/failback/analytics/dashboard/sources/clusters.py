"""Clusters before any broker is asked: names, addresses, where they run.

Local runtimes are found by their control socket, other clusters by their name servers. A runtime is
asked over its socket and never imported, because it belongs to another part of the product.
"""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from failback.analytics.dashboard.settings import DashboardSettings
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient

LOCAL, NAME_SERVER, KUBERNETES = "local", "name server", "kubernetes"
"""Sources of clusters."""
BrokerTable = Mapping[str, tuple[str, Mapping[int, str]]]
"""What name servers list: broker name: (cluster, address by broker id)."""
_ANSWER_SECONDS: Final = 3.0
_logger = logging.getLogger(__name__)
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class MemberRef:
    """One broker as its runtime or name server names it."""

    name: str
    broker_name: str
    address: str
    broker_id: int | None = None
    """As the name server lists it; a runtime knows ordinals, not roles."""
    state: str = ""
    """Of its pod; empty where it is not known."""
    http: str = ""
    """Health and metrics; empty for Apache's."""
    store: str = ""
    """Root of its store, if it is on this machine."""
    restarts: int = 0


@dataclass(frozen=True, slots=True)
class PairRef:
    """A master with its slaves."""

    name: str
    members: tuple[MemberRef, ...]
    slave_read_enable: bool | None = None
    """As a spec wants it, if there is one; brokers say what is."""


@dataclass(frozen=True, slots=True)
class ClusterRef:
    """One cluster."""

    key: str
    """Names it in URLs: letters, digits, dot, dash and underline."""
    name: str
    source: str
    """``LOCAL``, ``NAME_SERVER`` or ``KUBERNETES``."""
    where: str
    engine: str
    namesrv: tuple[str, ...]
    pairs: tuple[PairRef, ...]
    notes: tuple[str, ...] = ()

    @property
    def members(self) -> tuple[MemberRef, ...]:
        return tuple(member for pair in self.pairs for member in pair.members)


def clusters_of_view(view: Mapping[str, Any], root: str) -> list[ClusterRef]:
    """The clusters of a local runtime, from its answer to ``view``."""
    found = []
    for cluster in view.get("clusters", []):
        pairs = tuple(
            PairRef(str(pair["name"]), tuple(_member(each) for each in pair["members"]))
            for pair in cluster["pairs"]
        )
        found.append(
            ClusterRef(
                key=key_of(str(view.get("namespace") or "default"), str(cluster["name"])),
                name=str(cluster["name"]),
                source=LOCAL,
                where=root,
                engine=f"{cluster.get('engine', 'failback')} {cluster.get('version', '')}".strip(),
                namesrv=tuple(cluster.get("nameservers") or ()),
                pairs=pairs,
            )
        )
    return found


def _member(pod: Mapping[str, Any]) -> MemberRef:
    return MemberRef(
        name=str(pod["pod"]),
        broker_name=str(pod.get("broker_name") or pod.get("pair") or ""),
        address=str(pod["address"]),
        state=str(pod.get("state") or ""),
        http=str(pod.get("http") or ""),
        store=str(pod.get("store") or ""),
        restarts=int(pod.get("restarts") or 0),
    )


def clusters_of_table(
    brokers: BrokerTable, source: str, namesrv: Sequence[str]
) -> list[ClusterRef]:
    """The clusters that a name server lists."""
    clusters: dict[str, list[PairRef]] = {}
    for broker, (cluster, addresses) in sorted(brokers.items()):
        members = tuple(
            MemberRef(f"{broker}-{number}", broker, address, number)
            for number, address in sorted(addresses.items())
        )
        clusters.setdefault(cluster, []).append(PairRef(broker, members))
    where = ";".join(namesrv)
    return [
        ClusterRef(key_of(cluster, where), cluster, source, where, "", tuple(namesrv), tuple(pairs))
        for cluster, pairs in sorted(clusters.items())
    ]


def remember_members(known: ClusterRef | None, now: ClusterRef) -> ClusterRef:
    """Keep brokers that a name server listed before: a dead master leaves the list, not the pair.

    A member whose broker id another address has taken is gone for good.
    """
    if known is None or now.source != NAME_SERVER:
        return now  # others say themselves what belongs to them
    before = {pair.name: pair for pair in known.pairs}
    pairs = []
    for pair in now.pairs:
        ids = {member.broker_id for member in pair.members}
        addresses = {member.address for member in pair.members}
        old = before.pop(pair.name, PairRef(pair.name, ()))
        gone = [
            replace(member, state="Gone")
            for member in old.members
            if member.broker_id not in ids and member.address not in addresses
        ]
        members = sorted((*pair.members, *gone), key=lambda each: each.broker_id or 0)
        pairs.append(PairRef(pair.name, tuple(members)))
    for pair in before.values():
        gone = [replace(member, state="Gone") for member in pair.members]
        pairs.append(PairRef(pair.name, tuple(gone)))
    return replace(now, pairs=tuple(sorted(pairs, key=lambda pair: pair.name)))


def with_known(listed: Sequence[ClusterRef], known: Iterable[ClusterRef]) -> list[ClusterRef]:
    """Add clusters of which no broker is listed any more: they are down, not gone."""
    keys = {each.key for each in listed}
    return [*listed, *(replace(each, pairs=()) for each in known if each.key not in keys)]


def key_of(*parts: str) -> str:
    """A name for URLs."""
    return _UNSAFE.sub("-", ".".join(parts)).strip(".-")[:120] or "cluster"


def unique(clusters: Iterable[ClusterRef]) -> list[ClusterRef]:
    """Give clusters of the same key a number each, in order."""
    seen: dict[str, int] = {}
    found = []
    for cluster in clusters:
        number = seen[cluster.key] = seen.get(cluster.key, 0) + 1
        found.append(cluster if number == 1 else replace(cluster, key=f"{cluster.key}.{number}"))
    return found


def runtime_roots(settings: DashboardSettings) -> list[Path]:
    """Return roots that may have a live runtime: those named, and those of demos."""
    below = sorted(path.parent for path in settings.runs.glob("*/roots/*/control.json"))
    return list(dict.fromkeys([*settings.roots, *below]))


def ask_runtime(root: Path, command: str = "view") -> dict[str, Any] | None:
    """Send a command to the runtime of ``root``; ``None`` if there is none. Blocks."""
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
    """Return the clusters of every local runtime that answers. Blocks."""
    views = {root: ask_runtime(root) for root in runtime_roots(settings)}
    return [
        cluster
        for root, view in views.items()
        for cluster in (clusters_of_view(view, str(root)) if view is not None else ())
    ]


async def registered(namesrv: tuple[str, ...], client: RemotingClient) -> BrokerTable:
    """Return the brokers that name servers list. Raises what the admin client raises."""
    milliseconds = _ANSWER_SECONDS * 1000
    admin = AdminClient(namesrv, client=client, timeout_ms=milliseconds, say=_logger.debug)
    table = (await admin.cluster_info()).broker_addr_table
    return {name: (data.cluster, data.broker_addrs) for name, data in table.items()}
