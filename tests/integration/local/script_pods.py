"""Pods of small scripts, for tests of the local runtime without brokers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from failback.operator.local.pod import Pod
from failback.operator.local.podspec import ContainerSpec, PodSpec, Volume
from failback.operator.local.probes import Probe
from failback.operator.local.process import Death
from failback.operator.local.root import Root

ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)}

SERVE = """
import http.server, os, signal, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists(self.path[1:]) else 503)
        self.end_headers()
        self.wfile.write(b"said so")
    def log_message(self, *args): pass
http.server.HTTPServer((sys.argv[1], int(sys.argv[2])), Handler).serve_forever()
"""
"""Answers GET /NAME with 200 while a file NAME is in its working folder, else 503."""


class Seen:
    """Remembers what a pod tells its runtime."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.deaths: list[Death] = []

    def changed(self, pod: Pod) -> None:
        if not self.states or self.states[-1] != pod.state:
            self.states.append(pod.state)

    def died(self, pod: Pod, death: Death) -> None:
        self.deaths.append(death)


def script(text: str, *args: str) -> ContainerSpec:
    """Return a container that runs a Python script."""
    return ContainerSpec("main", (sys.executable, "-c", text, *args), ENVIRONMENT)


def shell(text: str) -> ContainerSpec:
    """Return a container that runs a shell script."""
    return ContainerSpec("main", ("/bin/sh", "-c", text), ENVIRONMENT)


def pod_spec(
    root: Root,
    container: ContainerSpec,
    *,
    inits: Sequence[ContainerSpec] = (),
    volumes: Sequence[Volume] = (),
    grace_seconds: float = 5.0,
    has_carry: bool = False,
) -> PodSpec:
    """Return a pod named ``p`` at 127.0.0.1."""
    return PodSpec(
        name="p",
        statefulset="s",
        address="127.0.0.1",
        home=str(root.home("p")),
        grace_seconds=grace_seconds,
        volumes=tuple(volumes),
        inits=tuple(inits),
        container=container,
        has_carry=has_carry,
    )


def http_probe(
    port: int, path: str, *, period: float = 0.05, failures: int = 3, timeout: float = 1.0
) -> Probe:
    """Return an httpGet probe."""
    return Probe(port, path, period, timeout, failures, 1, 0)


def new_root(folder: Path) -> Root:
    """Return a root with its folders."""
    root = Root(folder / "root")
    root.create()
    return root
