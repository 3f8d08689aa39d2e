"""The .tmp/.bak protocol of the broker's JSON files: every row of its table, every kill window."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from failback.broker.metadata.json_config import (
    ConfigFiles,
    TableFile,
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

    def write(self, path: Path, content: bytes, *, sync: bool = False) -> None:
        self._step("write and sync" if sync else "write", path)
        super().write(path, content, sync=sync)

    def delete(self, path: Path) -> None:
        self._step("delete", path)
        super().delete(path)

    def rename(self, source: Path, target: Path) -> None:
        self._step("rename", source)
        super().rename(source, target)

    def sync_folder(self, path: Path) -> None:
        self._step("sync", path)
        super().sync_folder(path)


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
        (b"\0\0\0", b"6", 6),
        (None, None, None),
        (b"", None, None),
        (None, b"", None),
        (b"\0\0", b"\n", None),
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
    assert caught.value.path == (path if content else backup_of(path))
    assert str(path) in str(caught.value)


@pytest.mark.foreign
@pytest.mark.parametrize("is_guarded", [False, True])
@pytest.mark.parametrize("backup", [None, b"", b"\0\0\0\0"])
@pytest.mark.parametrize("content", [b"torn{", b"7,", b"\xff\xfe"])
def test_a_damaged_file_without_a_backup_is_refused_by_name(
    path: Path, content: bytes, backup: bytes | None, is_guarded: bool
) -> None:
    path.write_bytes(content)
    if backup is not None:
        backup_of(path).write_bytes(backup)
    with pytest.raises(CorruptStore, match=path.name) as caught:
        load_json_config(path, parse, is_guarded=is_guarded)
    assert caught.value.path == path
    assert path.read_bytes() == content


@pytest.mark.foreign
@pytest.mark.parametrize(
    ("content", "backup"), [(b"", None), (b"", b""), (None, b""), (b"\0" * 4096, b"\0")]
)
def test_the_guarded_rules_refuse_a_table_without_a_byte(
    path: Path, content: bytes | None, backup: bytes | None
) -> None:
    for each, its in ((path, content), (backup_of(path), backup)):
        if its is not None:
            each.write_bytes(its)
    with pytest.raises(CorruptStore, match="is empty"):
        load_json_config(path, parse, is_guarded=True)
    assert load_json_config(path, parse) is None


def test_the_guarded_rules_begin_empty_where_there_was_never_a_file(path: Path) -> None:
    assert load_json_config(path, parse, is_guarded=True) is None


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
        "write and sync consumerOffset.json.tmp",
        "write consumerOffset.json.bak",
        "rename consumerOffset.json.tmp",
        f"sync {path.parent.name}",
    ]
    assert path.read_text() == "2"
    assert backup_of(path).read_text() == "1"
    assert sorted(entry.name for entry in path.parent.iterdir()) == [path.name, path.name + ".bak"]


@pytest.mark.parametrize("operations", range(4))
def test_the_guarded_way_leaves_the_newest_or_the_last_wherever_it_dies(
    path: Path, operations: int
) -> None:
    persist_json_config_atomically(path, "1")
    persist_json_config_atomically(path, "2")
    with pytest.raises(Killed):
        persist_json_config_atomically(path, "3", DyingFiles(operations))
    assert parse(path.read_text()) == (3 if operations == 3 else 2)
    assert load_json_config(path, parse) == (3 if operations == 3 else 2)


# --- one table's file -------------------------------------------------------------------------


@pytest.fixture(params=[False, True], ids=["compat", "guarded"])
def table(path: Path, request: pytest.FixtureRequest) -> TableFile:
    return TableFile(path, lambda: request.param)


def test_an_older_text_never_replaces_a_newer_one(table: TableFile) -> None:
    older = table.next_generation()
    table.write("2")
    table.write("1", older)
    assert table.path.read_text() == "2"


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond ``size`` bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_the_disk_refused_is_written_when_there_is_room(table: TableFile) -> None:
    table.write("1")
    with files_of_at_most(0):
        table.keep(lambda: "22")
        table.retry()
        assert table.is_waiting
    assert table.path.read_text() == "1"
    assert not table.path.with_name(table.path.name + ".tmp").exists()
    table.retry()
    assert table.path.read_text() == "22"
    assert not table.is_waiting


def test_what_is_written_meanwhile_is_not_written_over(table: TableFile) -> None:
    with files_of_at_most(0):
        table.keep(lambda: "1")
    table.write("2")
    table.retry()
    assert table.path.read_text() == "2"


@pytest.mark.parametrize("number", [errno.EIO, errno.EROFS])
def test_a_broken_disk_is_told_and_not_tried_again(
    table: TableFile, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), "topics.json")

    monkeypatch.setattr(ConfigFiles, "write", refuse)
    with pytest.raises(OSError, match=r"topics\.json"):
        table.keep(lambda: "1")
    assert not table.is_waiting
