"""A cluster of either engine for one test; whatever runs at its end is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.java.apache import client_home, server_home
from tests.support.java.java_lab import Lab


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    server_home()
    client_home()
    lab = Lab(tmp_path)
    try:
        yield lab
    finally:
        lab.dispose()
