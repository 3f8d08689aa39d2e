"""DNS names as files: what pods and tests have in place of /etc/hosts.

One file for each namespace, where short names resolve, and one with full names only for processes
outside of pods. Files are rewritten in place, because bind mounts hold on to the inode.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.kube_lab.api import Object

DOMAIN: Final = "cluster.local"
_OWN: Final = "127.0.0.1\tlocalhost\n"


class Hosts:
    """Names of running pods and of services' endpoints."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pods: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
        self._slices: dict[str, dict[str, list[tuple[str, str]]]] = defaultdict(dict)
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
        if spec.get("hostname") and spec.get("subdomain"):
            name = f"{spec['hostname']}.{spec['subdomain']}"
            self._pods[metadata["namespace"]][metadata["uid"]] = (name, address)
            self._write(metadata["namespace"])

    def remove_pod(self, namespace: str, uid: str) -> None:
        if self._pods[namespace].pop(uid, None) is not None:
            self._write(namespace)

    def put_slice(self, endpoint_slice: Object, *, gone: bool = False) -> None:
        """Take over an EndpointSlice: ready endpoints get the service's name."""
        metadata = endpoint_slice["metadata"]
        names = self._slices[metadata["namespace"]]
        service = metadata.get("labels", {}).get("kubernetes.io/service-name")
        found = [] if gone or service is None else list(_endpoints(endpoint_slice, service))
        if names.get(metadata["name"], []) != found:
            names[metadata["name"]] = found
            self._write(metadata["namespace"])

    def forget_slices(self) -> None:
        """Begin anew, before a list of all slices."""
        for namespace in list(self._slices):
            self._slices[namespace].clear()

    def _write(self, namespace: str) -> None:
        entries = {*self._pods[namespace].values()}
        for found in self._slices[namespace].values():
            entries.update(found)
        lines = [_OWN]
        for name, address in sorted(entries):
            full = f"{name}.{namespace}.svc"
            lines.append(f"{address}\t{full}.{DOMAIN} {full} {name}.{namespace} {name}\n")
        _rewrite(self.file(namespace), "".join(lines))
        self._write_everywhere()

    def _write_everywhere(self) -> None:
        lines = [_OWN]
        for namespace in sorted({*self._pods, *self._slices}):
            for line in self.file(namespace).read_text().splitlines()[1:]:
                address, names = line.split("\t")
                lines.append(f"{address}\t{' '.join(names.split()[:2])}\n")
        _rewrite(self.everywhere, "".join(lines))


def _endpoints(endpoint_slice: Object, service: str) -> Iterator[tuple[str, str]]:
    """Yield name and address; readiness that is not told counts as ready."""
    for endpoint in endpoint_slice.get("endpoints") or ():
        if endpoint.get("conditions", {}).get("ready", True) is False:
            continue
        for address in endpoint["addresses"]:
            yield service, address
            if endpoint.get("hostname"):
                yield f"{endpoint['hostname']}.{service}", address


def _rewrite(file: Path, text: str) -> None:
    if file.read_text() != text:
        with file.open("r+") as output:
            output.write(text)
            output.truncate()
