"""Fixtures of the Kubernetes tests: one control plane per run, one namespace per test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess, see_names
from tests.support.kube_lab.proxy import MisbehavingProxy


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real API server with its store and controllers."""
    plane = ControlPlane(Path(tmp_path_factory.mktemp("kube")))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="session")
def node(control_plane: ControlPlane) -> Iterator[NodeProcess]:
    """A node that runs the pods of all namespaces; their names resolve in this process."""
    found = NodeProcess(control_plane)
    try:
        found.start()
        see_names(found.hosts_file)
        yield found
    finally:
        found.stop()


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[Namespace]:
    """A namespace of the test's own."""
    found = Namespace(control_plane)
    try:
        yield found
    finally:
        found.clean_up()


@pytest.fixture
def proxy(control_plane: ControlPlane) -> Iterator[MisbehavingProxy]:
    """A proxy in front of the API server; well-behaved until told otherwise."""
    found = MisbehavingProxy(control_plane)
    found.start()
    try:
        yield found
    finally:
        found.stop()
