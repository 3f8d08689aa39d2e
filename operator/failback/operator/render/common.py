"""What every rendered object carries: labels, owner, pod security, environment, mounts."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from failback.operator.kinds.base import Engine, PodTemplate, Resource, Resources, Spread
from failback.operator.kinds.guarding import Acl, Tls
from failback.operator.render import apache
from failback.operator.render.context import Context, Object

HTTP_PORT: Final = 8088
MOST_NAME: Final = 253
"""Characters of the name of an object, where it is no label."""
_LOCKED: Final[Object] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
USER: Final = 10001
"""User id in Failback's images."""
_USERS: Final = {"failback": USER, "apache": 3000}  # rocketmq-docker, Dockerfile-alpine: uid 3000
INIT: Final = ["failback-init", "--", "failback"]
TLS_FILE: Final = "tls.properties"
MEMBERS_FILE: Final = "members"
"""File of a member's ConfigMap: where the other members of its pair answer."""
RELEASE: Final = "failback.dev/release"
"""Annotation of a StatefulSet: the release of Failback whose defaults it has."""
ROLE_LABEL: Final = "failback.dev/role"
"""Label of a pod: the role that its broker reports; of a claim: the last role of its member."""
EPOCH: Final = "failback.dev/master-epoch"
LOG_ID: Final = "failback.dev/log-id"
LOG_END: Final = "failback.dev/log-end"
LOG_END_AT: Final = "failback.dev/log-end-at"
MARKED_UID: Final = "failback.dev/claim-uid"
OPENED_BY: Final = "failback.dev/opened-by"
"""Annotations of a claim, see ``planning.state.mastership``."""
ORDER: Final = "failback.dev/open-member"
"""Annotation of a cluster: the claim whose member starts as master where the marks name none."""
GATE: Final = "failback.dev/gate"
"""Annotation of a pod that starts no broker: it only reads where its member's log ends."""


def engine_version(engine: Engine, context: Context) -> str:
    """Return the version that will run: the resource's, else this release."""
    return engine.version or context.version


def object_name(*parts: str, most: int = 63) -> str:
    """Join parts to a name of at most ``most`` characters; a longer one ends in its own hash."""
    name = "-".join(parts)
    if len(name) <= most:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: most - 9]}-{digest}"


def labels(owner: Resource, component: str, **more: str) -> dict[str, str]:
    """Return the labels of a shared object; ``more`` keys get the prefix ``failback.dev/``."""
    return {
        "app.kubernetes.io/name": "failback",
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/instance": owner.name,
        "app.kubernetes.io/managed-by": "failback-operator",
        **{f"failback.dev/{key}": value for key, value in more.items()},
    }


def versioned(base: dict[str, str], version: str) -> dict[str, str]:
    """Return ``base`` with the engine's version: for what is replaced when it changes."""
    return {**base, "app.kubernetes.io/version": version}


def released(metadata: Object, context: Context) -> Object:
    """Return the metadata of a StatefulSet with the release that made it.

    Not in the template: a newer operator keeps the release of existing objects, and restarts none.
    """
    return {**metadata, "annotations": {RELEASE: context.version}}


def metadata(owner: Resource, name: str, context: Context, marks: dict[str, str]) -> Object:
    """Return the metadata of a child: our name, our labels, the custom resource as owner."""
    return {
        "name": name,
        "namespace": context.namespace,
        "labels": dict(marks),
        "ownerReferences": owned_by(owner),
    }


def owned_by(owner: Resource) -> list[Object]:
    """Return the owner of an object that goes with its custom resource."""
    return [
        {
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


LAST_WORDS: Final = "FallbackToLogsOnError"
"""A container that ends with an error and no message shows the last lines of its log."""


def container_security() -> Object:
    """Return the security context of every container: Pod Security Standard `restricted`."""
    return copy.deepcopy(_LOCKED)


def pod_security(engine: Engine, template: PodTemplate) -> Object:
    """Return the pod's security context, the user's merged over ours field by field."""
    ours = pod_security_of(_USERS[engine.program])
    return {**ours, **copy.deepcopy(template.security_context)}


def pod_security_of(user: int) -> Object:
    """Return the security context of every pod: Pod Security Standard `restricted`."""
    return {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def environment(
    engine: Engine,
    home: str,
    http_port: int,
    marks: dict[str, str],
    template: PodTemplate,
    java_options: str,
) -> list[Object]:
    """Return the container's variables: ours in a fixed order, then the user's."""
    values = {"HOME": home, "TMPDIR": f"{home}/scratch", **marks}
    values["FAILBACK_HTTP_PORT"] = str(http_port)
    if engine.rules == "guarded":
        values["FAILBACK_RULES"] = "guarded"
    if engine.program == "apache":
        values["JAVA_OPT_EXT"] = java_options
    return variables(values) + [
        variable.model_dump(by_alias=True, exclude_none=True) for variable in template.env
    ]


def variables(values: Mapping[str, str]) -> list[Object]:
    """Return variables of a container: what it is told of its pod, then ``values``."""
    facts: list[Object] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
        for name, path in (
            ("POD_NAME", "metadata.name"),
            ("POD_NAMESPACE", "metadata.namespace"),
            ("POD_IP", "status.podIP"),
        )
    ]
    return facts + [{"name": name, "value": value} for name, value in values.items()]


def mounts(home: str, run_dir: str, *, data: bool) -> list[Object]:
    """Return the volume mounts of every container of a pod; ``data`` adds the store."""
    places = [("conf", f"{home}/conf")]
    if data:
        places.append(("data", f"{home}/store"))
    places += [("logs", f"{home}/logs"), ("scratch", f"{home}/scratch"), ("run", run_dir)]
    desired = {"name": "desired", "mountPath": f"{home}/desired", "readOnly": True}
    return [desired, *({"name": name, "mountPath": path} for name, path in places)]


def access_folder(home: str) -> str:
    """Return the folder of the accounts, the own key, the certificate and tls.properties."""
    return f"{home}/access"


def with_access(
    pod: Object, config_map: str, home: str, acl: Acl | None, tls: Tls | None
) -> Object:
    """Return a pod whose containers find the files of its Secrets in :func:`access_folder`."""
    sources: list[Object] = []
    secrets = ((acl, ("plain_acl.yml", "tools.yml")), (tls, ("tls.crt", "tls.key", "ca.crt")))
    for given, files in secrets:
        if given is not None:
            items = [{"key": file, "path": file} for file in files]
            sources.append({"secret": {"name": given.secret_ref.name, "items": items}})
    if not sources:
        return pod
    if tls is not None:
        item = {"key": TLS_FILE, "path": TLS_FILE}
        sources.append({"configMap": {"name": config_map, "items": [item]}})
    mount = {"name": "access", "mountPath": access_folder(home), "readOnly": True}
    for container in (*pod["initContainers"], *pod["containers"]):
        container["volumeMounts"] = [*container["volumeMounts"], mount]
    pod["volumes"].append({"name": "access", "projected": {"sources": sources, "defaultMode": 288}})
    return pod


def volumes(config_map: str, engine: Engine, context: Context) -> list[Object]:
    """Return the pod's volumes: the desired configuration and the scratch space."""
    own = [{"name": "logback", "configMap": {"name": engine.logs.config_map}}]
    return [
        {"name": "desired", "configMap": {"name": config_map}},
        {"name": "conf", "emptyDir": {}},
        {"name": "logs", "emptyDir": {"sizeLimit": engine.logs.size_limit}},
        {"name": "scratch", "emptyDir": {"sizeLimit": "64Mi"}},
        {"name": "run", "emptyDir": {"sizeLimit": "16Mi"}},
        *(own if engine.logs.config_map and apache.is_bounded(context) else ()),
    ]


def bounds(context: Context, memory: str) -> Object:
    """Return the resources of a container of ours: a namespace with a quota asks for all four."""
    asked = {"cpu": "10m", "memory": "64Mi"}
    found = {"resources": {"requests": asked, "limits": {"cpu": "1", "memory": memory}}}
    return found if apache.is_bounded(context) else {}


def conf_container(home: str, file: str, context: Context, shared: Object) -> Object:
    """Return the init container that copies ``file`` to where the broker may rewrite it.

    UPDATE_BROKER_CONFIG rewrites the file the broker was started from (Configuration#persist,
    apache/rocketmq 4.9.8), which a ConfigMap mount does not allow.
    """
    target = f"{home}/conf/{file}"
    source = f"{home}/desired/{file}"
    words = ("install-conf", "--from", source, "--to", target)
    return tool_container("conf", words, "128Mi", context, shared)


def tool_container(
    name: str, words: Sequence[str], memory: str, context: Context, shared: Object, image: str = ""
) -> Object:
    """Return the init container that runs a command of ``failback tools``."""
    return {
        "name": name,
        "image": image or context.tools_image,
        "command": list(INIT),
        "args": ["tools", *words],
        **bounds(context, memory),
        **copy.deepcopy(shared),
    }


def gate_container(home: str, context: Context, shared: Object) -> Object:
    """Return the init container that only says where a log ends; its image is of the operator's own
    release: those of earlier ones have no such command."""
    image = context.image("tools", context.own_version or context.version)
    words = ("verify-prefix", "--only-read", f"{home}/store/commitlog")
    return tool_container("verify", words, "512Mi", context, shared, image)


def probes(engine: Engine, remoting_port: int, http_port: int, *, liveness: bool) -> Object:
    """Return the probes: HTTP for engine failback, the remoting port for apache."""
    if engine.program == "apache":
        ready: Object = {"tcpSocket": {"port": remoting_port}}
        alive = ready
    else:
        ready = {"httpGet": {"path": "/readyz", "port": http_port}}
        alive = {"httpGet": {"path": "/livez", "port": http_port}}
    found = {
        "startupProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 240},
        "readinessProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 3, "failureThreshold": 2},
    }
    if liveness:
        times = {"periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6}
        found["livenessProbe"] = {**alive, **times}
    return copy.deepcopy(found)


def placement(
    template: PodTemplate, mode: Spread, selector: dict[str, str], topology_key: str
) -> Object:
    """Return the scheduling fields of the pod: our anti-affinity and the user's wishes."""
    term = {"topologyKey": topology_key, "labelSelector": {"matchLabels": dict(selector)}}
    affinity: Object = {}
    if mode == "Preferred":
        preferred = [{"weight": 100, "podAffinityTerm": term}]
        affinity = {
            "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
        }
    elif mode == "Required":
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    affinity = _joined(affinity, template.affinity or {})
    wishes: dict[str, Any] = {
        "affinity": affinity,
        "tolerations": template.tolerations,
        "topologySpreadConstraints": template.topology_spread_constraints,
        "priorityClassName": template.priority_class_name,
        "serviceAccountName": template.service_account_name,
    }
    return copy.deepcopy({key: value for key, value in wishes.items() if value})


def _joined(ours: Object, theirs: Object) -> Object:
    """Return both affinities: lists of terms are joined, ours first."""
    found: dict[str, Any] = {**ours, **theirs}
    for key in ours.keys() & theirs.keys():
        one, other = ours[key], theirs[key]
        found[key] = [*one, *other] if isinstance(one, list) else _joined(one, other or {})
    return found


def resources_of(resources: Resources) -> Object:
    """Return requests and limits, absent when empty."""
    found = {"requests": resources.requests, "limits": resources.limits}
    return {key: dict(value) for key, value in found.items() if value}


def restarted_at(owner: Resource) -> dict[str, str]:
    """Return the template annotation that a `failback.dev/restart` asks for."""
    wanted = owner.metadata.annotations.get("failback.dev/restart")
    return {"failback.dev/restarted-at": wanted} if wanted else {}
