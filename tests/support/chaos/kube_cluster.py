"""A broker cluster on the Kubernetes lab, without an operator, for the chaos harness."""

from __future__ import annotations

import json
import time
from typing import Any

from failback.chaos.targets.kube.api import KubeApi
from failback.chaos.targets.kube.target import KubernetesTarget
from failback.operator.render.context import kubernetes_context
from failback.operator.render.objects import render
from failback.operator.schema.decoding import decode
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Identity, Namespace
from tests.support.operator.operator_process import chart_rules
from tests.support.operator.resources import resource

TIME_SCALE = 0.1
CHAOS_ACCOUNT = "failback-chaos"


def set_up_cluster(namespace: Namespace) -> None:
    """Create a name server and one pair; return once both brokers are ready and registered."""
    scale = {"failbackTimeScale": str(TIME_SCALE)}
    manifests = [
        resource("NameServer", "main", replicas=1, config=scale),
        resource(
            "BrokerCluster",
            "demo",
            nameServerRef={"name": "main"},
            slaveReadEnable=True,
            config={**scale, "autoCreateTopicEnable": "false"},
        ),
    ]
    items = [decode(namespace.api.create(manifest)) for manifest in manifests]
    for manifest in render(items, kubernetes_context(namespace.name, "0.1.0")):
        namespace.api.apply(manifest, manager="test")
    for pod in ("main-ns-0", "demo-0-0-0", "demo-0-1-0"):
        namespace.api.wait("Pod", pod, is_ready, seconds=150)
    say_conditions(namespace, Ready="True", RolesConsistent="True")


def say_conditions(namespace: Namespace, **conditions: str) -> None:
    """Write conditions of the cluster, as its operator would."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    found = [
        {
            "type": kind,
            "status": value,
            "reason": "Test",
            "message": "",
            "lastTransitionTime": stamp,
            "observedGeneration": 1,
        }
        for kind, value in conditions.items()
    ]
    body = {"status": {"conditions": found}}
    namespace.api.patch("BrokerCluster", "demo", body, subresource="status")


def allow(namespace: Namespace) -> None:
    labels = {"metadata": {"labels": {"failback.dev/chaos-allowed": "true"}}}
    namespace.control_plane.api.patch("Namespace", namespace.name, labels)


def is_ready(found: Object) -> bool:
    conditions = found.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def chaos_account(namespace: Namespace) -> Identity:
    """Create the account of experiments' Jobs, with the rules of the chart's Role."""
    return namespace.identity(CHAOS_ACCOUNT, chart_rules(namespace, account=CHAOS_ACCOUNT))


def target_of(namespace: Namespace) -> KubernetesTarget:
    """The target as an account that may do what an experiment needs and nothing else."""
    identity = chaos_account(namespace)
    api = KubeApi.connect(namespace.name, kubeconfig=str(identity.kubeconfig))
    return KubernetesTarget(api, "demo")


def experiment_text(faults: list[dict[str, Any]], namespace: Namespace, **spec: Any) -> str:
    """A short experiment as its resource; seconds in it are unscaled.

    Its limits are those of a busy machine: a tenth of them is what a run has.
    """
    document = {
        "apiVersion": "failback.dev/v1alpha1",
        "kind": "ChaosExperiment",
        "metadata": {"name": "lab", "namespace": namespace.name},
        "spec": {
            "clusterRef": {"name": "demo"},
            "seed": 42,
            "timeScale": str(TIME_SCALE),
            "workload": {
                "topics": [{"name": "orders", "queues": 4, "ratePerSecond": 400, "bodyBytes": 128}],
                "groups": [
                    {
                        "name": "billing",
                        "topic": "orders",
                        "start": {"spreadSeconds": 0},
                        "handler": {"meanMs": 1},
                    }
                ],
            },
            "faults": faults,
            "warmupSeconds": 5,
            "cooldownSeconds": 5,
            "steadyState": {"minProducePerSecond": 20, "holdSeconds": 5, "timeoutSeconds": 600},
            "drain": {"timeoutSeconds": 600, "quietSeconds": 5},
            "healDeadlineSeconds": 600,
            "recoverTimeoutSeconds": 1200,
            **spec,
        },
    }
    return json.dumps(document)
