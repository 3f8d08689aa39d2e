"""A file is replaced whole or not at all."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from failback.common.replacing import replace_file


def test_the_new_content_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "new" / "table.json"
    replace_file(path, b"old and long")
    replace_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(path.parent) == ["table.json"]


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "table.json"
    path.write_bytes(b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["table.json"]


def test_two_threads_may_write_the_same_file(tmp_path: Path) -> None:
    path, begin = tmp_path / "table.json", threading.Barrier(2)

    def write(content: bytes) -> None:
        begin.wait()
        for _ in range(50):
            replace_file(path, content)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, (b"one" * 1000, b"another" * 1000)))
    assert path.read_bytes() in (b"one" * 1000, b"another" * 1000)
    assert os.listdir(tmp_path) == ["table.json"]
