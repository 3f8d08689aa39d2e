"""A cluster of either engine for one test; whatever runs at its end is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.setup_java import SERVER_VERSION

from tests.support.java.apache import client_folders, server_home
from tests.support.java.java_lab import Lab


@pytest.fixture
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab with Apache's servers of the version that the test is parametrized by."""
    version = getattr(request, "param", SERVER_VERSION)
    server_home(version)
    client_folders()
    lab = Lab(tmp_path, version)
    try:
        yield lab
    finally:
        lab.dispose()
