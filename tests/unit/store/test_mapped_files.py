"""Mapped files on the real file system: creation, mapping, the lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from failback.broker.store.log.files import OsFiles
from failback.broker.store.log.mapped_file import MappedFileQueue, OpenFiles
from failback.protocol.errors import StoreError
from tests.support.store.store_kit import assert_queues_agree_with_log, open_store, put_all


def make_queue(directory: Path, *, limit: int = 3, file_bytes: int = 4096) -> MappedFileQueue:
    files = OsFiles()
    return MappedFileQueue(files, OpenFiles(files, limit), directory, file_bytes, durable=True)


def test_a_file_appears_at_its_full_length_and_with_nothing_beside_it(tmp_path: Path) -> None:
    seen = []
    real_rename = os.rename

    def rename(source: Path, target: Path) -> None:
        seen.append((source.stat().st_size, source.parent, sorted(os.listdir(target.parent))))
        real_rename(source, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "rename", rename)
        make_queue(tmp_path / "log").write_at(100, b"x")
    # The directory itself never holds a file of another name or size: Java would not start.
    assert seen == [(4096, tmp_path, [])]
    assert os.listdir(tmp_path) == ["log"]


def test_a_file_that_can_t_be_made_leaves_nothing(tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "log", file_bytes=1 << 62)
    with pytest.raises(OSError, match="too large"):
        queue.write_at(0, b"x")
    assert os.listdir(tmp_path) == ["log"]
    assert os.listdir(tmp_path / "log") == []


def test_written_bytes_are_seen_through_a_mapping_made_before(tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "log")
    queue.write_at(0, b"one")
    view = queue.read(0, 4096)
    queue.write_at(3, b"two")
    assert bytes(view[:8]) == b"onetwo\0\0"
    assert view.readonly


def test_cold_files_are_closed_and_come_back(tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "log", limit=3)
    descriptors = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        queue.write_at(number * 4096, bytes([number]))
        assert bytes(queue.read(number * 4096, number * 4096 + 1)) == bytes([number])
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2 * 3
    assert [bytes(queue.read(n * 4096, n * 4096 + 1)) for n in range(20)] == [
        bytes([n]) for n in range(20)
    ]


def test_the_coldest_file_is_the_one_that_is_closed(tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "log", limit=2)
    for number in (0, 1, 0, 2):
        queue.write_at(number * 4096, b"x")
    assert [file.handle is not None for file in queue.files] == [True, False, True]


def test_a_view_outlives_its_file(tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "log")
    queue.write_at(0, b"still here")
    view = queue.read(0, 10)
    queue.delete_all()
    assert bytes(view) == b"still here"
    assert not (tmp_path / "log").exists()


def test_zeroing_leaves_what_is_before(tmp_path: Path) -> None:
    queue = make_queue(tmp_path / "log", file_bytes=1 << 22)
    for at in (0, 100_000, 3_000_000):
        queue.write_at(at, b"data")
    queue.zero_from(2)
    assert bytes(queue.read(0, 1 << 22)) == b"da".ljust(1 << 22, b"\0")


def test_a_store_with_one_open_file_of_each_kind_works(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_mapped_log_files=1, max_mapped_queue_files=1)
    for number in range(60):
        put_all(store, bytes([number]) * 90, queue_id=number % 5)
    assert_queues_agree_with_log(store)
    store.close()


def test_another_process_can_t_open_a_store_in_use(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    code = (
        "import sys; from pathlib import Path; "
        "from failback.broker.store.log.files import OsFiles; "
        "OsFiles().lock(Path(sys.argv[1]) / 'lock')"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert second.returncode == 1
    assert "another broker uses this store" in second.stderr
    assert f"{tmp_path / 'lock'} is held by pid {os.getpid()} (" in second.stderr
    assert "pytest" in second.stderr
    store.close()
    subprocess.run(command, env=environment, check=True)


def test_a_store_whose_start_failed_gives_the_lock_back(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    stray = tmp_path / "commitlog" / f"{0:020d}"
    stray.touch()
    with pytest.raises(StoreError):
        open_store(tmp_path)
    stray.unlink()
    open_store(tmp_path).close()
