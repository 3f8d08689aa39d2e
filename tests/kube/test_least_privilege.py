"""The operator needs every right that the chart gives it, and no other.

One operator with exactly the chart's Role lives through all that needs a right; what it asked of
the API server is in the audit log. Each right is then taken from a copy of the Role, and the API
server refuses the same request. Another operator lacks some rights at first, names them, and goes
on once it has them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest

from tests.kube.optional_kinds import OPTIONAL, SETTINGS, names_of, optional_kinds
from tests.kube.test_experiment_mission import report_of
from tests.support.chaos.kube_cluster import allow, chaos_account, experiment_text
from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Api, Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.kube_lab.proxy import MisbehavingProxy
from tests.support.operator.operator_process import (
    OperatorProcess,
    chart_rules,
    condition_of,
    is_true,
    operator_identity,
)
from tests.support.operator.resources import resource
from tests.support.operator.rights import Right, asked, rights_of, without

pytestmark = pytest.mark.long

SCALE = {"failbackTimeScale": "0.1"}


def resources() -> list[Object]:
    """A pair with volumes, one without, one of the other engine; a topic and a group."""
    servers = {"nameServerRef": {"name": "main"}}
    owner = {"clusterRef": {"name": "demo"}}
    return [
        resource("NameServer", "main", replicas=1, config=SCALE),
        resource("BrokerCluster", "demo", **servers, slaveReadEnable=True, config=SCALE),
        resource("BrokerCluster", "bin", **servers, storage={"type": "Ephemeral"}, config=SCALE),
        resource(
            "BrokerCluster",
            "old",
            **servers,
            slavesPerPair=0,
            engine={"type": "Apache", "version": "4.9.8"},
        ),
        resource("Topic", "paid", **owner, deletionPolicy="Delete"),
        resource("SubscriptionGroup", "billing", **owner, deletionPolicy="Delete"),
    ]


CLAIM: Object = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "mine"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
KINDS = (
    "nameservers",
    "brokerclusters",
    "topics",
    "subscriptiongroups",
    "roleswitches",
    "offsetsnapshots",
    "chaosexperiments",
    "reconsumptionreports",
)


KILL = {
    "id": "f1",
    "fault": "kill",
    "at": 10,
    "target": {"pair": "demo-0", "role": "Master"},
    "with": {"downSeconds": 30},
}


@pytest.mark.soak
def test_every_right_is_needed_and_no_other(
    namespace: Namespace, node: NodeProcess, proxy: MisbehavingProxy, control_plane: ControlPlane
) -> None:
    for kind in KINDS:  # somebody else wrote: the operator reads the resource again
        proxy.answer(409, verb="patch", resource=f"{kind}/status")
    running = OperatorProcess(namespace, operator_identity(namespace, server=proxy.url))
    mark = control_plane.audit.mark()
    try:
        running.start()
        with node.further(namespace.name, "a", "b"):
            _live(namespace)
        refused = {
            (item.verb, item.resource)
            for item in control_plane.audit.requests(running.identity.user, since=mark)
            if item.code == 403
        }
        assert refused == {("get", "nodes")}, "a right that only rbac.readNodes gives"
    finally:
        running.process.dispose()
    given = chart_rules(namespace)
    needed = asked(control_plane.audit.requests(running.identity.user, since=mark))
    assert needed - rights_of(given) == {("", "nodes", "get")}
    assert rights_of(given) - needed == set()
    _each_is_refused_without(namespace, given, rights_of(given))


@pytest.fixture
def optional(control_plane: ControlPlane) -> Iterator[None]:
    """The kinds of others that the operator may make objects of."""
    with optional_kinds(control_plane):
        yield


@pytest.mark.soak
def test_rights_of_optional_kinds_come_with_them_and_each_is_needed(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane, optional: None
) -> None:
    namespace.pretend_pods()
    given = chart_rules(namespace, *SETTINGS)
    running = OperatorProcess(
        namespace,
        namespace.identity("op", given),
        FAILBACK_POD_MONITORS="true",
        FAILBACK_SPARK_OPERATOR="true",
        FAILBACK_RESYNC_SECONDS="2",
    )
    mark = control_plane.audit.mark()
    api, monitored = namespace.api, {"podMonitor": {"enabled": True}}
    try:
        running.start()
        running.wait_until_ready()
        api.create(resource("NameServer", "main", replicas=1, metrics=monitored))
        inputs = {"claimName": "mine", "runs": ["old/base-000"]}
        spark = {"engine": "Spark", "spark": {"mode": "SparkApplication"}}
        api.create(CLAIM)
        api.create(resource("ReconsumptionReport", "lab", inputs=inputs, **spark))
        wait_until(lambda: names_of(api, "podmonitors"), "a PodMonitor", 60)
        wait_until(lambda: names_of(api, "sparkapplications"), "a SparkApplication", 60)
        api.wait(
            "NameServer",
            "main",
            lambda item: condition_of(item, "Reconciling").get("status") == "False",
        )
        wait_until(lambda: _is_at_rest(control_plane, running), "four rounds without a write", 120)
        api.patch("NameServer", "main", {"spec": {"metrics": {"podMonitor": {"enabled": False}}}})
        wait_until(lambda: not names_of(api, "podmonitors"), "the end of the PodMonitor", 60)
    finally:
        running.process.dispose()
    extra = rights_of(given) - rights_of(chart_rules(namespace))
    needed = asked(control_plane.audit.requests(running.identity.user, since=mark))
    assert {right for right in needed if right[0] in OPTIONAL} == extra
    _each_is_refused_without(namespace, given, extra)


def _is_at_rest(control_plane: ControlPlane, running: OperatorProcess) -> bool:
    """Tell whether the operator goes through four of its rounds without a write."""
    mark = control_plane.audit.mark()
    time.sleep(8)
    return control_plane.audit.writes(since=mark, user=running.identity.user) == []


def _live(namespace: Namespace) -> None:
    """Let everything happen that needs a right."""
    api = namespace.api
    allow(namespace)
    chaos_account(namespace)
    for manifest in resources():
        api.create(manifest)
    for name in ("demo", "bin"):
        api.wait("BrokerCluster", name, is_true("Ready"), seconds=180)
    refused = {"podTemplate": {"priorityClassName": "of-nobody"}}
    api.create(resource("NameServer", "refused", **refused))
    says = lambda item: condition_of(item, "Ready").get("reason") == "PodRefused"  # noqa: E731
    api.wait("NameServer", "refused", says, seconds=60)
    api.create(resource("OffsetSnapshot", "kept", clusterRef={"name": "demo"}))
    api.wait("OffsetSnapshot", "kept", is_true("Ready"), seconds=60)
    api.create(json.loads(experiment_text([KILL], namespace)))
    api.create(report_of("lab"))
    mark_member(namespace, "bin", "force-resync-member", uid_of(api, "Pod", "bin-0-1-0"))
    injected = lambda item: item.get("status", {}).get("resolvedTargets")  # noqa: E731
    api.wait("ChaosExperiment", "lab", injected, seconds=240)
    api.delete("ChaosExperiment", "lab")
    api.wait_gone("ChaosExperiment", "lab", seconds=240)
    _settled(api, "demo")
    _settled(api, "bin")
    api.create(
        resource(
            "RoleSwitch",
            "there",
            clusterRef={"name": "demo"},
            pair="demo-0",
            targetMember=1,
            ttlSecondsAfterFinished=60,
        )
    )
    change(api, "bin", slavesPerPair=0, podDisruptionBudget={"enabled": False})
    api.wait("RoleSwitch", "there", is_true("Complete"), seconds=400)
    api.wait_gone("StatefulSet", "bin-0-1", seconds=120)
    api.wait_gone("PodDisruptionBudget", "bin-0", seconds=120)
    _settled(api, "demo")
    before = uid_of(api, "StatefulSet", "demo-0-0")
    change(api, "demo", storage={"size": "30Gi"})
    api.wait("StatefulSet", "demo-0-0", lambda item: item["metadata"]["uid"] != before, seconds=120)
    _settled(api, "demo")
    claim = uid_of(api, "PersistentVolumeClaim", "data-demo-0-0-0")
    mark_member(namespace, "demo", "force-resync-member", claim)
    api.wait(
        "PersistentVolumeClaim",
        "data-demo-0-0-0",
        lambda item: item["metadata"]["uid"] != claim,
        seconds=240,
    )
    _settled(api, "demo")
    mark_member(namespace, "demo", "restart-member", "demo-0-0")
    api.wait(
        "BrokerCluster",
        "demo",
        lambda item: "failback.dev/restart-member" not in item["metadata"].get("annotations", {}),
        seconds=240,
    )
    api.wait_gone("RoleSwitch", "there", seconds=240)
    _settled(api, "demo")
    change(api, "demo", failover={"onDrain": "Switch"})
    mark = {"metadata": {"annotations": {"failback.dev/drain": "true"}}}
    api.patch("Pod", "demo-0-1-0", mark)
    wait_until(lambda: api.list("RoleSwitch"), "a switch for the drain", 240)
    for kind, name in (("Topic", "paid"), ("SubscriptionGroup", "billing")):
        api.delete(kind, name)
        api.wait_gone(kind, name, seconds=120)


def _settled(api: Api, name: str) -> None:
    """Wait until a cluster is ready and no operation runs."""

    def holds(item: Object) -> bool:
        status = item.get("status", {})
        return (
            status.get("observedGeneration") == item["metadata"]["generation"]
            and is_true("Ready")(item)
            and not status.get("currentOperation")
            and condition_of(item, "MetadataSynced").get("status") == "True"
        )

    api.wait("BrokerCluster", name, holds, seconds=300)


def change(api: Api, cluster: str, **spec: Any) -> None:
    api.patch("BrokerCluster", cluster, {"spec": spec})


def mark_member(namespace: Namespace, cluster: str, name: str, value: str) -> None:
    marks = {f"failback.dev/{name}": value}
    namespace.api.patch("BrokerCluster", cluster, {"metadata": {"annotations": marks}})


def uid_of(api: Api, kind: str, name: str) -> str:
    return str(api.get(kind, name)["metadata"]["uid"])


LACKING: tuple[Right, ...] = (
    ("", "services", "create"),
    ("", "namespaces", "get"),
    ("failback.dev", "topics", "patch"),
)
"""One right for each way in which the operator names what it lacks: condition, message, log."""


def test_an_operator_names_the_rights_that_it_lacks_and_goes_on_when_it_has_them(
    namespace: Namespace,
) -> None:
    namespace.pretend_pods()
    api, given = namespace.api, chart_rules(namespace)
    less = reduce(without, LACKING, given)
    assert rights_of(given) - rights_of(less) == set(LACKING)
    running = OperatorProcess(
        namespace, namespace.identity("op", less), FAILBACK_RESYNC_SECONDS="2"
    )
    allow(namespace)
    try:
        running.start()
        running.wait_until_ready()
        api.create(resource("NameServer", "main", replicas=1))
        servers = {"nameServerRef": {"name": "main"}}
        api.create(resource("BrokerCluster", "demo", **servers, slavesPerPair=0))
        owner = {"clusterRef": {"name": "demo"}}
        api.create(resource("Topic", "paid", **owner, deletionPolicy="Delete"))
        api.create(json.loads(experiment_text([KILL], namespace)))
        api.wait("NameServer", "main", _says("Ready", "ApplyFailed", " services"), seconds=120)
        unread = f"the labels of namespace {namespace.name} can't be read"
        api.wait("ChaosExperiment", "lab", _says("Injected", "", unread), seconds=120)
        wait_until(lambda: _refused(running, "services"), "the refusals in the metrics", 60)
        api.wait("Topic", "paid", _says("Stalled", "PassFailed", "topics"), seconds=120)
        assert api.find("Service", "main-ns") is None
        api.patch("Role", "op", {"rules": given})
        wait_until(lambda: api.find("Service", "main-ns"), "the name server's Service", 240)
        api.wait("Topic", "paid", lambda item: item["metadata"].get("finalizers"), seconds=240)
        api.wait(
            "ChaosExperiment",
            "lab",
            lambda item: unread not in condition_of(item, "Injected").get("message", ""),
            seconds=240,
        )
    finally:
        running.process.dispose()


def _says(kind: str, reason: str, text: str) -> Any:
    """Return a predicate: a condition has this reason (any if empty) and its message this text."""

    def holds(item: Object) -> bool:
        found = condition_of(item, kind)
        return found.get("reason", "").startswith(reason) and text in found.get("message", "")

    return holds


def _refused(running: OperatorProcess, plural: str) -> bool:
    """Tell whether the operator's metrics count a refusal for a resource."""
    found = re.findall(r"api_requests_total{(.*)} (\S+)", running.get("/metrics"))
    wanted = (f'resource="{plural}"', 'code="403"')
    return any(float(number) and all(w in labels for w in wanted) for labels, number in found)


def _each_is_refused_without(namespace: Namespace, given: list[Object], rights: set[Right]) -> None:
    """Take each right from an account that has all others, and send what needs it."""
    everything = Api(namespace.identity("all", given).kubeconfig, namespace.name)
    for number, right in enumerate(sorted(rights)):
        less = Api(
            namespace.identity(f"less-{number}", without(given, right)).kubeconfig, namespace.name
        )
        assert answer_of(less, namespace.name, right) == 403, right
        assert answer_of(everything, namespace.name, right) != 403, right
        less.close()
    everything.close()


def answer_of(api: Api, namespace: str, right: Right) -> int:
    """Send a harmless request that needs a right; return the answer's code."""
    group, plural, verb = right
    versions = {"failback.dev": "v1alpha1", "sparkoperator.k8s.io": "v1beta2"}
    root = f"/apis/{group}/{versions.get(group, 'v1')}" if group else "/api/v1"
    plural, _, sub = plural.partition("/")
    where = f"{root}/namespaces/{namespace}"
    if plural != "namespaces":
        where += f"/{plural}"
    single = where if plural == "namespaces" else f"{where}/nobody"
    if sub:
        single += f"/{sub}"
    dry = "dryRun=All"
    requests = {
        "get": ("GET", single, b"", ""),
        "list": ("GET", where, b"", ""),
        "watch": ("GET", f"{where}?watch=true&timeoutSeconds=1", b"", ""),
        "create": ("POST", f"{single if sub else where}?{dry}", b"{}", "application/json"),
        "update": ("PUT", f"{single}?{dry}", b"{}", "application/json"),
        "patch": ("PATCH", f"{single}?{dry}", b"{}", "application/merge-patch+json"),
        "delete": ("DELETE", f"{single}?{dry}", b"", ""),
    }
    method, path, body, content = requests[verb]
    headers = {"Content-Type": content} if content else {}
    return api.raw(method, path, body or None, headers)[0]
