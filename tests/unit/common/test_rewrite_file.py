"""Files that people own are rewritten whole, wherever they are mounted, or stay as they were."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from failback.broker.config.config import BrokerConfig
from failback.common.replacing import rewrite_file

pytestmark = pytest.mark.foreign

OLD = b"brokerName=a\n# the old one is longer\nbrokerPermission=6\n"
CONTENTS = [b"", b"brokerName=b\n", OLD, OLD + b"x=1\n" * 1000]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "broker.conf"
    file.write_bytes(OLD)
    file.chmod(0o640)
    return file


@pytest.mark.parametrize("content", CONTENTS)
def test_a_file_is_replaced_and_keeps_its_mode(file: Path, content: bytes) -> None:
    inode = file.stat().st_ino
    rewrite_file(file, content)
    assert file.read_bytes() == content
    assert (file.stat().st_mode & 0o777, file.stat().st_ino == inode) == (0o640, False)
    assert sorted(path.name for path in file.parent.iterdir()) == [file.name, f"{file.name}.bak"]
    assert file.with_name("broker.conf.bak").read_bytes() == OLD


def test_a_file_that_is_gone_is_made(tmp_path: Path) -> None:
    rewrite_file(tmp_path / "new" / "broker.conf", b"a=b\n")
    assert (tmp_path / "new" / "broker.conf").read_bytes() == b"a=b\n"


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("number", [errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EROFS])
def test_a_file_that_cannot_be_replaced_is_written_over(
    file: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, number: int
) -> None:
    inode = file.stat().st_ino
    refuse_to_replace(monkeypatch, file, number)
    rewrite_file(file, content)
    assert (file.read_bytes(), file.stat().st_ino) == (content, inode)
    assert not file.with_name("broker.conf.tmp").exists()


def test_a_disk_without_room_leaves_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_to_replace(monkeypatch, file, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        rewrite_file(file, b"a=b\n")
    assert file.read_bytes() == OLD
    assert not file.with_name("broker.conf.tmp").exists()


@pytest.mark.parametrize("room", [0, 10, len(OLD), len(OLD) + 10])
def test_a_file_that_cannot_be_written_over_is_as_it_was(
    file: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    refuse_to_replace(monkeypatch, file, errno.EBUSY)
    real = os.pwrite
    is_full = True

    def pwrite(descriptor: int, data: bytes, offset: int) -> int:
        nonlocal is_full
        if not is_full or offset < room:
            return real(descriptor, data[: room - offset] if is_full else data, offset)
        is_full = False  # what is there already can always be written again
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OSError, match="No space left"):
        rewrite_file(file, OLD * 2)
    assert file.read_bytes() == OLD


def test_a_process_that_dies_leaves_one_of_the_two(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each step of writing over, the file has the old or the new settings, none mixed."""
    refuse_to_replace(monkeypatch, file, errno.EBUSY)
    new = b"brokerName=b\n"
    seen = []

    def watch(name: str, real: Callable[..., object]) -> None:
        def step(*arguments: object) -> object:
            seen.append(file.read_bytes())
            return real(*arguments)

        monkeypatch.setattr(os, name, step)

    watch("pwrite", os.pwrite)
    watch("fsync", os.fsync)
    rewrite_file(file, new)
    assert {content.rstrip(b"\n") for content in seen} == {OLD.rstrip(b"\n"), new.rstrip(b"\n")}


class Died(BaseException):
    """The end of the process, as far as the file system can tell."""


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("number", [None, errno.EBUSY])
def test_a_kill_at_any_step_leaves_settings_that_a_broker_starts_with(
    file: Path, monkeypatch: pytest.MonkeyPatch, steps: int, number: int | None
) -> None:
    left = steps

    def die_after(where: object, name: str) -> None:
        real = getattr(where, name)

        def step(*arguments: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise Died
            return real(*arguments, **options)

        monkeypatch.setattr(where, name, step)

    if number is not None:
        refuse_to_replace(monkeypatch, file, number)
    new = b"brokerName=b\nbrokerPermission=4\n"
    with monkeypatch.context():
        for where, name in ((os, "fsync"), (os, "pwrite"), (Path, "replace"), (Path, "chmod")):
            die_after(where, name)
        with contextlib.suppress(Died):
            rewrite_file(file, new)
    monkeypatch.undo()
    config = BrokerConfig.load(file, {})
    assert (config.broker_name, config.broker_permission) in (("a", 6), ("b", 4))
    assert steps < 7 or config.broker_name == "b"


def refuse_to_replace(monkeypatch: pytest.MonkeyPatch, file: Path, number: int) -> None:
    real = Path.replace

    def replace(source: Path, target: Path) -> Path:
        if Path(target) == file:
            raise OSError(number, os.strerror(number))
        return real(source, target)

    monkeypatch.setattr(Path, "replace", replace)
