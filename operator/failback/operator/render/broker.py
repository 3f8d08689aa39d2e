"""The StatefulSet of one broker member: its pod, its claim, and what becomes of the claim."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Final

from failback.operator.engines.catalogue import quirk
from failback.operator.render import apache, common
from failback.operator.render.config import restart_hash
from failback.operator.render.context import Object
from failback.operator.render.members import (
    ClusterContext,
    MemberContext,
    is_carried,
    pair_selector,
)

# The brackets keep pgrep from finding the shell that runs this very line.
_STOP_AND_WAIT: Final = "./mqshutdown broker; while pgrep -f '[B]rokerStartup'; do sleep 1; done"
WHEN_RELEASED: Final = 'while [ -e "$0" ]; do sleep 1; done; exec "$@"'
"""What ``failback-init`` does in our own images: the broker starts when no hold file is there."""
WHEN_CARRIED: Final = (
    'while [ -e "$0" ]; do sleep 1; done; run=${0%/*}; word=$(cat /proc/sys/kernel/random/uuid);'
    ' echo "$word" >"$run/asked"; tries=$1; shift;'
    ' while [ "$(cat "$run/carried" 2>/dev/null)" != "$word" ] && [ "$tries" -ne 0 ];'
    ' do sleep 0.2; tries=$((tries-1)); done; exec "$@"'
)
"""The same, then the sidecar ``carry`` is asked and its answer awaited, for so many fifths of a
second; -1: for ever. First the hold: while it stands the outage goes on, and offsets grow old."""
_CARRY_SECONDS: Final = 15
"""What a carry may take beside the wait for a slave."""
_VERIFIED_RECORDS: Final = "64"
"""How many last records of a slave are compared with its master's."""


def member_labels(context: ClusterContext, member: MemberContext) -> dict[str, str]:
    """Return the labels of a member's objects and pod, with the engine's version."""
    return common.versioned(dict(member.marks), context.version)


def statefulset(
    context: ClusterContext, member: MemberContext, properties: Mapping[str, str]
) -> Object:
    """Return the StatefulSet of one member: one replica, replaced only on purpose."""
    cluster, place, spec = context.cluster, context.place, context.cluster.spec
    marks = member_labels(context, member)
    kept = "Delete" if spec.storage.delete_claim else "Retain"
    annotations = {
        **spec.pod_template.annotations,
        **common.restarted_at(cluster),
        "failback.dev/restart-hash": restart_hash(properties),
        **({common.GATE: "true"} if member.gated else {}),
    }
    found: Object = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": common.released(common.metadata(cluster, member.name, place, marks), place),
        "spec": {
            "replicas": 0 if member.stopped else 1,
            "serviceName": context.service,
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "revisionHistoryLimit": 3,
            # A member that is held or switched has no replica, and keeps its log all the same.
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": kept, "whenScaled": "Retain"},
            "selector": {"matchLabels": dict(member.selector)},
            "template": {
                "metadata": {
                    "labels": {**spec.pod_template.labels, **marks},
                    "annotations": annotations,
                },
                "spec": _pod(context, member),
            },
        },
    }
    if spec.storage.type == "Persistent":
        found["spec"]["volumeClaimTemplates"] = [_claim(context, member)]
    return found


def _claim(context: ClusterContext, member: MemberContext) -> Object:
    storage = context.cluster.spec.storage
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": member.pair.storage_size}},
    }
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    return {"metadata": {"name": "data"}, "spec": spec}


def _pod(context: ClusterContext, member: MemberContext) -> Object:
    cluster, spec, engine, pair = context.cluster, context.cluster.spec, context.engine, member.pair
    marks = {
        "FAILBACK_CLUSTER": cluster.name,
        "FAILBACK_PAIR": str(pair.index),
        "FAILBACK_MEMBER": str(member.ordinal),
        "FAILBACK_DRAIN_SECONDS": str(spec.lifecycle.drain_seconds),
    }
    options = apache.java_options(
        engine,
        "broker",
        member.home,
        context.version,
        pair.resources,
        context.place,
        _guarding_options(context, member),
    )
    shared: Object = {
        "env": common.environment(
            engine, member.home, member.http_port, marks, spec.pod_template, options
        ),
        "securityContext": common.container_security(),
        "terminationMessagePolicy": common.LAST_WORDS,
        "volumeMounts": common.mounts(member.home, member.run_dir, data=True),
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
        "initContainers": _init_containers(context, member, shared),
        "containers": [_container(context, member, shared)],
        "volumes": common.volumes(member.name, engine, context.place),
    }
    if pair.node_selector:
        found["nodeSelector"] = dict(pair.node_selector)
    if engine.image_pull_secrets:
        found["imagePullSecrets"] = [{"name": secret.name} for secret in engine.image_pull_secrets]
    if member.gated:  # the member may have no file yet
        found["volumes"][0] = {"name": "desired", "emptyDir": {}}
    if spec.storage.type == "Ephemeral":
        found["volumes"].append({"name": "data", "emptyDir": {"sizeLimit": pair.storage_size}})
    if engine.program == "apache":
        found["shareProcessNamespace"] = True
    if member.gated:  # it asks no other broker
        return found
    return common.with_access(found, member.name, member.home, spec.acl, spec.tls)


def _guarding_options(context: ClusterContext, member: MemberContext) -> str:
    spec, now = context.cluster.spec, context.guarding
    if spec.acl is None and spec.tls is None:
        return ""
    folder = common.access_folder(member.home)
    return apache.guarding_options(folder, spec.tls, now.tls, own_tls=now.own_tls)


def _init_containers(
    context: ClusterContext, member: MemberContext, shared: Object
) -> list[Object]:
    """Return the steps before the broker; the same for every role, so that a switch of roles
    needs no other template."""
    if member.gated:
        return [common.gate_container(member.home, context.place, shared)]
    steps = [common.conf_container(member.home, "broker.conf", context.place, shared)]
    if context.cluster.spec.lifecycle.verify_seconds:
        steps.append(_verify_container(context, member, shared))
    if is_carried(context, member.pair):
        steps.append(_carry_container(context, member, shared))
    return steps


def _verify_container(context: ClusterContext, member: MemberContext, shared: Object) -> Object:
    """Return the init container that refuses to start a slave whose log is not its master's."""
    seconds = str(context.cluster.spec.lifecycle.verify_seconds)
    words = ["verify-prefix", "--conf", f"{member.home}/conf/broker.conf"]
    words += ["--seconds", seconds, "--records", _VERIFIED_RECORDS]
    return common.tool_container("verify", words, "512Mi", context.place, shared)


def _carry_container(context: ClusterContext, member: MemberContext, shared: Object) -> Object:
    """Return the native sidecar that gives a master, before it starts, what its slaves know.

    Init containers do not run again when a container restarts in its pod. It has no startup probe:
    one that is broken must delay a broker, not keep it from starting.
    """
    home, port, carry = member.home, member.http_port, context.cluster.spec.offset_carry
    # A certificate is for the pod's name.
    named = context.cluster.spec.tls is not None and "${" not in member.replicated
    host = member.replicated if named else "$(POD_IP)"
    return {
        "name": "carry",
        "image": context.place.tools_image,
        "restartPolicy": "Always",
        "command": ["failback"],
        "args": [
            *("tools", "carry-serve", "--conf", f"{home}/conf/broker.conf"),
            *("--members", f"{home}/desired/{common.MEMBERS_FILE}", "--run-dir", member.run_dir),
            *("--address", f"{host}:{member.listen_port}", "--port", str(port)),
            *("--wait", str(carry.wait_seconds), "--top-up", str(carry.top_up_seconds)),
            *(("--must-know",) if carry.when_unknown == "Wait" else ()),
            *(("--report",) if carry.mode == "Report" else ()),
            *(("--keep-members",) if carry.keep_members else ()),
        ],
        "ports": [{"name": "http", "containerPort": port}],
        "readinessProbe": {
            "httpGet": {"path": "/readyz", "port": port},
            "periodSeconds": 5,
            "timeoutSeconds": 3,
            "failureThreshold": 2,
        },
        **common.bounds(context.place, "384Mi"),
        **copy.deepcopy(shared),
    }


def _start_command(context: ClusterContext, member: MemberContext) -> list[str]:
    """Return the shell of an Apache broker that waits until it may start."""
    hold, carry = f"{member.run_dir}/hold", context.cluster.spec.offset_carry
    if not is_carried(context, member.pair):
        return ["sh", "-c", WHEN_RELEASED, hold]
    tries = -1 if carry.when_unknown == "Wait" else 5 * (carry.wait_seconds + _CARRY_SECONDS)
    return ["sh", "-c", WHEN_CARRIED, hold, str(tries)]


def _container(context: ClusterContext, member: MemberContext, shared: Object) -> Object:
    engine, listen_port = context.engine, member.listen_port
    liveness = context.cluster.spec.lifecycle.liveness_probe
    if liveness is None:
        liveness = engine.program == "failback"
    ports = {"remoting": listen_port, "fast": listen_port - 2, "ha": listen_port + 1}
    conf = f"{member.home}/conf/broker.conf"
    found: Object = {
        "name": "broker",
        "image": engine.image or context.place.image(engine.program, context.version),
        "imagePullPolicy": engine.image_pull_policy,
    }
    if engine.program == "apache":
        found["command"] = _start_command(context, member)
        found["args"] = ["./mqbroker", "-c", conf]
        # The start scripts run java as a child of a shell that passes no SIGTERM on.
        found["lifecycle"] = {"preStop": {"exec": {"command": ["sh", "-c", _STOP_AND_WAIT]}}}
        ports |= apache.exporter(engine, member.pair.config, context.place)
    else:
        found["command"] = list(common.INIT)
        found["args"] = ["broker", "-c", conf]
        if quirk("mountedFile", engine.program, context.version):
            found["args"] += ["--mounted", f"{member.home}/desired/broker.conf"]
        ports["http"] = member.http_port
    found["ports"] = [{"name": port, "containerPort": number} for port, number in ports.items()]
    wanted = apache.limited(engine, "broker", member.pair.resources, context.place)
    found["resources"] = common.resources_of(wanted)
    found |= common.probes(engine, listen_port, member.http_port, liveness=liveness)
    logs = apache.log_mounts(engine, "broker", member.home, context.version, context.place)
    return {**found, **shared, "volumeMounts": [*shared["volumeMounts"], *logs]}
