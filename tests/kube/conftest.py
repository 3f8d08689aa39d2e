"""Fixtures of the Kubernetes tests: one control plane for all, a namespace for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess, see_names
from tests.support.kube_lab.proxy import MisbehavingProxy
from tests.support.kube_lab.shared import shared_lab


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real API server with its store and controllers, and a node; all workers share it."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with shared_lab(folder / "kube-lab") as plane:
        yield plane


@pytest.fixture(scope="session")
def node(control_plane: ControlPlane) -> NodeProcess:
    """The lab's node, which runs the pods of all namespaces; their names resolve here."""
    found = NodeProcess(control_plane)
    see_names(found.hosts_file)
    return found


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
