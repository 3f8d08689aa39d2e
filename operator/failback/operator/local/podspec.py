"""One pod as the runtime runs it, decoded from a StatefulSet and its ConfigMaps. Pure."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from failback.operator.local.addresses import loopback_address
from failback.operator.local.apache_release import Apache
from failback.operator.local.probes import Probe
from failback.operator.local.root import Root
from failback.operator.local.secrets import links_of
from failback.operator.render.broker import WHEN_CARRIED, WHEN_RELEASED
from failback.operator.render.context import POD_NAME
from failback.protocol.errors import ConfigError

Object = Mapping[str, Any]

# Variables that a pod inherits from the runtime; all others come from its template.
_INHERITED: Final = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "PYTHONPATH",
    "PYTHONWARNINGS",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "JAVA_HOME",
)
_INIT: Final = ("failback-init", "--")
_WAITS: Final[Mapping[tuple[str, ...], int]] = {
    ("sh", "-c", WHEN_RELEASED): 4,
    ("sh", "-c", WHEN_CARRIED): 5,
}
"""What waits until a broker may start, and how many words it has."""
_CARRY: Final = ("tools", "carry-serve")
_MAIN_CLASSES: Final = {
    "./mqbroker": "org.apache.rocketmq.broker.BrokerStartup",
    "./mqnamesrv": "org.apache.rocketmq.namesrv.NamesrvStartup",
}
_HEAP: Final = {
    "./mqbroker": ("-Xms512m", "-Xmx512m"),
    "./mqnamesrv": ("-Xms128m", "-Xmx256m"),
}
# Without them a clean stop of 4.9 on Java 17 fails half-way: `abort` stays, offsets are lost.
_OPENS: Final = (
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
)


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A process: what is run, with which variables, and how its health is asked for."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    startup: Probe | None = None
    readiness: Probe | None = None
    liveness: Probe | None = None


@dataclass(frozen=True, slots=True)
class Volume:
    """A folder of the pod: files of a ConfigMap, an empty folder, or a claim."""

    path: str
    files: Mapping[str, str] | None = None
    links: Mapping[str, Path] | None = None
    """Files of Secrets: where they are."""
    claim: str | None = None


@dataclass(frozen=True, slots=True)
class PodSpec:
    """Everything needed to run one pod."""

    name: str
    statefulset: str
    address: str
    home: str
    grace_seconds: float
    volumes: tuple[Volume, ...]
    inits: tuple[ContainerSpec, ...]
    container: ContainerSpec
    has_carry: bool = False
    """Whether the container runs with a sidecar that gives it offsets before its start."""
    network_namespace: str = ""
    """Where its processes run; empty: in that of the runtime."""
    prober: str = ""
    """The address that probes come from; empty: any."""

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports its probes ask at: no other program may listen there when it starts."""
        probes = (self.container.startup, self.container.readiness, self.container.liveness)
        return tuple(sorted({probe.port for probe in probes if probe is not None}))


def pods_of(
    manifest: Object,
    objects: Mapping[tuple[str, str], Object],
    root: Root,
    apache: Apache | None,
    address_of: Callable[[str], str] | None = None,
) -> list[PodSpec]:
    """Return the pods of a StatefulSet, in index order.

    Args:
        objects: All objects by kind and name; its ConfigMaps are looked up there.
        address_of: The address of a pod; ``None``: :func:`loopback_address`.
    """
    name = manifest["metadata"]["name"]
    address_of = address_of or partial(loopback_address, manifest["metadata"]["namespace"])
    return [
        _pod(f"{name}-{index}", manifest, objects, root, apache, address_of(f"{name}-{index}"))
        for index in range(manifest["spec"].get("replicas", 1))
    ]


def _pod(
    pod: str,
    manifest: Object,
    objects: Mapping[tuple[str, str], Object],
    root: Root,
    apache: Apache | None,
    address: str,
) -> PodSpec:
    namespace = manifest["metadata"]["namespace"]
    template = manifest["spec"]["template"]["spec"]
    facts = {
        "metadata.name": pod,
        "metadata.namespace": namespace,
        "status.podIP": address,
    }
    container = _container(template["containers"][0], pod, facts, apache)
    inits = template.get("initContainers", ())
    sidecars = [each for each in inits if tuple(each.get("args", ())[:2]) == _CARRY]
    for each in sidecars:
        words = _container(each, pod, facts, apache).argv
        gate = template["containers"][0]["command"][: _WAITS["sh", "-c", WHEN_CARRIED]]
        argv = beside(_at_once(words, address), [*gate, *container.argv])
        container = replace(container, argv=argv)
    claims = {
        claim["metadata"]["name"] for claim in manifest["spec"].get("volumeClaimTemplates", ())
    }
    return PodSpec(
        name=pod,
        statefulset=manifest["metadata"]["name"],
        address=address,
        home=str(root.home(pod)),
        grace_seconds=template.get("terminationGracePeriodSeconds", 30),
        volumes=tuple(_volumes(template, pod, claims, objects, root)),
        inits=tuple(
            _container(init, pod, facts, apache) for init in inits if "restartPolicy" not in init
        ),
        container=container,
        has_carry=bool(sidecars),
    )


def _at_once(words: Sequence[str], address: str) -> list[str]:
    """Return a sidecar's words, to wait for no slave: one that runs here answers at once."""
    words = [each.replace("$(POD_IP)", address) for each in words if each != "--must-know"]
    return [*words, "--wait", "0"]


def beside(sidecar: Sequence[str], words: Sequence[str]) -> tuple[str, ...]:
    """Return a command that becomes ``words``, with a sidecar in its process group.

    What is left of a group is killed with its first process, so each start has a new sidecar.
    """
    return "sh", "-c", f"{shlex.join(sidecar)} & exec {shlex.join(words)}"


def _container(
    manifest: Object, pod: str, facts: Mapping[str, str], apache: Apache | None
) -> ContainerSpec:
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    for variable in manifest.get("env", ()):
        reference = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
        value = facts[reference] if reference else variable.get("value", "")
        environment[variable["name"]] = value.replace(POD_NAME, pod)
    environment["PYTHONUNBUFFERED"] = "1"
    args = [argument.replace(POD_NAME, pod) for argument in manifest.get("args", ())]
    java_options = environment.get("JAVA_OPT_EXT", "")
    return ContainerSpec(
        name=manifest["name"],
        argv=tuple(to_argv(manifest.get("command", ()), args, java_options, apache)),
        environment=environment,
        startup=Probe.of(manifest.get("startupProbe")),
        readiness=Probe.of(manifest.get("readinessProbe")),
        liveness=Probe.of(manifest.get("livenessProbe")),
    )


def _volumes(
    template: Object,
    pod: str,
    claims: set[str],
    objects: Mapping[tuple[str, str], Object],
    root: Root,
) -> list[Volume]:
    sources = {volume["name"]: volume for volume in template.get("volumes", ())}
    found: dict[str, Volume] = {}
    for container in (*template.get("initContainers", ()), *template["containers"]):
        for mount in container.get("volumeMounts", ()):
            path = mount["mountPath"].replace(POD_NAME, pod)
            if mount["name"] in claims:
                found[path] = Volume(path, claim=f"{mount['name']}-{pod}")
            elif config_map := sources[mount["name"]].get("configMap"):
                files = objects[("ConfigMap", config_map["name"])]["data"]
                if "subPath" in mount:  # one file: its folder has no other here
                    path, _, name = path.rpartition("/")
                    files = {name: files[mount["subPath"]]}
                found[path] = Volume(path, files=files)
            elif projected := sources[mount["name"]].get("projected"):
                found[path] = Volume(
                    path, _projected(projected, objects), links_of(sources[mount["name"]], root)
                )
            else:
                found[path] = Volume(path)
    return list(found.values())


def _projected(volume: Object, objects: Mapping[tuple[str, str], Object]) -> dict[str, str]:
    """Return the files of a projected volume that come from ConfigMaps."""
    maps = (each["configMap"] for each in volume["sources"] if "configMap" in each)
    return {
        item["path"]: objects["ConfigMap", each["name"]]["data"][item["key"]]
        for each in maps
        for item in each["items"]
    }


def own_command() -> list[str]:
    """Return the command line of ``failback`` itself."""
    return [sys.executable, "-m", "failback.cli"]


def to_argv(
    command: Sequence[str], args: Sequence[str], java_options: str, apache: Apache | None
) -> list[str]:
    """Return the process to start for a container.

    Args:
        java_options: ``JAVA_OPT_EXT`` of the container, put last as the start scripts do.

    Raises:
        ConfigError: No program on this machine can run such a container.
    """
    words = [*command, *args]
    # The runtime is the parent process, and starts no pod that is held: wrappers go.
    words = words[2 if tuple(words[:2]) == _INIT else _WAITS.get(tuple(words[:3]), 0) :]
    if words and words[0] == "failback":
        return [*own_command(), *words[1:]]
    if words and words[0] in _MAIN_CLASSES and apache is not None:
        return [
            apache.java,
            *_HEAP[words[0]],
            *_OPENS,
            f"-Drocketmq.home.dir={apache.home}",
            *shlex.split(java_options),
            "-cp",
            f"{apache.libraries}/*",
            _MAIN_CLASSES[words[0]],
            *words[1:],
        ]
    raise ConfigError("local", f"cannot run {shlex.join(words)} without its image")
