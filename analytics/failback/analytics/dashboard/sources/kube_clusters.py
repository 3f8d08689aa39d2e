"""Clusters as the custom resources of namespaces have them, and what reads the resources.

Pairs and members come from the status of each BrokerCluster, so that a pair without any broker is
shown too; what the status leaves out comes from the name servers' table. All but
:class:`KubeReader` is pure.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.dashboard.sources.clusters import (
    KUBERNETES,
    BrokerTable,
    ClusterRef,
    MemberRef,
    PairRef,
    key_of,
)
from failback.common.text import install
from failback.kube.errors import ApiError
from failback.kube.resources import GROUP, VERSION
from failback.protocol.errors import ConfigError

Json = dict[str, Any]
HTTP_PORT: Final = 8088
"""Health and metrics of every broker of ours."""
_ANSWER_SECONDS: Final = 3.0
_WANTED_TRUE: Final = frozenset(
    {"Ready", "ConfigApplied", "RolesConsistent", "ReplicationHealthy", "MetadataSynced"}
)
_WORTH_KNOWING: Final = frozenset({"Warning", "Paused", "ScalingDown"})


@dataclass(frozen=True, slots=True)
class KubeView:
    """What was read last. ``problems`` are sentences; none when everything was read."""

    clusters: tuple[ClusterRef, ...] = ()
    problems: tuple[str, ...] = ()


def clusters_of_resources(
    servers: Sequence[Mapping[str, Any]], clusters: Sequence[Mapping[str, Any]], namespace: str
) -> tuple[ClusterRef, ...]:
    """The clusters of a namespace, from its NameServers and BrokerClusters as they are stored."""
    addresses = {
        str(each["metadata"]["name"]): tuple((each.get("status") or {}).get("addresses") or ())
        for each in servers
    }
    found = [_cluster(each, addresses, namespace) for each in clusters]
    return tuple(sorted(found, key=lambda each: each.where))


def _cluster(
    item: Mapping[str, Any], addresses: Mapping[str, tuple[str, ...]], namespace: str
) -> ClusterRef:
    name, spec = str(item["metadata"]["name"]), item.get("spec") or {}
    status = item.get("status") or {}
    reference = (spec.get("nameServerRef") or {}).get("name", "")
    engine = spec.get("engine") or {}
    kind = str(engine.get("type") or "Failback").lower()
    announced = str((spec.get("networking") or {}).get("brokerAddress") or "")
    own = kind == "failback" and announced.lower() != "external"
    pairs = tuple(
        PairRef(
            str(pair["name"]),
            tuple(
                _member(each, str(pair["name"]), with_http=own)
                for each in pair.get("members") or ()
            ),
            slave_read_enable=_slaves_may_be_read(spec, int(pair.get("index") or 0)),
        )
        for pair in status.get("pairs") or ()
    )
    return ClusterRef(
        key=key_of(namespace, name),
        name=str(spec.get("clusterName") or name),
        source=KUBERNETES,
        where=f"{namespace}/{name}",
        engine=f"{kind} {engine.get('version') or ''}".strip(),
        namesrv=addresses.get(reference) or tuple(spec.get("nameServerAddresses") or ()),
        pairs=pairs,
        notes=tuple(notes_of(item)),
    )


def _member(item: Mapping[str, Any], pair: str, *, with_http: bool) -> MemberRef:
    pod = str(item.get("pod") or f"{pair}-{item['ordinal']}-0")
    address = str(item.get("address") or "")
    number = item.get("brokerId")
    return MemberRef(
        name=pod,
        broker_name=pair,
        address=address or pod,
        broker_id=None if number is None else int(number),
        state="Ready" if item.get("ready") else "Unready",
        http=f"{address.rpartition(':')[0]}:{HTTP_PORT}" if with_http and address else "",
        restarts=int(item.get("restarts") or 0),
    )


def _slaves_may_be_read(spec: Mapping[str, Any], index: int) -> bool:
    """The wanted value, shown until a broker has answered with the real one."""
    for override in spec.get("pairOverrides") or ():
        if override.get("index") == index and override.get("slaveReadEnable") is not None:
            return bool(override["slaveReadEnable"])
    return bool(spec.get("slaveReadEnable"))


def notes_of(item: Mapping[str, Any]) -> list[str]:
    """The conditions that are not well, as sentences."""
    name = item["metadata"]["name"]
    found = []
    for each in (item.get("status") or {}).get("conditions") or ():
        kind, value = str(each.get("type")), str(each.get("status"))
        odd = value != "True" if kind in _WANTED_TRUE else value == "True"
        if odd and kind in _WANTED_TRUE | _WORTH_KNOWING:
            reason = f" ({each['reason']})" if each.get("reason") else ""
            found.append(f"{name}: {kind} is {value}{reason}: {each.get('message') or '–'}")
    return found


def with_registered(cluster: ClusterRef, table: BrokerTable) -> ClusterRef:
    """Add what name servers list of a cluster and its status does not.

    A status leaves out healthy members of many pairs, and knows no address where that is the
    pod's.
    """
    known = {pair.name: pair for pair in cluster.pairs}
    listed = {
        name: addresses
        for name, (owner, addresses) in table.items()
        if name in known or owner == cluster.name
    }
    pairs = []
    for name in sorted({*known, *listed}, key=lambda each: (len(each), each)):
        pair = known.get(name, PairRef(name, ()))
        pairs.append(_with_listed(pair, listed.get(name, {})))
    return replace(cluster, pairs=tuple(pairs))


def _with_listed(pair: PairRef, addresses: Mapping[int, str]) -> PairRef:
    members = [_with_address(each, addresses) for each in pair.members]
    taken = {each.address for each in members} | {
        addresses.get(each.broker_id, "") for each in members if each.broker_id is not None
    }
    members += [
        MemberRef(f"{pair.name}-{number}", pair.name, address, number)
        for number, address in sorted(addresses.items())
        if address not in taken
    ]
    return replace(pair, members=tuple(members))


def _with_address(member: MemberRef, addresses: Mapping[int, str]) -> MemberRef:
    number = member.broker_id
    if ":" in member.address or number is None or number not in addresses:
        return member
    return replace(member, address=addresses[number])


class KubeReader:
    """Reads the resources of some namespaces; keeps its connection and what it read last."""

    def __init__(self, settings: DashboardSettings) -> None:
        self._settings = settings
        self._api: Any = None
        self._read: dict[str, tuple[ClusterRef, ...]] = {}

    def look(self) -> KubeView:
        """Read them now. Blocks, for one thread at a time; what fails is in ``problems``."""
        problems: dict[str, None] = {}
        for namespace in self._settings.kube_namespaces:
            try:
                servers = self._list("NameServer", namespace)
                clusters = self._list("BrokerCluster", namespace)
            except Exception as error:
                # Any error of the Kubernetes client: pages say it, and go on with what was read.
                self.close()  # credentials may have been replaced
                problems[problem_of(error)] = None
                if not is_refusal(error):
                    break  # nobody answered: not for the next namespace either
            else:
                self._read[namespace] = clusters_of_resources(servers, clusters, namespace)
        read = (self._read.get(each, ()) for each in self._settings.kube_namespaces)
        return KubeView(tuple(chain.from_iterable(read)), tuple(problems))

    def close(self) -> None:
        """Let go of the connection; the next look makes another."""
        if self._api is not None:
            self._api.close()
            self._api = None

    def _list(self, kind: str, namespace: str) -> list[Json]:
        if self._api is None:
            self._api = _connect(self._settings.kubeconfig)
        found: list[Json] = self._api.list_all(kind, namespace)
        return found


def _connect(kubeconfig: Path | None) -> Any:
    from failback.kube.blocking import BlockingKube

    file = str(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG")
    # No retries: the next look is soon.
    return BlockingKube.connect(file, timeout_seconds=_ANSWER_SECONDS, retries=False)


def is_refusal(error: Exception) -> bool:
    """Whether the API server answered."""
    return isinstance(error, ApiError) and error.code != 0


def problem_of(error: Exception) -> str:
    """One sentence for the page."""
    if not isinstance(error, ApiError) or error.code == 0:
        said = error.message if isinstance(error, ApiError) else str(error)
        return f"Kubernetes cannot be asked: {said.partition(chr(10))[0]}"
    said = error.message or error.reason
    if error.code == 404:
        said = f"it has no {GROUP}/{VERSION} resources: {said}"
    return f"Kubernetes refuses ({error.code}): {said}"


def require_client() -> None:
    """Raise ``ConfigError`` when the Kubernetes client is not installed."""
    if importlib.util.find_spec("kubernetes") is None:
        raise ConfigError("--kube-namespace", f"needs {install('serve')}")
