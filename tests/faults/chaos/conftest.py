"""One cluster for all chaos tests of this folder: every test leaves it healed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.chaos.chaos_lab import LocalCluster, local_cluster


@pytest.fixture(scope="package")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Whose pods have networks of their own."""
    with local_cluster(tmp_path_factory.mktemp("isolated"), "--isolate-network") as cluster:
        yield cluster


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster(
        tmp_path_factory.mktemp("cluster"), "--faults", "clock,disk,memory"
    ) as cluster:
        yield cluster
