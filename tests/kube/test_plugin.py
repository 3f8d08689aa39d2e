"""The kubectl plugin against a real API server: what it shows, and the orders it gives."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.setup_kube import fetch_tools

from tests.kube.test_switch import GROUP, SENT, TOPIC, consume, send
from tests.support.common.polling import SCALE, wait_until
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.gitops import health
from tests.support.operator.kubectl_plugin import answer, plugin
from tests.support.operator.operator_process import condition_of, is_true, operator
from tests.support.operator.quick_pair import QUICK, QuickPair

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def pair(control_plane: ControlPlane, node: NodeProcess) -> Iterator[QuickPair]:
    """One pair with a topic and a group, all of whose messages are consumed."""
    namespace = Namespace(control_plane)
    try:
        with operator(namespace, **QUICK):
            found = QuickPair(namespace)
            found.create()
            found.create_topic(TOPIC, GROUP)
            yield found
    finally:
        namespace.clean_up()


def test_kubectl_finds_the_plugin_and_it_shows_a_healthy_cluster(pair: QuickPair) -> None:
    assert health(pair.wait_settled()) == ("Healthy", "AllReady: every pair has a writable master")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shown = subprocess.run(
        [str(fetch_tools() / "kubectl"), "failback", "status", "orders"],
        env={**os.environ, "PATH": path, "KUBECONFIG": str(pair.namespace.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "Ready (AllReady)" in shown.stdout
    (found,) = answer(pair.namespace, "status", "orders")["pairs"]
    assert [each["role"] for each in found["members"]] == ["ASYNC_MASTER", "SLAVE"]
    code, said, _ = plugin(pair.namespace, "why", "orders")
    assert (code, said.strip()) == (0, "BrokerCluster/orders: all is as wanted")
    code, _, problem = plugin(pair.namespace, "status", "order")
    assert code == 1
    assert 'did you mean "orders"?' in problem


@pytest.mark.soak
async def test_exposure_counts_what_the_tables_lack(pair: QuickPair) -> None:
    await send(pair, SENT)
    await consume(pair, lambda seen: len(seen) == SENT)
    key = f"{TOPIC}@{GROUP}"
    async with asyncio.timeout(60 * SCALE):
        while True:
            done, copied = await pair.offsets(0, key), await pair.offsets(1, key)
            if done == copied:
                break
            await asyncio.sleep(0.2)
    (found,) = answer(pair.namespace, "exposure", "orders", "--seconds", "6")["pairs"]
    assert [each["answered"] for each in found["members"]] == [True, True]
    (group,) = [each for each in found["groups"] if each["group"] == GROUP]
    assert (group["lag"], group["rate"]) == (SENT - sum(done.values()), 0)
    assert (group["after_return"], group["on_slave"]) == (0, 0)
    assert plugin(pair.namespace, "exposure", "orders", "--direct", "--seconds", "6")[0] == 0


def test_a_member_is_held_why_says_so_and_it_is_released(pair: QuickPair) -> None:
    pair.wait_settled()
    code, said, _ = plugin(pair.namespace, "hold", "orders", "orders-0-1")
    assert (code, said) == (0, "orders: held: orders-0-1\n")
    pair.api.wait("BrokerCluster", "orders", lambda item: not is_true("Ready")(item), seconds=60)
    held = pair.api.wait("BrokerCluster", "orders", is_true("Warning"), seconds=60)
    assert health(held) == ("Degraded", "SlaveDown: orders-0-1-0 is held")
    code, said, _ = plugin(pair.namespace, "why", "fbc/orders")
    assert "Warning is True, MemberHeld" in said
    assert "do:    take the annotation away" in said
    assert plugin(pair.namespace, "hold", "orders", "orders-0-7")[0] == 2
    code, said, _ = plugin(pair.namespace, "hold", "orders", "orders-0-1-0", "--release")
    assert (code, said) == (0, "orders: held: none\n")
    pair.wait_settled()


def test_a_switch_is_followed_to_its_end_and_a_refused_one_says_why(pair: QuickPair) -> None:
    pair.wait_settled()
    code, said, told = plugin(pair.namespace, "switch", "orders", "orders-0", "orders-0-1")
    assert code == 0, told
    assert "orders-0-1 is master, writes stood still for" in said
    assert "OpenWrites" in told
    pair.wait_settled()
    (found,) = answer(pair.namespace, "status", "orders")["pairs"]
    assert [each["role"] for each in found["members"]] == ["SLAVE", "ASYNC_MASTER"]
    code, said, _ = plugin(pair.namespace, "switch", "orders", "0", "0", "--forced")
    assert code == 4
    assert said.startswith("Preflight: ")
    (refused,) = [
        each
        for each in pair.api.list("RoleSwitch")
        if condition_of(each, "Failed").get("status") == "True"
    ]
    assert health(refused)[0] == "Degraded"
    (done,) = [each for each in pair.api.list("RoleSwitch") if is_true("Complete")(each)]
    assert health(done)[0] == "Healthy"
    code, said, _ = plugin(pair.namespace, "why", str(refused["metadata"]["name"]))
    assert "Failed is True, Preflight" in said
    wait_until(
        lambda: "all is as wanted" in plugin(pair.namespace, "why", "orders")[1],
        "a healthy cluster",
    )
