"""Bad input as a person meets it: kubectl against a real API server, an operator behind it."""

from __future__ import annotations

import pytest

from tests.kube.test_reconcile import CLUSTER, NAME_SERVER, create, wait_for_event
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator_process import condition_of, operator

pytestmark = pytest.mark.kube

HEAD = "apiVersion: failback.dev/v1alpha1\nkind: BrokerCluster\nmetadata: {name: orders}\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD + "spec: {pairs: [", "error converting YAML to JSON"),
        (
            HEAD + "spec: {nameServerRef: {name: main}, slaveReadEnabled: true}",
            'unknown field "spec.slaveReadEnabled"',
        ),
        (
            HEAD + "spec: {nameServerRef: {name: main}, masterRole: SYNC_MASTER, slavesPerPair: 0}",
            "SYNC_MASTER needs a slave",
        ),
        (
            HEAD + "spec: {nameServerRef: {name: main}, config: {brokerRole: SLAVE}}",
            "spec.config",
        ),
    ],
)
def test_kubectl_is_told_what_is_wrong(namespace: Namespace, text: str, words: str) -> None:
    done = namespace.kubectl("apply", "--validate=strict", "-f", "-", stdin=text, check=False)
    assert done.code != 0
    assert words in done.err
    assert namespace.api.list("BrokerCluster") == []


def test_volumes_do_not_shrink(namespace: Namespace) -> None:
    create(namespace, {**CLUSTER, "spec": {**CLUSTER["spec"], "storage": {"size": "30Gi"}}})
    smaller = '{"spec": {"storage": {"size": "20Gi"}}}'
    patch = ("patch", "brokerclusters.failback.dev", "orders", "--type=merge", "-p", smaller)
    done = namespace.kubectl(*patch, check=False)
    assert done.code != 0
    assert "spec.storage" in done.err


def test_a_value_that_only_the_catalogue_knows_to_be_wrong_makes_nothing(
    namespace: Namespace, node: NodeProcess
) -> None:
    namespace.pretend_pods()
    with operator(namespace):
        spec = {**CLUSTER["spec"], "config": {"fileReservedTime": "soon"}}
        create(namespace, NAME_SERVER, {**CLUSTER, "spec": spec})
        found = namespace.api.wait(
            "BrokerCluster",
            "orders",
            lambda item: condition_of(item, "Ready").get("reason") == "InvalidSpec",
        )
        words = 'config_keys spec.config: fileReservedTime: must be an integer, got "soon"'
        assert condition_of(found, "Ready")["message"] == words
        wait_for_event(namespace, "InvalidSpec")
        assert wait_for_event(namespace, "ConfigRejected")["message"] == words
        made = namespace.api.list("StatefulSet", labels="failback.dev/cluster=orders")
        assert made == []


def test_an_image_that_cannot_be_pulled_is_named_with_its_pod(
    namespace: Namespace, node: NodeProcess
) -> None:
    with operator(namespace):
        engine = {"type": "failback", "image": "failback/broker:does-not-exist"}
        create(namespace, NAME_SERVER, {**CLUSTER, "spec": {**CLUSTER["spec"], "engine": engine}})
        found = namespace.api.wait(
            "BrokerCluster",
            "orders",
            lambda item: condition_of(item, "Ready").get("reason") == "ImagePullError",
            seconds=120,
        )
        words = condition_of(found, "Ready")["message"]
        assert words.startswith("orders-0-0-0: failback/broker:does-not-exist: ")
