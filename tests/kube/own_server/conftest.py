"""A control plane for each file: these tests kill it, cordon the node or watch all namespaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.kube_lab.control_plane import OwnControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess, forget_names, see_names


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnControlPlane]:
    plane = OwnControlPlane(tmp_path_factory.mktemp("kube"))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture(scope="module")
def node(control_plane: OwnControlPlane) -> Iterator[NodeProcess]:
    found = NodeProcess(control_plane)
    try:
        found.start()
        see_names(found.hosts_file)
        try:
            yield found
        finally:
            forget_names()
    finally:
        found.stop()


@pytest.fixture
def namespace(control_plane: OwnControlPlane) -> Iterator[Namespace]:
    """A namespace that admits the bare pods of these tests."""
    found = Namespace(control_plane, labels={"pod-security.kubernetes.io/enforce": "privileged"})
    try:
        yield found
    finally:
        found.clean_up()
