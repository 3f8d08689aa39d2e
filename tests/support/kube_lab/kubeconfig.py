"""Kubeconfig files: written for every identity and server, read by our own clients."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Access:
    """What a client needs: the server's URL, whom it trusts, and the bearer token."""

    server: str
    ca_file: Path
    token: str


def write_kubeconfig(file: Path, access: Access, namespace: str = "default") -> Path:
    """Write a kubeconfig (JSON is YAML) that only its owner can read."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "lab",
                "cluster": {
                    "server": access.server,
                    "certificate-authority": str(access.ca_file),
                },
            }
        ],
        "users": [{"name": "user", "user": {"token": access.token}}],
        "contexts": [
            {"name": "lab", "context": {"cluster": "lab", "user": "user", "namespace": namespace}}
        ],
        "current-context": "lab",
    }
    file.touch(mode=0o600)
    file.write_text(json.dumps(content, indent=1))
    return file


def read_kubeconfig(file: Path) -> Access:
    """Read one that :func:`write_kubeconfig` wrote."""
    content = json.loads(file.read_text())
    cluster = content["clusters"][0]["cluster"]
    token = content["users"][0]["user"]["token"]
    return Access(cluster["server"], Path(cluster["certificate-authority"]), token)
