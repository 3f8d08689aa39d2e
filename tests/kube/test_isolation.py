"""One cluster's trouble is no other's; and a broker is known by its name, not by its address."""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

import pytest

from failback.client.admin.admin import AdminClient
from failback.protocol.errors import FailbackError
from tests.support.common.polling import SCALE, wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.kube_lab.proxy import MisbehavingProxy, Rule
from tests.support.net.ports import free_port
from tests.support.operator.operator_process import OperatorProcess, chart_rules, is_true, operator
from tests.support.operator.quick_pair import QUICK
from tests.support.operator.real_cluster import LivedCluster, unchanged_lives
from tests.support.operator.resources import resource

FOR_EVER = "3600"
"""Seconds that the operator under test waits for an answer: a pass that hangs stays hanging."""
TROUBLED = ("mute-servers", "mute-brokers", "slow")
NOBODY = "127.0.0.1:1026"
"""An address at which connections are refused at once."""
VERBS = ("get", "list", "create", "update", "patch", "delete")


class Silence:
    """A server that accepts every connection and never says a word."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_server((host, port), backlog=64)

    @property
    def is_asked(self) -> bool:
        """Whether somebody has connected."""
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        """Reset all connections."""
        self._socket.close()


class Watched:
    """What the operator's own metrics say about passes over clusters."""

    def __init__(self, running: OperatorProcess) -> None:
        self._running = running

    def _lines(self, name: str) -> Iterator[tuple[str, float]]:
        for line in self._running.get("/metrics").splitlines():
            if line.startswith(f"failback_operator_{name}{{"):
                labels, _, value = line.rpartition(" ")
                yield labels, float(value)

    def passes(self) -> float:
        """Return how many passes over clusters have ended."""
        found = self._lines("passes_total")
        return sum(value for labels, value in found if 'kind="BrokerCluster"' in labels)

    def age(self, namespace: Namespace, name: str) -> float:
        """Return how many seconds ago the last pass over a cluster ended."""
        wanted = f'kind="BrokerCluster",name="{name}",namespace="{namespace.name}"'
        found = [value for labels, value in self._lines("pass_age_seconds") if wanted in labels]
        assert len(found) == 1, wanted
        return found[0]


@pytest.fixture
def troubled(control_plane: ControlPlane, node: NodeProcess) -> Iterator[Namespace]:
    """A second namespace, whose pods are Ready without a process."""
    found = Namespace(control_plane)
    found.pretend_pods()
    try:
        yield found
    finally:
        found.clean_up()


def make_troubled(namespace: Namespace, name: str, server: str) -> list[str]:
    """Create a cluster that has this name server; return the addresses of its pods."""
    namespace.api.create(resource("BrokerCluster", name, nameServerAddresses=[server]))

    def address(item: Object) -> bool:
        return bool(item.get("status", {}).get("podIP"))

    pods = [namespace.api.wait("Pod", f"{name}-0-{n}-0", address, seconds=120) for n in (0, 1)]
    return [str(item["status"]["podIP"]) for item in pods]


@pytest.mark.soak
async def test_clusters_that_hang_delay_nobody(
    namespace: Namespace, troubled: Namespace, node: NodeProcess, proxy: MisbehavingProxy
) -> None:
    """Of one the name server is mute, of one the brokers, and of one the API server."""
    identity = namespace.identity("op", cluster_rules=chart_rules(namespace), server=proxy.url)
    settings = {
        **QUICK,
        "FAILBACK_ADMIN_TIMEOUT_SECONDS": FOR_EVER,
        "FAILBACK_API_TIMEOUT_SECONDS": FOR_EVER,
        "FAILBACK_WATCH_NAMESPACES": f"{namespace.name},{troubled.name}",
    }
    running = OperatorProcess(namespace, identity, **settings)
    with ExitStack() as stack:
        stack.callback(running.process.dispose)
        running.start()
        running.wait_until_ready()
        port = free_port()
        # Nobody listens yet: a first look that hung would make no pods.
        make_troubled(troubled, "mute-servers", f"127.0.0.1:{port}")
        pods = make_troubled(troubled, "mute-brokers", NOBODY)
        make_troubled(troubled, "slow", NOBODY)
        troubled.api.wait("PodDisruptionBudget", "slow-0")
        servers, brokers = Silence("127.0.0.1", port), [Silence(pod, 10911) for pod in pods]
        for item in (servers, *brokers):
            stack.callback(item.close)
        cluster = LivedCluster(namespace, pairs=1, slavesPerPair=1)
        cluster.wait_settled()
        # The slave is asked first; the master, if the slave was asked before it was mute.
        wait_until(
            lambda: servers.is_asked and any(item.is_asked for item in brokers),
            "questions to the mute",
            60,
        )

        hanging = {verb: hang(proxy, troubled, verb) for verb in VERBS}
        budget = {"podDisruptionBudget": {"enabled": False}}
        troubled.api.patch("BrokerCluster", "slow", {"spec": budget})
        wait_until(lambda: any(rule.hits for rule in hanging.values()), "a pass that hangs", 60)

        seen = Watched(running)
        begun, before = time.monotonic(), seen.passes()
        changes = (True, False, True)
        with unchanged_lives(cluster):
            for value in changes:
                cluster.change(slaveReadEnable=value)
                cluster.wait_settled()
        cluster.api.delete("Service", "orders-brokers")
        cluster.api.wait("Service", "orders-brokers")
        elapsed = time.monotonic() - begun
        # None of the three has ended a pass since then: all that were counted are the fourth's.
        assert min(seen.age(troubled, name) for name in TROUBLED) >= elapsed
        assert seen.passes() - before > len(changes)
        assert set((await cluster.answers("slaveReadEnable")).values()) == {"true"}

        for item in (servers, *brokers):
            item.close()
        proxy.calm()
        proxy.cut()
        for name in TROUBLED:
            wait_until(partial(has_passed, seen, troubled, name, elapsed), f"{name} to go on", 120)
        troubled.api.wait_gone("PodDisruptionBudget", "slow-0", seconds=120)


def hang(proxy: MisbehavingProxy, namespace: Namespace, verb: str) -> Rule:
    """Leave requests about a namespace without an answer from now on, watches excepted."""
    return proxy.time_out(times=-1, verb=verb, namespace=namespace.name)


def has_passed(seen: Watched, namespace: Namespace, name: str, seconds: float) -> bool:
    """Tell whether a pass over a cluster has ended within the last seconds."""
    return seen.age(namespace, name) < seconds


async def identities(cluster: LivedCluster) -> dict[str, Any]:
    """Return every address by which members are known: route, files, brokers, status."""
    async with AdminClient([cluster.name_server]) as admin:
        route = (await admin.cluster_info()).broker_addr_table
    keys = ("brokerIP1", "brokerIP2", "listenPort", "namesrvAddr")
    return {
        "route": {name: dict(item.broker_addrs) for name, item in route.items()},
        "files": {name: cluster.api.get("ConfigMap", name)["data"] for name in cluster.members()},
        "brokers": {key: await cluster.answers(key) for key in keys},
        "status": [
            [(item["pod"], item["address"]) for item in pair["members"]]
            for pair in cluster.read()["status"]["pairs"]
        ],
    }


@pytest.mark.soak
async def test_a_pod_that_moves_to_another_address_is_known_as_before(
    namespace: Namespace, node: NodeProcess
) -> None:
    with operator(namespace, **QUICK):
        cluster = LivedCluster(namespace, pairs=1, slavesPerPair=1)
        cluster.wait_settled()
        before = await identities(cluster)
        assert set(before["route"]["orders-0"].values()) == {
            cluster.address("orders-0-0"),
            cluster.address("orders-0-1"),
        }
        for pod in ("orders-0-1-0", "orders-0-0-0", "main-ns-0"):
            old = namespace.api.get("Pod", pod)["status"]["podIP"]
            namespace.api.delete("Pod", pod)
            namespace.api.wait("Pod", pod, partial(has_moved, old), seconds=180)
            await wait_known(cluster, before)
            cluster.wait_settled()


def has_moved(old: str, pod: Object) -> bool:
    """Tell whether a pod is ready at another address than the old one."""
    return is_true("Ready")(pod) and pod["status"].get("podIP") not in (None, old)


async def wait_known(cluster: LivedCluster, before: dict[str, Any]) -> None:
    """Wait until everybody is registered again; the addresses must be those of before."""
    found: dict[str, Any] = {}
    for _ in range(120):
        with suppress(FailbackError, OSError, TimeoutError):
            found = await identities(cluster)
        if found == before:
            return
        await asyncio.sleep(SCALE)
    assert found == before
