"""What a pod's manifest means on this machine. Pure, but for looking commands up.

Apache's servers are run from their jars, in the version that their image has.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.setup_java import cache_folder, once

from failback.operator.local.apache_release import DEFAULT_VERSION, find_apache
from failback.operator.local.podspec import own_command, to_argv
from tests.support.kube_lab.api import Object

_INHERITED: Final = ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "PYTHONPATH", "JAVA_HOME")
_BIN: Final = str(Path(sys.executable).parent)
_APACHE: Final = ("./mqbroker", "./mqnamesrv")
_OWN_ADDRESS: Final = Path(__file__).with_name("own_address.c")
_REFERENCE: Final = re.compile(r"\$\$|\$\(([A-Za-z_][-A-Za-z0-9_.]*)\)")
DEFAULT_GRACE_SECONDS: Final = 30
TERMINATION_LOG: Final = "/dev/termination-log"
MISSING_TAG: Final = ":does-not-exist"
"""Images with this tag cannot be pulled."""


def search_path() -> str:
    """Return the PATH of containers: our own commands before the machine's."""
    return os.pathsep.join([_BIN, os.environ.get("PATH", os.defpath)])


def field_value(pod: Object, path: str, address: str, node_address: str) -> str:
    """Return what a fieldRef refers to; raises :class:`LookupError` for fields unknown here."""
    metadata = pod["metadata"]
    known = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
        "status.podIP": address,
        "status.podIPs": address,
        "status.hostIP": node_address,
    }
    if path in known:
        return str(known[path])
    named = re.fullmatch(r"metadata\.(labels|annotations)\['(.+)'\]", path)
    if named is None:
        raise LookupError(f"fieldRef {path} is not known here")
    return str(metadata.get(named[1], {}).get(named[2], ""))


def expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` by variables; an unknown one stays as it is, ``$$`` becomes ``$``."""

    def value(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        return environment.get(found[1], found[0])

    return _REFERENCE.sub(value, text)


def base_environment(api_server: str) -> dict[str, str]:
    """Return the variables that every container has."""
    host, _, port = api_server.removeprefix("https://").partition(":")
    found = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {
        **found,
        "PATH": search_path(),
        "PYTHONUNBUFFERED": "1",
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
    }


def local_argv(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command line that runs here for a container's command and arguments."""
    argv = list(words)
    for place, word in enumerate(argv):
        if word in _APACHE:  # behind a shell that waits, perhaps
            apache = find_apache(environment.get("ROCKETMQ_VERSION", DEFAULT_VERSION))
            java = to_argv(argv[place:], (), environment.get("JAVA_OPT_EXT", ""), apache)
            return [*argv[:place], *_at_own_address(environment), *java]
    path = environment.get("PATH")
    if argv[:2] == ["failback-init", "--"] and shutil.which("failback-init", path=path) is None:
        argv = argv[2:]
    if argv[0] == "failback" and shutil.which("failback", path=path) is None:
        argv = [*own_command(), *argv[1:]]
    return argv


def _at_own_address(environment: Mapping[str, str]) -> list[str]:
    """Return what lets a server that binds every address have its port at the pod's alone."""
    address = environment.get("POD_IP")
    if address is None:
        return []
    return ["env", f"LD_PRELOAD={_own_address()}", f"LAB_POD_ADDRESS={address}"]


@functools.cache
def _own_address() -> Path:
    def build(folder: Path) -> None:
        library = folder / "own_address.so"
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(_OWN_ADDRESS)]
        subprocess.run([*command, "-ldl"], check=True)

    return once(cache_folder() / "kube-lab", [_OWN_ADDRESS], build) / "own_address.so"


def command_of(container: Object, entrypoint: Sequence[str], command: Sequence[str]) -> list[str]:
    """Return command and arguments: the container's own, else its image's."""
    if container.get("command"):
        return [*container["command"], *container.get("args", ())]
    return [*entrypoint, *(container.get("args") or command)]


def numbered(probe: Object | None, container: Object) -> Object | None:
    """Return a probe whose port is a number: names are looked up among the container's ports."""
    if probe is None:
        return None
    ports = {port.get("name"): port["containerPort"] for port in container.get("ports", ())}
    for action in ("httpGet", "tcpSocket"):
        asked = probe.get(action)
        if asked is not None and not isinstance(asked["port"], int):
            named = ports.get(asked["port"])
            number = int(asked["port"]) if named is None else named
            return {**probe, action: {**asked, "port": number}}
    return probe


def grace_seconds(pod: Object) -> float:
    """Return how long containers have after SIGTERM: the deletion's, else the template's."""
    asked = pod["metadata"].get("deletionGracePeriodSeconds")
    own = pod["spec"].get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    return float(own if asked is None else asked)


def restarts(policy: str, code: int) -> bool:
    """Tell whether a container that ended with ``code`` is started again."""
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def can_pull(container: Object) -> bool:
    return not container.get("image", "").endswith(MISSING_TAG)


def fits(pod: Object, labels: Mapping[str, str]) -> bool:
    """Tell whether the pod may run on a node with these labels."""
    wanted: dict[str, Any] = pod["spec"].get("nodeSelector") or {}
    return all(labels.get(name) == value for name, value in wanted.items())
