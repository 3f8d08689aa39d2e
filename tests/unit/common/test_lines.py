"""A line that must be whole: on a disk that takes a part, at every length, and for every writer."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from failback.chaos.run_folder.undo_ledger import UndoLedger, read_ledger
from failback.common.files import append_line
from failback.init.processes import Identity
from failback.init.records import RunDirectory

pytestmark = pytest.mark.foreign


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond ``size`` bytes: the disk takes a part, then none."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("before", [b"", b"first\n"])
@pytest.mark.parametrize("taken", range(0, 21, 4))
def test_a_line_is_whole_or_not_there(tmp_path: Path, before: bytes, taken: int) -> None:
    path = tmp_path / "lines"
    path.write_bytes(before)
    with files_of_at_most(len(before) + taken), pytest.raises(OSError, match="lines"):
        append_line(path, b"x" * 20)
    assert path.read_bytes() == before
    append_line(path, b"second")
    assert path.read_bytes() == before + b"second\n"


def test_a_line_that_a_crash_cut_is_ended_first(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"cut')
    append_line(path, b'{"whole":1}')
    assert path.read_bytes() == b'{"cut\n{"whole":1}\n'


def test_a_line_is_synced_with_the_name_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def note(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    append_line(tmp_path / "lines", b"1")
    append_line(tmp_path / "lines", b"2")
    assert synced == ["lines", tmp_path.name, "lines"]


def test_a_line_that_can_not_be_synced_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lines"
    append_line(path, b"1")

    def fail(_descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="Input"):
        append_line(path, b"2")
    assert path.read_bytes() == b"1\n"


def write_ledger(folder: Path) -> None:
    UndoLedger(folder).add("release", {"pod": "main-0-0", "text": "x" * 200}, "f1")


def write_death(folder: Path) -> None:
    RunDirectory(str(folder)).signal_sent(Identity(7, 8), 9, {"by": "x" * 200})


WRITERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "ledger": (write_ledger, "undo.jsonl"),
    "init": (write_death, "signals.jsonl"),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("taken", [0, 1, 100])
def test_who_records_hears_of_it_and_records_the_next(
    tmp_path: Path, writer: str, taken: int
) -> None:
    write, name = WRITERS[writer]
    with files_of_at_most(taken), pytest.raises(OSError, match=name):
        write(tmp_path)
    write(tmp_path)
    lines = (tmp_path / name).read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 1
    if writer == "ledger":
        assert [entry.id for entry in read_ledger(tmp_path / name)] == ["u0001"]
