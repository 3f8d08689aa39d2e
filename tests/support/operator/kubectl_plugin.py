"""The kubectl plugin as a process of its own, as kubectl starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

from tests.support.kube_lab.namespaces import Namespace


def plugin(namespace: Namespace, *words: str) -> tuple[int, str, str]:
    """Run a command of the plugin in a namespace; return its code, and what it said on both."""
    done = subprocess.run(
        [sys.executable, "-m", "failback.cli.kubectl", *words],
        env={**os.environ, "KUBECONFIG": str(namespace.kubeconfig)},
        cwd=namespace.folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    print(f"$ kubectl failback {' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.returncode, done.stdout, done.stderr


def answer(namespace: Namespace, *words: str) -> Any:
    """Return what a command prints for machines."""
    code, said, problem = plugin(namespace, *words, "--json")
    assert code == 0, problem
    return json.loads(said)
