"""DNS names as files: what pods and tests have in place of /etc/hosts.

One file for each pod, which has its own name first and the short names of its namespace beside the
full names of all namespaces, and one with full names, and that of this machine, for processes
outside of pods. Files are rewritten in place, because bind mounts hold on to the inode.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.kube_lab.api import Object

DOMAIN: Final = "cluster.local"
_API: Final = f"kubernetes.default.svc.{DOMAIN} kubernetes.default.svc kubernetes.default"


@dataclass(slots=True)
class _Pod:
    name: str
    address: str
    labels: Mapping[str, str]
    file: Path
    own: str
    """The first line of its file: what it calls itself."""
    ready: bool = False


class Hosts:
    """Names of running pods, of the services that select them, and of the API server."""

    def __init__(self, folder: Path, api_address: str) -> None:
        self._folder = folder
        api = f"{api_address}\t{_API}\n"
        self._first = f"127.0.0.1\tlocalhost\n{api}"
        self._outside = f"127.0.0.1\tlocalhost {socket.gethostname()}\n{api}"
        self._pods: dict[str, dict[str, _Pod]] = defaultdict(dict)
        self._services: dict[str, dict[str, tuple[dict[str, str], bool]]] = defaultdict(dict)
        self._everywhere: dict[str, str] = {}
        self._short: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self.everywhere.write_text(self._outside)

    @property
    def everywhere(self) -> Path:
        """The file with the full names of all namespaces."""
        return self._folder / "all"

    def file(self, namespace: str, uid: str) -> Path:
        """Return the file of a pod that was added."""
        return self._pods[namespace][uid].file

    def add_pod(self, pod: Object, address: str) -> None:
        """Publish the name that a pod has by its hostname and subdomain, if it has one."""
        spec, metadata = pod["spec"], pod["metadata"]
        name = ""
        if spec.get("hostname") and spec.get("subdomain"):
            name = f"{spec['hostname']}.{spec['subdomain']}"
        file = self._folder / f"pod-{metadata['uid']}"
        file.touch()
        own = f"{address}\t{spec.get('hostname', metadata['name'])}\n"
        entry = _Pod(name, address, metadata.get("labels", {}), file, own)
        self._pods[metadata["namespace"]][metadata["uid"]] = entry
        self._write(metadata["namespace"])

    def set_ready(self, namespace: str, uid: str, ready: bool) -> None:
        """Let services name the pod, or not: those that publish unready ones do so anyway."""
        entry = self._pods[namespace].get(uid)
        if entry is not None and entry.ready != ready:
            entry.ready = ready
            self._write(namespace)

    def remove_pod(self, namespace: str, uid: str) -> None:
        entry = self._pods[namespace].pop(uid, None)
        if entry is not None:
            entry.file.unlink()
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
        found = sorted(self._entries(namespace))
        self._short[namespace] = "".join(f"{address}\t{name}\n" for name, address in found)
        ends = (f"{namespace}.svc.{DOMAIN}", f"{namespace}.svc", namespace)
        self._everywhere[namespace] = "".join(
            f"{address}\t{' '.join(f'{name}.{end}' for end in ends)}\n" for name, address in found
        )
        full = "".join(self._everywhere.values())
        _rewrite(self.everywhere, self._outside + full)
        for each, pods in self._pods.items():
            for pod in pods.values():
                _rewrite(pod.file, f"{pod.own}{self._first}{full}{self._short.get(each, '')}")


def _rewrite(file: Path, text: str) -> None:
    if file.read_text() != text:
        with file.open("r+") as output:
            output.write(text)
            output.truncate()
