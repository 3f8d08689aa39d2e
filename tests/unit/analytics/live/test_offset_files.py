"""A broker's word chooses which offset file is read here: a pipe or a large file costs nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from failback.analytics.live.offset_file import of_broker

pytestmark = pytest.mark.foreign


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "config").mkdir()
    return tmp_path / "config" / "consumerOffset.json"


def test_a_pipe_is_no_file_and_is_not_waited_for(tmp_path: Path, file: Path) -> None:
    os.mkfifo(file)
    assert of_broker("127.0.0.1:10911", {"storePathRootDir": str(tmp_path)}) is None


def test_a_file_larger_than_any_table_is_not_read(tmp_path: Path, file: Path) -> None:
    with file.open("wb") as large:
        large.truncate(1 << 40)
    assert of_broker("127.0.0.1:10911", {"storePathRootDir": str(tmp_path)}) is None


def test_a_table_is_read(tmp_path: Path, file: Path) -> None:
    file.write_text('{"offsetTable":{"orders@billing":{0:5}}}')
    found = of_broker("127.0.0.1:10911", {"storePathRootDir": str(tmp_path)})
    assert found is not None
    assert list(found.table.values()) == [{0: 5}]
