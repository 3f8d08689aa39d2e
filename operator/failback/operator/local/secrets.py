"""Secrets of guarded clusters on this machine: files of a root that all pods see.

A change of such a file is a change of the Secret. A certificate that no file of resources gives is
made here, as cert-manager makes it on Kubernetes.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from failback.client.remoting.guarded.access import ClusterAccess
from failback.client.remoting.guarded.cluster import access_by
from failback.operator.kinds.base import Resource
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.local.root import Root
from failback.protocol.errors import ConfigError

Object = Mapping[str, Any]
Secrets = Mapping[str, Mapping[str, str]]
"""Name of each Secret → its files."""
_OPENSSL: Final = (
    *("openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-days", "365"),
    *("-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=failback-local"),
)


def write_secrets(
    items: Sequence[Resource], secrets: Secrets, addresses: Sequence[str], root: Root
) -> None:
    """Write what the resources name into the root.

    Args:
        addresses: Of all pods, for certificates that are made here.

    Raises:
        ConfigError: One is missing, or lacks a file.
    """
    shutil.rmtree(root.secrets, ignore_errors=True)
    for item, field, name, files in _named(items):
        folder = root.secrets / name
        given = secrets.get(name)
        if given is None and field == "tls":
            _make_certificate(folder, addresses, f"{item.label}: spec.tls.secretRef.name")
            continue
        place = f"local: {item.label}: spec.{field}.secretRef.name"
        if given is None:
            raise ConfigError(place, f"there is no Secret {name} in these files")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in files:
            if file not in given:
                raise ConfigError(place, f"the Secret {name} has no {file}")
            (folder / file).touch(mode=0o600)
            (folder / file).write_text(given[file], encoding="utf-8")


def _named(
    items: Sequence[Resource],
) -> Iterator[tuple[Resource, str, str, tuple[str, ...]]]:
    for item in items:
        if isinstance(item, BrokerCluster) and item.spec.acl is not None:
            yield item, "acl", item.spec.acl.secret_ref.name, ("plain_acl.yml", "tools.yml")
        if isinstance(item, (BrokerCluster, NameServer)) and item.spec.tls is not None:
            yield item, "tls", item.spec.tls.secret_ref.name, ("tls.crt", "tls.key", "ca.crt")


def _make_certificate(folder: Path, addresses: Sequence[str], field: str) -> None:
    """Make a certificate that is its own authority, for all addresses."""
    certificate = folder / "tls.crt"
    if certificate.exists():
        return
    folder.mkdir(mode=0o700, parents=True)
    names = ",".join(f"IP:{each}" for each in sorted({*addresses}))
    command = [
        *(*_OPENSSL, "-addext", f"subjectAltName={names}"),
        *("-keyout", str(folder / "tls.key"), "-out", str(certificate)),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        problem = f"names no Secret of these files, and there is no openssl to make {folder.name}"
        raise ConfigError(f"local: {field}", problem) from None
    if done.returncode:
        words = done.stderr.strip().splitlines()[-1:]
        raise ConfigError(f"local: {field}", f"openssl made no certificate: {''.join(words)}")
    (folder / "tls.key").chmod(0o600)
    (folder / "ca.crt").write_bytes(certificate.read_bytes())


def links_of(volume: Object, root: Root) -> dict[str, Path]:
    """Return the files of a projected volume that come from Secrets → where they are."""
    secrets = (each["secret"] for each in volume["projected"]["sources"] if "secret" in each)
    return {
        item["path"]: root.secrets / secret["name"] / item["key"]
        for secret in secrets
        for item in secret["items"]
    }


def access_files(cluster: BrokerCluster, root: Root) -> dict[str, str]:
    """Return the settings by which commands ask a guarded cluster, as their options call them."""
    acl, tls = cluster.spec.acl, cluster.spec.tls
    found = {}
    if acl is not None:
        found["access_key_file"] = str(root.secrets / acl.secret_ref.name / "tools.yml")
    if tls is not None and tls.mode != "Disabled":
        folder = root.secrets / tls.secret_ref.name
        found["tls_ca"] = str(folder / "ca.crt")
        if tls.client_auth != "None":
            found |= {"tls_cert": str(folder / "tls.crt"), "tls_key": str(folder / "tls.key")}
    return found


def access_of(cluster: BrokerCluster, root: Root) -> ClusterAccess | None:
    """Return how the runtime itself asks a cluster's brokers."""
    return access_by(access_files(cluster, root))
