"""A person with rights over our resources has those, and no others by way of the operator.

The author of these tests has every right over ``failback.dev`` in a namespace, its status too, and
nothing else. First the operator alone refuses, then the API server by the chart's policies.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Api, ApiError, Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.operator.chart import CHART
from tests.support.operator.commands import OPTIONS, S3A, SAFE_OPTIONS, VARIABLES
from tests.support.operator.operator_process import chart_rules, condition_of, operator
from tests.support.operator.resources import resource

AUTHOR = [{"apiGroups": ["failback.dev"], "resources": ["*"], "verbs": ["*"]}]
SECRET = [{"name": "S", "valueFrom": {"secretKeyRef": {"name": "db-password", "key": "p"}}}]
CLUSTER = {"clusterRef": {"name": "good"}}
WORKLOAD = {"topics": [{"name": "T"}]}
FORGED = {
    "currentOperation": {
        "id": "x",
        "type": "RoleSwitch",
        "step": "StopOldMaster",
        "pair": 0,
        "startedAt": "2026-01-01T00:00:00Z",
    }
}


FOLDED = {
    "NameServer": {"addresses": ["x:99\nbrokerId=0"]},
    "ChaosExperiment": {"runs": [{"arm": "../../etc/x", "repetition": 0}]},
}
"""What would be written on, into broker.conf and into the words of a Job."""


def cluster(name: str, **spec: Any) -> Object:
    return resource("BrokerCluster", name, nameServerRef={"name": "main"}, **spec)


def experiment(name: str, **spec: Any) -> Object:
    return resource("ChaosExperiment", name, **CLUSTER, workload=WORKLOAD, **spec)


def report(name: str, **spec: Any) -> Object:
    return resource("ReconsumptionReport", name, inputs={"claimName": "runs"}, **spec)


EVIL: dict[str, tuple[Object, str]] = {
    "spec.podTemplate.env[0].valueFrom.secretKeyRef.name": (
        cluster("a", podTemplate={"env": SECRET}),
        "secretKeyRef of podTemplate.env",
    ),
    "spec.engine.image": (
        cluster("b", engine={"image": "attacker.example/tool:1"}),
        "allow.images",
    ),
    "spec.external.type": (
        cluster("outside", external={"type": "LoadBalancer"}),
        "allow.externalServices",
    ),
    "spec.podTemplate.securityContext.runAsNonRoot": (
        cluster("c", podTemplate={"securityContext": {"runAsUser": 0, "runAsNonRoot": False}}),
        "weaker than Pod Security",
    ),
    "spec.engine.imagePullSecrets[0].name": (
        resource("NameServer", "d", engine={"imagePullSecrets": [{"name": "db-password"}]}),
        "allow.pullSecrets",
    ),
    "spec.podTemplate.serviceAccountName": (
        resource("NameServer", "e", podTemplate={"serviceAccountName": "admin"}),
        "allow.serviceAccounts",
    ),
    "spec.job.image": (experiment("f", job={"image": "attacker.example/tool:1"}), "allow.images"),
    "spec.job.serviceAccountName": (
        experiment("g", job={"serviceAccountName": "admin"}),
        "allow.serviceAccounts",
    ),
    "spec.spark.image": (
        report("h", engine="Spark", spark={"image": "attacker.example/tool:1"}),
        "allow.images",
    ),
    "spec.spark.master": (
        report("i", engine="Spark", spark={"master": "k8s://http://attacker.example"}),
        "allow.sparkMasters",
    ),
    "spec.spark.conf.spark.ui.filters": (
        report("j", engine="Spark", spark={"conf": {"spark.ui.filters": "x"}}),
        "allow.sparkSettings",
    ),
}
"""Field → what asks for more than its author has, and words of the policy's refusal."""
NEVER = {
    "accounts of the operator": experiment("k", job={"serviceAccountName": "failback-operator"}),
    "can't consent": experiment("l", guard={"requireNamespaceLabel": False}),
    "spark.kubernetes": report("m", spark={"conf": {"spark.kubernetes.driver.volumes.x": "y"}}),
}


def what_is_said(api: Api, made: Object) -> str:
    """Return reason and message of the first condition that says why nothing is made."""
    found = api.get(made["kind"], made["metadata"]["name"])
    for kind in ("Ready", "Injected", "Complete"):
        entry = condition_of(found, kind)
        if entry and entry.get("status") == "False":
            return f"{entry['reason']}: {entry['message']}"
    return ""


def test_the_operator_makes_nothing_that_its_author_may_not_have(namespace: Namespace) -> None:
    namespace.pretend_pods()
    author = Api(namespace.identity("author", AUTHOR).kubeconfig).scoped(namespace.name)
    namespace.api.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db-password"}}
    )
    namespace.api.patch(
        "Namespace",
        namespace.name,
        {"metadata": {"labels": {"failback.dev/chaos-allowed": "true"}}},
    )
    for words, never in NEVER.items():
        with pytest.raises(ApiError, match=words):
            author.create(never)
    author.create(resource("NameServer", "main", replicas=1))
    for evil, _ in EVIL.values():
        author.create(evil)
    forged = {"phase": "Injecting", "startedAt": "2026-01-01T00:00:00Z", "seed": 1}
    for name in ("f", "g"):  # as if a run had begun: then a heal is due
        author.patch("ChaosExperiment", name, {"status": forged}, subresource="status")
        author.patch("ChaosExperiment", name, {"spec": {"abort": True}})
    with operator(namespace):
        namespace.api.wait("StatefulSet", "main-ns")
        for field, (evil, _) in EVIL.items():
            if evil["kind"] == "ChaosExperiment":
                continue
            wait_until(
                lambda evil=evil, field=field: (
                    f"InvalidSpec: permits {field}: "  # type: ignore[misc]
                    in what_is_said(author, evil)
                ),
                f"the refusal of {field}",
            )
        healing = [namespace.api.wait("Job", f"fbx-{name}-heal") for name in ("f", "g")]
        for job in healing:
            pod = job["spec"]["template"]["spec"]
            assert pod["serviceAccountName"] == "failback-chaos"
            assert pod["containers"][0]["image"].startswith("failback/chaos:")
        made = [each["metadata"]["name"] for each in namespace.api.list("StatefulSet")]
        assert made == ["main-ns"]
        jobs = sorted(each["metadata"]["name"] for each in namespace.api.list("Job"))
        assert jobs == ["fbx-f-heal", "fbx-g-heal"]


def deep(levels: int) -> Object:
    """A part of a pod that no schema bounds, nested as deep as the API server takes it."""
    found: Object = {}
    for _ in range(levels):
        found = {"a": found}
    return {"affinity": {"nodeAffinity": found}}


@pytest.fixture
def deep_documents() -> Iterator[None]:
    """Let this process encode what the operator has to survive."""
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    yield
    sys.setrecursionlimit(usual)


@pytest.mark.usefixtures("deep_documents")
def test_one_poisoned_resource_of_each_kind_stops_no_other(namespace: Namespace) -> None:
    namespace.pretend_pods()
    author = Api(namespace.identity("author", AUTHOR).kubeconfig).scoped(namespace.name)
    long = {f"k{number}": "x" * 1000 for number in range(64)}
    poisoned = [
        resource("NameServer", "bad", podTemplate=deep(9000)),
        resource("NameServer", "worse", replicas=1, config=long, podTemplate=deep(400)),
        cluster("bad", pairs=2, config=long, podTemplate=deep(5000)),
        resource("Topic", "bad", clusterRef={"name": "bad"}),
        resource("SubscriptionGroup", "bad", clusterRef={"name": "bad"}),
        resource("RoleSwitch", "bad", clusterRef={"name": "bad"}, pair="bad-0", targetMember=1),
        experiment("bad", arms=[{"name": "a", "workload": deep(3000)}]),
        report("bad"),
    ]
    statuses: dict[str, Object] = {
        "NameServer": {"replicas": 2**31 - 1, "addresses": ["x:99"] * 9},
        "BrokerCluster": FORGED,
        "RoleSwitch": {"phase": "Switching", "snapshotRef": "x" * 253},
        "ChaosExperiment": {"phase": "Injecting", "seed": 0, "activeArm": "none"},
        "ReconsumptionReport": {"phase": "Running"},
        "Topic": {"topicName": "x"},
        "SubscriptionGroup": {"groupName": "x"},
    }
    for each in poisoned:
        author.create(each)
        status = {"status": statuses[each["kind"]]}
        author.patch(each["kind"], each["metadata"]["name"], status, subresource="status")
    for kind, forged in FOLDED.items():
        with pytest.raises(ApiError, match="should match"):
            author.patch(kind, "bad", {"status": forged}, subresource="status")
    with operator(namespace) as running:
        good = [
            resource("NameServer", "main", replicas=1),
            cluster("good"),
            resource("Topic", "good", **CLUSTER),
            resource("SubscriptionGroup", "good", **CLUSTER),
            resource("RoleSwitch", "good", **CLUSTER, pair="good-0", targetMember=1),
            experiment("good"),
            report("good"),
        ]
        for each in good:
            author.create(each)
        for each in good:
            kind, name = each["kind"], each["metadata"]["name"]
            author.wait(kind, name, lambda found: found.get("status", {}).get("conditions"))
        namespace.api.wait("StatefulSet", "good-0-1")
        assert running.get("/healthz") == "ok"
        assert running.process.alive


@contextmanager
def policies(namespace: Namespace) -> Iterator[None]:
    """The chart's admission policies, for this namespace and an operator in it."""
    shown = namespace.helm(
        "template", "failback", str(CHART), "--show-only", "templates/admission.yaml"
    ).out
    documents = [each for each in YAML(typ="safe", pure=True).load_all(shown) if each]
    api = namespace.control_plane.api
    try:
        for each in documents:
            api.create(each)
        yield
    finally:
        for each in documents:
            api.delete(each["kind"], each["metadata"]["name"])


def refusal(api: Api, made: Object) -> str:
    """Return with which words the API server refuses an object; empty when it does not."""
    try:
        api.apply(made, dry_run=True)
    except ApiError as error:
        return str(error)
    return ""


def config_map(name: str, **labels: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}


def lease(name: str) -> Object:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": "x", "leaseDurationSeconds": 15},
    }


APACHE = {"type": "Apache", "version": "4.9.7"}
DNS = {
    "type": "Template",
    "template": "b{pair}-{ordinal}.shop.example",
    "annotations": {"external-dns.alpha.kubernetes.io/hostname": "shop.example"},
}


def test_the_api_server_refuses_it_by_the_charts_policies(namespace: Namespace) -> None:
    author = Api(namespace.identity("author", AUTHOR).kubeconfig).scoped(namespace.name)
    rules = chart_rules(namespace)
    acting = Api(namespace.identity("failback-operator", rules).kubeconfig).scoped(namespace.name)
    namespace.api.create(config_map("somebodys"))
    ours = {"app.kubernetes.io/managed-by": "failback-operator"}
    (evil, _), *_ = EVIL.values()
    author.create({**evil, "metadata": {"name": "earlier", "finalizers": ["example.com/x"]}})
    with policies(namespace):
        wait_until(lambda: refusal(author, evil), "the policy to be in force", 60)
        for field, (each, words) in EVIL.items():
            assert words in refusal(author, each), field
        for name in VARIABLES:
            env = {"env": [{"name": name, "value": "x"}]}
            assert "allow.environment" in refusal(author, cluster("a", podTemplate=env)), name
        for option in OPTIONS:
            asked = apache("a", f"-Xmx1g {option}")
            assert "allow.javaOptions" in refusal(author, asked), option
        for part, of_chart in (
            ({"podTemplate": {"annotations": {"sidecar.istio.io/inject": "true"}}}, "Annotations"),
            ({"podTemplate": {"labels": {"azure.workload.identity/use": "true"}}}, "Labels"),
            ({"external": DNS}, "serviceAnnotations"),
            ({"engine": {**APACHE, "logs": {"configMap": "somebodys"}}}, "configMaps"),
        ):
            assert of_chart in refusal(author, cluster("a", **part)), part
        for key in S3A:
            conf = {"conf": {f"spark.hadoop.fs.s3a.{key}": "x"}}
            said = refusal(author, report("j", engine="Spark", spark=conf))
            assert "allow.sparkSettings" in said, key
        fine = [
            resource("NameServer", "main", podTemplate={"serviceAccountName": "default"}),
            cluster(
                "fine",
                engine={"image": "failback/broker:0.1.0"},
                podTemplate={
                    "securityContext": {"runAsUser": 5, "seccompProfile": None},
                    "annotations": {"prometheus.io/scrape": "true", "note": "x"},
                    "labels": {"team": "shop"},
                },
            ),
            experiment("fine"),
            report("fine", engine="Spark", spark={"conf": {"spark.sql.shuffle.partitions": "8"}}),
            apache("jvm", SAFE_OPTIONS),
            cluster("env", podTemplate={"env": [{"name": "TZ", "value": "UTC"}]}),
        ]
        del fine[1]["spec"]["podTemplate"]["securityContext"]["seccompProfile"]
        assert [refusal(author, each) for each in fine] == [""] * len(fine)
        author.patch("BrokerCluster", "earlier", {"metadata": {"finalizers": None}})

        wait_until(lambda: refusal(acting, config_map("x")), "the operator's policy", 60)
        assert refusal(acting, config_map("mine", **ours)) == ""
        assert "only objects with the label" in refusal(acting, config_map("somebodys", **ours))
        with pytest.raises(ApiError, match="only objects with the label"):
            acting.delete("ConfigMap", "somebodys")
        leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace.name}/leases"
        acting.request("POST", leases, lease("failback-orders-0"), query={"dryRun": "All"})
        with pytest.raises(ApiError, match="Leases of its own"):
            acting.request("POST", leases, lease("scheduler"), query={"dryRun": "All"})
        for pod, words in (
            ({"serviceAccountName": "failback-operator"}, "own account"),
            ({"volumes": [{"name": "n", "hostPath": {"path": "/"}}]}, "folder of the node"),
            ({"hostNetwork": True}, "network or processes"),
            (with_container(securityContext={"privileged": True}), "is privileged or takes a port"),
            (with_container(ports=[{"containerPort": 1, "hostPort": 1}]), "or takes a port"),
            (with_container(envFrom=[{"secretRef": {"name": "x"}}]), "reads a Secret"),
            (with_container(env=SECRET), "reads a Secret"),
            ({"initContainers": [{"name": "i", "image": "x", "env": SECRET}]}, "reads a Secret"),
            ({}, ""),
        ):
            assert words in refusal(acting, job_of(pod, ours)), pod
        assert refusal(acting, job_of({}, ours)) == ""


def test_a_protected_cluster_is_not_deleted_before_it_says_otherwise(namespace: Namespace) -> None:
    author = Api(namespace.identity("author", AUTHOR).kubeconfig).scoped(namespace.name)
    for name, protected in (("kept", True), ("free", False)):
        author.create(cluster(name, deletionProtection=protected))

    def is_refused() -> bool:
        try:
            author.delete("BrokerCluster", "kept", dry_run=True)
        except ApiError as error:
            return "spec.deletionProtection is true" in str(error)
        return False

    with policies(namespace):
        wait_until(is_refused, "the policy to be in force", 60)
        author.delete("BrokerCluster", "free")
        with pytest.raises(ApiError, match="set it to false first"):
            author.delete("BrokerCluster", "kept")
        author.patch("BrokerCluster", "kept", {"spec": {"deletionProtection": False}})
        author.delete("BrokerCluster", "kept")
        author.wait_gone("BrokerCluster", "kept")


def apache(name: str, options: str) -> Object:
    return cluster(name, engine={"type": "Apache", "version": "4.9.7", "javaOptions": options})


def with_container(**fields: Any) -> Object:
    return {"containers": [{"name": "main", "image": "failback/chaos:1", **fields}]}


def job_of(pod: Object, labels: dict[str, str]) -> Object:
    container = {"name": "main", "image": "failback/chaos:1"}
    spec = {"restartPolicy": "Never", "containers": [container], **pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"j{time.time_ns()}", "labels": labels},
        "spec": {"template": {"spec": spec}},
    }
