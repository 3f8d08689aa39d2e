"""What a run folder that comes from elsewhere may have in it."""

from __future__ import annotations

import json
from pathlib import Path


def kubeconfig(path: Path, proof: Path) -> Path:
    """Write a kubeconfig with a plug-in that, when it is run, makes the file ``proof``."""
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "touch",
            "args": [str(proof)],
            "interactiveMode": "Never",
        }
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(json.dumps(document))
    return path
