"""What the local runtime honours, accepts without effect, and refuses.

An object is refused before anything starts, by the path of its first field that the local runtime
would not act on. A restriction that is silently ignored would make an experiment lie.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Final

from failback.operator.local.root import Root
from failback.protocol.errors import ConfigError

Object = Mapping[str, Any]

_ACCEPTED_KINDS: Final = ("ConfigMap", "Service", "PodDisruptionBudget")
_SET: Final = {
    "replicas",
    "serviceName",
    "podManagementPolicy",
    "minReadySeconds",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "selector",
    "template",
    "volumeClaimTemplates",
}
_POD: Final = {
    "terminationGracePeriodSeconds",
    "automountServiceAccountToken",
    "enableServiceLinks",
    "securityContext",
    "affinity",
    "initContainers",
    "containers",
    "volumes",
    "imagePullSecrets",
    "shareProcessNamespace",
    "restartPolicy",
}
_CONTAINER: Final = {
    "name",
    "image",
    "imagePullPolicy",
    "command",
    "args",
    "env",
    "ports",
    "resources",
    "securityContext",
    "volumeMounts",
    "startupProbe",
    "readinessProbe",
    "livenessProbe",
    "lifecycle",
    "terminationMessagePolicy",
}
_PROBE: Final = {
    "httpGet",
    "tcpSocket",
    "periodSeconds",
    "timeoutSeconds",
    "failureThreshold",
    "successThreshold",
    "initialDelaySeconds",
}
FIELD_REFERENCES: Final = ("metadata.name", "metadata.namespace", "status.podIP")
WITHOUT_EFFECT: Final = (
    "images and pull settings, resources, security contexts, Services, disruption budgets,"
    " owner references, preferred anti-affinity, size limits, preStop,"
    " termination messages"
)


def refuse_unsupported(objects: Sequence[Object], root: Root) -> None:
    """Check every object.

    Raises:
        ConfigError: The first field that can't be honoured, by path, with its pair and member.
    """
    for manifest in objects:
        for path in _unsupported(manifest, root):
            labels = manifest["metadata"].get("labels", {})
            where = ""
            if "failback.dev/member" in labels:
                where = (
                    f" (pair {labels['failback.dev/pair']}, member {labels['failback.dev/member']})"
                )
            name = f"{manifest['kind']}/{manifest['metadata']['name']}"
            raise ConfigError(
                f"local: {name}", f"{path} is not supported by the local runtime{where}"
            )


def _unsupported(manifest: Object, root: Root) -> Iterator[str]:
    if manifest["kind"] in _ACCEPTED_KINDS:
        return
    if manifest["kind"] != "StatefulSet":
        yield "this kind of object"
        return
    spec = manifest["spec"]
    yield from _others("spec", spec, _SET)
    yield from _pod(spec["template"]["spec"], spec.get("replicas", 1), root)


def _pod(pod: Object, replicas: int, root: Root) -> Iterator[str]:
    path = "spec.template.spec"
    yield from _others(path, pod, _POD)
    if pod.get("restartPolicy", "Always") != "Always":
        yield f"{path}.restartPolicy"
    affinity, where = pod.get("affinity", {}), f"{path}.affinity"
    yield from _others(where, affinity, ("podAntiAffinity",))
    preferred = ("preferredDuringSchedulingIgnoredDuringExecution",)
    yield from _others(f"{where}.podAntiAffinity", affinity.get("podAntiAffinity", {}), preferred)
    for index, volume in enumerate(pod.get("volumes", ())):
        known = ("name", "configMap", "emptyDir", "projected")
        yield from _others(f"{path}.volumes[{index}]", volume, known)
        if volume["name"] == "logback":  # a ConfigMap of somebody else
            yield f"{path}.volumes[{index}].configMap"
    if len(pod["containers"]) != 1:
        yield f"{path}.containers[1]"
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(pod.get(kind, ())):
            yield from _container(container, f"{path}.{kind}[{index}]", root)
    if replicas > 1 and (pod["containers"][0].get("args") or [""])[0] == "./mqnamesrv":
        # 4.9 has no bind address: replicas of one template would share a port on all addresses.
        yield "spec.replicas above 1 with engine apache"


def _others(path: str, given: Object, known: Container[str]) -> Iterator[str]:
    """Yield the paths of fields that are not among the known ones."""
    return (f"{path}.{field}" for field in given if field not in known)


def _container(container: Object, path: str, root: Root) -> Iterator[str]:
    known = _CONTAINER | ({"restartPolicy"} if container["name"] == "carry" else set())
    yield from _others(path, container, known)
    for index, variable in enumerate(container.get("env", ())):
        yield from _environment(variable, f"{path}.env[{index}]")
    for index, mount in enumerate(container.get("volumeMounts", ())):
        fields = ("name", "mountPath", "readOnly", "subPath")
        yield from _others(f"{path}.volumeMounts[{index}]", mount, fields)
        if not mount["mountPath"].startswith(f"{root.path / 'pods'}/"):
            yield f"{path}.volumeMounts[{index}].mountPath {mount['mountPath']}"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        yield from _others(f"{path}.{probe}", container.get(probe, {}), _PROBE)
    yield from _others(f"{path}.lifecycle", container.get("lifecycle", {}), ("preStop",))


def _environment(variable: Object, path: str) -> Iterator[str]:
    source = variable.get("valueFrom", {})
    for kind in source:
        reference = source[kind].get("fieldPath") if kind == "fieldRef" else None
        if reference not in FIELD_REFERENCES:
            yield f"{path}.valueFrom.{kind}"
