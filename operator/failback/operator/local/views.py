"""What the runtime reports: the control socket's view, state.json and status.json."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from failback.operator.kinds.base import Resource
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.local.pod import Pod
from failback.operator.local.process import Identity
from failback.operator.local.root import Root
from failback.operator.local.secrets import access_files
from failback.operator.local.status import PodFact, cluster_status, name_server_status
from failback.operator.render import common
from failback.operator.render.context import Context
from failback.operator.render.members import pod_name
from failback.operator.render.nameserver import addresses, statefulset_name
from failback.operator.render.objects import name_servers_of

Json = dict[str, Any]


class View:
    """One instant of a runtime, as JSON values."""

    def __init__(
        self, root: Root, items: Sequence[Resource], context: Context, pods: Mapping[str, Pod]
    ) -> None:
        self._root = root
        self._items = items
        self._context = context
        self._pods = pods

    def control(self) -> Json:
        """Return the answer to ``view``: clusters, pairs and pods, also those not made yet."""
        return {
            "namespace": self._context.namespace,
            "prober": next((pod.spec.prober for pod in self._pods.values()), ""),
            "clusters": [
                self._cluster(item) for item in self._items if isinstance(item, BrokerCluster)
            ],
            "nameserver_pods": [
                self._pod(
                    f"{statefulset_name(item)}-{index}",
                    kind="namesrv",
                    ordinal=index,
                    engine=item.spec.engine.program,
                )
                for item in self._items
                if isinstance(item, NameServer)
                for index in range(item.spec.replicas)
            ],
        }

    def state(self, stop_order: Sequence[Sequence[str]]) -> Json:
        """Return ``state.json``: what ``failback down`` needs when this runtime is gone."""
        me = Identity.of(os.getpid())
        return {
            "namespace": self._context.namespace,
            "runtime": {"pid": os.getpid(), "ticks": me.ticks if me else 0},
            "stop_order": [list(group) for group in stop_order],
            "pods": {
                name: {
                    "pid": pod.identity.pid if pod.identity else None,
                    "ticks": pod.identity.ticks if pod.identity else None,
                    "state": pod.state,
                    "reason": pod.reason,
                    "restarts": pod.restarts,
                    "grace_seconds": pod.spec.grace_seconds,
                }
                for name, pod in self._pods.items()
            },
        }

    def statuses(self, previous: Mapping[str, Any], now: str) -> Json:
        """Return ``status.json``: the status of every NameServer and BrokerCluster."""
        facts = {
            name: PodFact(
                pod.state, pod.ready, self.address(name), pod.restarts, carried=pod.carried
            )
            for name, pod in self._pods.items()
        }
        found: Json = {}
        for item in self._items:
            before = previous.get(item.label, {})
            if isinstance(item, NameServer):
                where = addresses(item, self._context)
                found[item.label] = name_server_status(item, where, facts, before, now)
            elif isinstance(item, BrokerCluster):
                found[item.label] = cluster_status(item, facts, before, now)
        return found

    def address(self, pod: str) -> str:
        """Return ``ip:port`` under which a pod serves requests."""
        statefulset = pod.rpartition("-")[0]
        host = self._context.address_of(pod, "")
        return f"{host}:{self._context.port_of(statefulset, 'remoting', 0)}"

    def _cluster(self, cluster: BrokerCluster) -> Json:
        pairs = []
        for index in range(cluster.spec.pairs):
            pair = cluster.pair(index)
            members = [
                self._pod(
                    pod_name(cluster, index, ordinal),
                    kind="broker",
                    ordinal=ordinal,
                    pair=pair.broker_name,
                    engine=cluster.spec.engine.program,
                )
                for ordinal in pair.ordinals
            ]
            pairs.append({"name": pair.broker_name, "index": index, "members": members})
        return {
            "name": cluster.name,
            "engine": cluster.spec.engine.program,
            "version": common.engine_version(cluster.spec.engine, self._context),
            "access": access_files(cluster, self._root),
            "nameservers": name_servers_of(cluster, self._items, self._context),
            "pairs": pairs,
        }

    def _pod(self, name: str, *, kind: str, ordinal: int, engine: str, pair: str = "") -> Json:
        pod = self._pods.get(name)
        identity = pod.identity if pod is not None else None
        statefulset = name.rpartition("-")[0]
        http = None
        if engine == "failback":
            host = self._context.address_of(name, "")
            http = f"{host}:{self._context.port_of(statefulset, 'http', 0)}"
        home = self._root.home(name)
        return {
            "pod": name,
            "kind": kind,
            "pair": pair,
            "ordinal": ordinal,
            "broker_name": pair,
            "address": self.address(name),
            "http": http,
            "pid": identity.pid if identity is not None else None,
            "ticks": identity.ticks if identity is not None else None,
            "state": pod.state if pod is not None else "Stopped",
            "reason": pod.reason if pod is not None else "not started yet",
            "faults": pod.faults.possible if pod is not None else [],
            "home": str(home),
            "store": str(home / "store") if kind == "broker" else "",
            "restarts": pod.restarts if pod is not None else 0,
            "log": str(self._root.log_file(name)),
            "network_namespace": pod.spec.network_namespace if pod is not None else "",
        }
