"""A stopped master at offset 10 of a queue, and a slave that answers 50."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.carry.stopped_master import AnsweringSlave, StoppedMaster, at


@pytest.fixture
def master(tmp_path: Path) -> StoppedMaster:
    found = StoppedMaster(tmp_path / "master")
    found.has(at(10))
    return found


@pytest.fixture
def slave(master: StoppedMaster) -> Iterator[AnsweringSlave]:
    with AnsweringSlave(master, at(50)) as found:
        yield found
