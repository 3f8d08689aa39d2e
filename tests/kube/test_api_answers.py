"""Whatever the API server answers, the operator reacts once, says so, and recovers alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.kube.test_reconcile import CHILDREN, CLUSTER, NAME_SERVER, create, events_of
from tests.support.common.polling import wait_until
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.kube_lab.proxy import MisbehavingProxy
from tests.support.operator.canonical_objects import canonical
from tests.support.operator.operator_process import OperatorProcess, condition_of, operator_identity


@contextmanager
def operator_behind(
    proxy: MisbehavingProxy, namespace: Namespace, **variables: str
) -> Iterator[OperatorProcess]:
    """Run an operator whose every request passes the proxy."""
    namespace.pretend_pods()
    identity = operator_identity(namespace, server=proxy.url)
    running = OperatorProcess(namespace, identity, **variables)
    try:
        running.start()
        running.wait_until_ready()
        yield running
    finally:
        running.process.dispose()


def all_children(namespace: Namespace) -> bool:
    found = canonical(namespace)
    return all(f"{kind}/{name}" in found for kind, name in CHILDREN)


MISBEHAVIOURS: dict[str, Callable[[MisbehavingProxy], object]] = {
    "500 before": lambda proxy: proxy.answer(500, verb="patch", times=3),
    "500 after": lambda proxy: proxy.answer(500, verb="patch", times=3, after=True),
    "503": lambda proxy: proxy.answer(503, verb="patch", times=3),
    "429": lambda proxy: proxy.answer(429, verb="patch", times=3, retry_after=1),
    "409 on the status": lambda proxy: proxy.answer(409, resource="brokerclusters/status", times=3),
    "404 on the status": lambda proxy: proxy.answer(404, resource="brokerclusters/status", times=1),
    "timeout before": lambda proxy: proxy.time_out(verb="patch", times=2),
    "timeout after": lambda proxy: proxy.time_out(verb="patch", times=2, after=True),
    "500 on reading": lambda proxy: proxy.answer(500, verb="get", times=3),
}
SAMPLED = ("500 after", "429", "409 on the status", "timeout after")
"""Of each kind the one that had more effect than was answered; the others are for `make soak`."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in SAMPLED else pytest.mark.soak)
        for name in MISBEHAVIOURS
    ],
)
def test_a_passing_trouble_changes_nothing_in_the_end(
    name: str, namespace: Namespace, node: NodeProcess, proxy: MisbehavingProxy
) -> None:
    with operator_behind(proxy, namespace, FAILBACK_API_TIMEOUT_SECONDS="1") as running:
        MISBEHAVIOURS[name](proxy)
        create(namespace, NAME_SERVER, CLUSTER)
        wait_until(lambda: all_children(namespace), "all children", 90)
        namespace.api.wait(
            "BrokerCluster", "orders", lambda item: condition_of(item, "Ready"), seconds=90
        )
        assert running.process.alive


@pytest.mark.parametrize("code", [403, 422])
def test_a_refusal_is_told_once_and_ends_when_it_ends(
    code: int, namespace: Namespace, node: NodeProcess, proxy: MisbehavingProxy
) -> None:
    with operator_behind(proxy, namespace) as running:
        proxy.answer(code, verb="patch", resource="statefulsets", times=10_000)
        create(namespace, NAME_SERVER, CLUSTER)
        found = namespace.api.wait(
            "BrokerCluster",
            "orders",
            lambda item: condition_of(item, "Ready").get("reason") == "ApplyFailed",
            seconds=60,
        )
        assert "statefulsets" in condition_of(found, "Ready")["message"]
        wait_until(lambda: running.get("/metrics").count('result="failed"') >= 1, "failed passes")
        wait_until(lambda: failed_passes(running) >= 3, "three failed passes", 60)
        told = [
            item
            for item in events_of(namespace)
            if item["reason"] == "ApplyFailed" and item["involvedObject"]["name"] == "orders"
        ]
        assert len(told) == 1
        proxy.calm()
        wait_until(lambda: all_children(namespace), "all children", 120)
        namespace.api.wait(
            "BrokerCluster",
            "orders",
            lambda item: condition_of(item, "Ready").get("reason") != "ApplyFailed",
            seconds=90,
        )


def failed_passes(running: OperatorProcess) -> float:
    """Return how many passes over clusters failed."""
    for line in running.get("/metrics").splitlines():
        if line.startswith("failback_operator_passes_total") and (
            'kind="BrokerCluster",result="failed"' in line
        ):
            return float(line.rpartition(" ")[2])
    return 0.0


def test_watches_that_end_or_lie_cost_nothing(
    namespace: Namespace, node: NodeProcess, proxy: MisbehavingProxy
) -> None:
    with operator_behind(proxy, namespace, FAILBACK_RESYNC_SECONDS="3"):
        proxy.watch_events(double=0.5, delay_seconds=0.5, seed=7)
        create(namespace, NAME_SERVER, CLUSTER)
        wait_until(lambda: all_children(namespace), "all children", 60)
        proxy.expire_watches()
        before = namespace.api.get("Service", "orders-brokers")["metadata"]["uid"]
        namespace.api.delete("Service", "orders-brokers")
        namespace.api.wait(
            "Service", "orders-brokers", lambda item: item["metadata"]["uid"] != before, seconds=90
        )
