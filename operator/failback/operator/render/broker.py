"""The StatefulSet of one broker member: its pod, its claim, and what becomes of the claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from failback.operator.kinds.broker_cluster import BrokerCluster, Pair
from failback.operator.render import common
from failback.operator.render.config import member_name, pod_name, restart_hash, service_name
from failback.operator.render.context import Context, Object

# The brackets keep pgrep from finding the shell that runs this very line.
_STOP_AND_WAIT: Final = "./mqshutdown broker; while pgrep -f '[B]rokerStartup'; do sleep 1; done"
WHEN_RELEASED: Final = 'while [ -e "$0" ]; do sleep 1; done; exec "$@"'
"""What ``failback-init`` does in our own images: the broker starts when no hold file is there."""
REGISTERED_GATE: Final = "failback.dev/registered"


def member_selector(cluster: BrokerCluster, pair: int, ordinal: int) -> dict[str, str]:
    """Return the labels that match the pod of one member and no other."""
    return {**pair_selector(cluster, pair), "failback.dev/member": str(ordinal)}


def pair_selector(cluster: BrokerCluster, pair: int) -> dict[str, str]:
    """Return the labels that match the pods of one pair."""
    return {"failback.dev/cluster": cluster.name, "failback.dev/pair": str(pair)}


def member_labels(
    cluster: BrokerCluster, pair: int, ordinal: int, context: Context
) -> dict[str, str]:
    """Return the labels of a member's objects and pod. The role is never among them."""
    base = common.labels(
        cluster, "broker", cluster=cluster.name, pair=str(pair), member=str(ordinal)
    )
    return common.versioned(base, common.engine_version(cluster.spec.engine, context))


def is_held(cluster: BrokerCluster, pair: int, ordinal: int) -> bool:
    """Tell whether `failback.dev/hold-member` keeps this member down."""
    held = cluster.metadata.annotations.get("failback.dev/hold-member", "").split(",")
    return f"{cluster.broker_name(pair)}-{ordinal}" in {name.strip() for name in held}


def statefulset(
    cluster: BrokerCluster,
    pair: Pair,
    ordinal: int,
    properties: Mapping[str, str],
    context: Context,
    *,
    stopped: bool = False,
) -> Object:
    """Return the StatefulSet of one member: one replica, replaced only on purpose."""
    name = member_name(cluster, pair.index, ordinal)
    marks = member_labels(cluster, pair.index, ordinal, context)
    spec = cluster.spec
    kept = "Delete" if spec.storage.delete_claim else "Retain"
    annotations = {
        **spec.pod_template.annotations,
        **common.restarted_at(cluster),
        "failback.dev/restart-hash": restart_hash(properties),
    }
    found: Object = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": common.released(common.metadata(cluster, name, context, marks), context),
        "spec": {
            "replicas": 0 if stopped or is_held(cluster, pair.index, ordinal) else 1,
            "serviceName": service_name(cluster),
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 3,
            # A member that is held or switched has no replica, and still keeps its log.
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": kept, "whenScaled": "Retain"},
            "selector": {"matchLabels": member_selector(cluster, pair.index, ordinal)},
            "template": {
                "metadata": {
                    "labels": {**spec.pod_template.labels, **marks},
                    "annotations": annotations,
                },
                "spec": _pod(cluster, pair, ordinal, context),
            },
        },
    }
    if spec.storage.type == "Persistent":
        found["spec"]["volumeClaimTemplates"] = [_claim(cluster, pair)]
    return found


def _claim(cluster: BrokerCluster, pair: Pair) -> Object:
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": pair.storage_size}},
    }
    if cluster.spec.storage.storage_class_name is not None:
        spec["storageClassName"] = cluster.spec.storage.storage_class_name
    return {"metadata": {"name": "data"}, "spec": spec}


def _pod(cluster: BrokerCluster, pair: Pair, ordinal: int, context: Context) -> Object:
    spec, engine = cluster.spec, cluster.spec.engine
    name = member_name(cluster, pair.index, ordinal)
    pod = pod_name(cluster, pair.index, ordinal)
    home, run_dir = context.home(pod), context.run_dir(pod)
    http_port = context.port_of(name, "http", common.HTTP_PORT)
    marks = {
        "FAILBACK_CLUSTER": cluster.name,
        "FAILBACK_PAIR": str(pair.index),
        "FAILBACK_MEMBER": str(ordinal),
        "FAILBACK_DRAIN_SECONDS": str(spec.lifecycle.drain_seconds),
    }
    shared: Object = {
        "env": common.environment(engine, home, http_port, marks, spec.pod_template),
        "securityContext": common.container_security(),
        "terminationMessagePolicy": common.LAST_WORDS,
        "volumeMounts": common.mounts(home, run_dir, data=True),
    }
    scope = pair_selector(cluster, pair.index)
    if spec.anti_affinity.scope == "Cluster":
        scope = {"failback.dev/cluster": cluster.name}
    found: Object = {
        "terminationGracePeriodSeconds": spec.lifecycle.termination_grace_period_seconds,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": common.pod_security(engine, spec.pod_template),
        **common.placement(
            spec.pod_template, spec.anti_affinity.mode, scope, spec.anti_affinity.topology_key
        ),
        "initContainers": _init_containers(cluster, home, context, shared),
        "containers": [_container(cluster, pair, name, home, run_dir, http_port, context, shared)],
        "volumes": common.volumes(name),
    }
    if pair.node_selector:
        found["nodeSelector"] = dict(pair.node_selector)
    if engine.image_pull_secrets:
        found["imagePullSecrets"] = [{"name": secret.name} for secret in engine.image_pull_secrets]
    if spec.storage.type == "Ephemeral":
        found["volumes"].append({"name": "data", "emptyDir": {"sizeLimit": pair.storage_size}})
    if engine.program == "apache":
        found["shareProcessNamespace"] = True
        found["readinessGates"] = [{"conditionType": REGISTERED_GATE}]
    return found


def _init_containers(
    cluster: BrokerCluster, home: str, context: Context, shared: Object
) -> list[Object]:
    """Return the steps before the broker; the same for every role, so that a switch of roles
    needs no other template."""
    steps = [common.conf_container(home, "broker.conf", context, shared)]
    if cluster.spec.lifecycle.verify_seconds:
        seconds = str(cluster.spec.lifecycle.verify_seconds)
        steps.append(common.verify_container(home, seconds, context, shared))
    return steps


def _container(
    cluster: BrokerCluster,
    pair: Pair,
    name: str,
    home: str,
    run_dir: str,
    http_port: int,
    context: Context,
    shared: Object,
) -> Object:
    spec, engine = cluster.spec, cluster.spec.engine
    version = common.engine_version(engine, context)
    listen_port = context.port_of(
        name, "remoting", cluster.listen_port(pair.index, int(name.rpartition("-")[2]))
    )
    liveness = spec.lifecycle.liveness_probe
    if liveness is None:
        liveness = engine.program == "failback"
    ports = {"remoting": listen_port, "fast": listen_port - 2, "ha": listen_port + 1}
    conf = f"{home}/conf/broker.conf"
    found: Object = {
        "name": "broker",
        "image": engine.image or context.image(engine.program, version),
        "imagePullPolicy": engine.image_pull_policy,
    }
    if engine.program == "apache":
        found["command"] = ["sh", "-c", WHEN_RELEASED, f"{run_dir}/hold"]
        found["args"] = ["./mqbroker", "-c", conf]
        # The start scripts run java as a child of a shell that passes no SIGTERM on.
        found["lifecycle"] = {"preStop": {"exec": {"command": ["sh", "-c", _STOP_AND_WAIT]}}}
    else:
        found["command"] = list(common.INIT)
        found["args"] = ["broker", "-c", conf]
        ports["http"] = http_port
    found["ports"] = [{"name": port, "containerPort": number} for port, number in ports.items()]
    found["resources"] = common.resources_of(pair.resources)
    found |= common.probes(engine, listen_port, http_port, liveness=liveness)
    return found | shared
