"""The .tmp/.bak protocol of the broker's JSON files: every row of its table, every kill window."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.broker.metadata.json_config import (
    ConfigFiles,
    backup_of,
    load_json_config,
    persist_json_config,
    persist_json_config_atomically,
)
from failback.protocol.errors import CorruptStore


def parse(text: str) -> int:
    return int(text)


class Killed(BaseException):
    """The process dies here: nothing after it happens."""


class DyingFiles(ConfigFiles):
    """Does ``operations`` steps, records them, and dies before the next."""

    def __init__(self, operations: int) -> None:
        self.left = operations
        self.done: list[str] = []

    def _step(self, what: str, path: Path) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1
        self.done.append(f"{what} {path.name}")

    def write(self, path: Path, content: bytes) -> None:
        self._step("write", path)
        super().write(path, content)

    def delete(self, path: Path) -> None:
        self._step("delete", path)
        super().delete(path)

    def rename(self, source: Path, target: Path) -> None:
        self._step("rename", source)
        super().rename(source, target)

    def sync(self, path: Path) -> None:
        self._step("sync", path)
        super().sync(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "consumerOffset.json"


@pytest.mark.parametrize(
    ("content", "backup", "loaded"),
    [
        (b"7", b"6", 7),
        (b"7", b"torn{", 7),
        (b"7", None, 7),
        (None, b"6", 6),
        (b"", b"6", 6),
        (b"torn{", b"6", 6),
        (b"\xff\xfe", b"6", 6),
        (None, None, None),
        (b"", None, None),
        (b"torn{", None, None),
        (None, b"", None),
        (b"torn{", b"", None),
    ],
)
def test_loading_takes_the_file_then_its_backup_then_nothing(
    path: Path, content: bytes | None, backup: bytes | None, loaded: int | None
) -> None:
    if content is not None:
        path.write_bytes(content)
    if backup is not None:
        backup_of(path).write_bytes(backup)
    assert load_json_config(path, parse) == loaded


@pytest.mark.parametrize("content", [None, b"", b"torn{"])
def test_an_unreadable_backup_is_an_error_that_names_it(path: Path, content: bytes | None) -> None:
    if content is not None:
        path.write_bytes(content)
    backup_of(path).write_bytes(b"also torn")
    with pytest.raises(CorruptStore) as caught:
        load_json_config(path, parse)
    assert caught.value.path == backup_of(path)


def test_the_temporary_file_is_never_read(path: Path) -> None:
    path.with_name(path.name + ".tmp").write_text("8")
    assert load_json_config(path, parse) is None


def test_persisting_backs_up_deletes_and_renames_in_this_order(path: Path) -> None:
    path.write_text("1")
    files = DyingFiles(99)
    persist_json_config(path, "2", files)
    assert files.done == [
        "write consumerOffset.json.tmp",
        "write consumerOffset.json.bak",
        "delete consumerOffset.json",
        "rename consumerOffset.json.tmp",
    ]
    assert path.read_text() == "2"
    assert backup_of(path).read_text() == "1"
    assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name, path.name + ".bak"]


def test_the_first_persist_makes_the_folder_and_no_backup(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    persist_json_config(path, "1")
    assert [entry.name for entry in path.parent.iterdir()] == ["topics.json"]


def test_an_empty_file_leaves_an_empty_backup(path: Path) -> None:
    path.write_text("")
    persist_json_config(path, "2")
    assert backup_of(path).read_bytes() == b""


@pytest.mark.parametrize(
    ("operations", "survives"),
    [
        (0, 2),  # nothing happened
        (1, 2),  # .tmp written
        (2, 2),  # .bak holds 2 as well
        (3, 2),  # the file is deleted: the .bak of one persist earlier
        (4, 3),  # done
    ],
)
def test_a_kill_at_any_step_loses_at_most_one_persist(
    path: Path, operations: int, survives: int
) -> None:
    persist_json_config(path, "1")
    persist_json_config(path, "2")
    if operations < 4:
        with pytest.raises(Killed):
            persist_json_config(path, "3", DyingFiles(operations))
    else:
        persist_json_config(path, "3", DyingFiles(operations))
    assert load_json_config(path, parse) == survives


def test_a_second_kill_in_the_window_still_finds_the_backup(path: Path) -> None:
    persist_json_config(path, "1")
    with pytest.raises(Killed):
        persist_json_config(path, "2", DyingFiles(3))
    assert not path.exists()
    with pytest.raises(Killed):
        persist_json_config(path, "3", DyingFiles(2))  # no file, so no new backup either
    assert load_json_config(path, parse) == 1


def test_the_guarded_way_is_on_the_disk_before_it_takes_the_name(path: Path) -> None:
    path.write_text("1")
    files = DyingFiles(99)
    persist_json_config_atomically(path, "2", files)
    assert files.done == [
        "write consumerOffset.json.tmp",
        "sync consumerOffset.json.tmp",
        "write consumerOffset.json.bak",
        "rename consumerOffset.json.tmp",
        f"sync {path.parent.name}",
    ]
    assert path.read_text() == "2"
    assert backup_of(path).read_text() == "1"
    assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name, path.name + ".bak"]


@pytest.mark.parametrize("operations", range(5))
def test_the_guarded_way_leaves_the_newest_or_the_last_wherever_it_dies(
    path: Path, operations: int
) -> None:
    persist_json_config_atomically(path, "1")
    persist_json_config_atomically(path, "2")
    with pytest.raises(Killed):
        persist_json_config_atomically(path, "3", DyingFiles(operations))
    assert parse(path.read_text()) == (3 if operations == 4 else 2)
    assert load_json_config(path, parse) == (3 if operations == 4 else 2)
