"""The StatefulSet and the addresses of a NameServer."""

from __future__ import annotations

from typing import Final

from failback.operator.kinds.name_server import NameServer
from failback.operator.render import apache, common
from failback.operator.render.config import name_server_properties, restart_hash
from failback.operator.render.context import POD_NAME, Context, Object

ROUTES_SECONDS: Final = 35
"""How long a name server must be ready before a roll replaces the next one.

Its routes are in memory only: brokers of 4.x register every 30 s, ours as soon as it answers."""


def statefulset_name(name_server: NameServer) -> str:
    """Return the name of the StatefulSet, its headless Service, ConfigMap and budget."""
    return f"{name_server.name}-ns"


def addresses(name_server: NameServer, context: Context) -> list[str]:
    """Return `host:port` of every replica, from the spec and never from ready pods."""
    name = statefulset_name(name_server)
    port = context.port_of(name, "remoting", name_server.spec.port)
    return [
        f"{context.address_of(f'{name}-{index}', name)}:{port}"
        for index in range(name_server.spec.replicas)
    ]


def selector(name_server: NameServer) -> dict[str, str]:
    """Return the labels that match the pods of one NameServer."""
    return {
        "failback.dev/nameserver": name_server.name,
        "app.kubernetes.io/component": "namesrv",
    }


def name_server_labels(name_server: NameServer) -> dict[str, str]:
    """Return the labels of a NameServer's objects."""
    return common.labels(name_server, "namesrv", nameserver=name_server.name)


def statefulset(name_server: NameServer, context: Context) -> Object:
    """Return the StatefulSet: all replicas from one template."""
    name = statefulset_name(name_server)
    spec = name_server.spec
    version = common.engine_version(spec.engine, context)
    marks = common.versioned(name_server_labels(name_server), version)
    annotations = {
        **spec.pod_template.annotations,
        **common.restarted_at(name_server),
        "failback.dev/restart-hash": restart_hash(name_server_properties(name_server, context)),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": common.released(common.metadata(name_server, name, context, marks), context),
        "spec": {
            "replicas": spec.replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "minReadySeconds": ROUTES_SECONDS,
            "updateStrategy": {"type": "RollingUpdate"},
            "revisionHistoryLimit": 3,
            "selector": {"matchLabels": selector(name_server)},
            "template": {
                "metadata": {
                    "labels": {**spec.pod_template.labels, **marks},
                    "annotations": annotations,
                },
                "spec": _pod(name_server, context),
            },
        },
    }


def _pod(name_server: NameServer, context: Context) -> Object:
    name, spec, engine = statefulset_name(name_server), name_server.spec, name_server.spec.engine
    home, run_dir = context.home(POD_NAME), context.run_dir(POD_NAME)
    http_port = context.port_of(name, "http", common.HTTP_PORT)
    marks = {"FAILBACK_NAMESERVER": name_server.name}
    version = common.engine_version(engine, context)
    folder, mode = common.access_folder(home), "" if spec.tls is None else spec.tls.mode.lower()
    guarding = apache.guarding_options(folder, spec.tls, mode, own_tls=False) if mode else ""
    options = apache.java_options(
        engine, "namesrv", home, version, spec.resources, context, guarding
    )
    shared: Object = {
        "env": common.environment(engine, home, http_port, marks, spec.pod_template, options),
        "securityContext": common.container_security(),
        "terminationMessagePolicy": common.LAST_WORDS,
        "volumeMounts": common.mounts(home, run_dir, data=False),
    }
    found: Object = {
        "terminationGracePeriodSeconds": 30,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": common.pod_security(engine, spec.pod_template),
        **common.placement(
            spec.pod_template,
            spec.anti_affinity,
            selector(name_server),
            "kubernetes.io/hostname",
        ),
        "initContainers": [common.conf_container(home, "namesrv.conf", context, shared)],
        "containers": [_container(name_server, home, http_port, context, shared)],
        "volumes": common.volumes(name, engine, context),
    }
    if spec.pod_template.node_selector:
        found["nodeSelector"] = dict(spec.pod_template.node_selector)
    if engine.image_pull_secrets:
        found["imagePullSecrets"] = [{"name": secret.name} for secret in engine.image_pull_secrets]
    if engine.program == "apache":
        found["shareProcessNamespace"] = True
    return common.with_access(found, name, home, None, spec.tls)


def _container(
    name_server: NameServer, home: str, http_port: int, context: Context, shared: Object
) -> Object:
    spec, engine = name_server.spec, name_server.spec.engine
    port = context.port_of(statefulset_name(name_server), "remoting", spec.port)
    version = common.engine_version(engine, context)
    conf = f"{home}/conf/namesrv.conf"
    ports = {"remoting": port}
    found: Object = {
        "name": "namesrv",
        "image": engine.image
        or context.image("namesrv" if engine.program == "failback" else engine.program, version),
        "imagePullPolicy": engine.image_pull_policy,
    }
    if engine.program == "apache":
        found["args"] = ["./mqnamesrv", "-c", conf]
    else:
        found["command"] = list(common.INIT)
        found["args"] = ["namesrv", "-c", conf]
        ports["http"] = http_port
    found["ports"] = [{"name": label, "containerPort": number} for label, number in ports.items()]
    wanted = apache.limited(engine, "namesrv", spec.resources, context)
    found["resources"] = common.resources_of(wanted)
    found |= common.probes(engine, port, http_port, liveness=engine.program == "failback")
    logs = apache.log_mounts(engine, "namesrv", home, version, context)
    return {**found, **shared, "volumeMounts": [*shared["volumeMounts"], *logs]}
