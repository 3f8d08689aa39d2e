"""DNS names as files: what pods and tests have in place of /etc/hosts.

One file for each namespace, where short names resolve, and one with full names only for processes
outside of pods. Files are rewritten in place, because bind mounts hold on to the inode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.kube_lab.api import Object

DOMAIN: Final = "cluster.local"
_OWN: Final = "127.0.0.1\tlocalhost\n"


@dataclass(slots=True)
class _Pod:
    name: str
    address: str
    labels: Mapping[str, str]
    ready: bool = False


class Hosts:
    """Names of running pods and of the services that select them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pods: dict[str, dict[str, _Pod]] = defaultdict(dict)
        self._services: dict[str, dict[str, tuple[dict[str, str], bool]]] = defaultdict(dict)
        self._everywhere: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.everywhere.write_text(_OWN)

    @property
    def everywhere(self) -> Path:
        """The file with the full names of all namespaces."""
        return self._folder / "all"

    def file(self, namespace: str) -> Path:
        """Return the file of a namespace's pods."""
        found = self._folder / f"ns-{namespace}"
        if not found.exists():
            found.write_text(_OWN)
        return found

    def add_pod(self, pod: Object, address: str) -> None:
        """Publish the name that a pod has by its hostname and subdomain, if it has one."""
        spec, metadata = pod["spec"], pod["metadata"]
        name = ""
        if spec.get("hostname") and spec.get("subdomain"):
            name = f"{spec['hostname']}.{spec['subdomain']}"
        entry = _Pod(name, address, metadata.get("labels", {}))
        self._pods[metadata["namespace"]][metadata["uid"]] = entry
        self._write(metadata["namespace"])

    def set_ready(self, namespace: str, uid: str, ready: bool) -> None:
        """Let services name the pod, or not: those that publish unready ones do so anyway."""
        entry = self._pods[namespace].get(uid)
        if entry is not None and entry.ready != ready:
            entry.ready = ready
            self._write(namespace)

    def remove_pod(self, namespace: str, uid: str) -> None:
        if self._pods[namespace].pop(uid, None) is not None:
            self._write(namespace)

    def put_service(self, service: Object, *, gone: bool = False) -> None:
        """Take over a Service. (EndpointSlices may not hold addresses of the loopback range.)"""
        metadata, spec = service["metadata"], service["spec"]
        services = self._services[metadata["namespace"]]
        if gone or not spec.get("selector"):
            services.pop(metadata["name"], None)
        else:
            publishes = bool(spec.get("publishNotReadyAddresses"))
            services[metadata["name"]] = (spec["selector"], publishes)
        self._write(metadata["namespace"])

    def _entries(self, namespace: str) -> Iterator[tuple[str, str]]:
        for pod in self._pods[namespace].values():
            if pod.name:
                yield pod.name, pod.address
            for service, (selector, publishes) in self._services[namespace].items():
                if (pod.ready or publishes) and selector.items() <= pod.labels.items():
                    yield service, pod.address

    def _write(self, namespace: str) -> None:
        own, everywhere = [_OWN], []
        for name, address in sorted(self._entries(namespace)):
            full = f"{name}.{namespace}.svc"
            own.append(f"{address}\t{full}.{DOMAIN} {full} {name}.{namespace} {name}\n")
            everywhere.append(f"{address}\t{full}.{DOMAIN} {full}\n")
        _rewrite(self.file(namespace), "".join(own))
        self._everywhere[namespace] = "".join(everywhere)
        _rewrite(self.everywhere, _OWN + "".join(self._everywhere.values()))


def _rewrite(file: Path, text: str) -> None:
    if file.read_text() != text:
        with file.open("r+") as output:
            output.write(text)
            output.truncate()
