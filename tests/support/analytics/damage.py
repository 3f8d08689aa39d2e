"""What may lie in the place of a file of a run folder, and within a deadline what becomes of it."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, Final

Damage = Callable[[Path], None]
DEADLINE: Final = 60 * int(os.environ.get("FAILBACK_TEST_TIME_SCALE", "1"))
DEEP: Final = 100_000


def _gone(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def missing(path: Path) -> None:
    _gone(path)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def pipe(path: Path) -> None:
    _gone(path)
    os.mkfifo(path)


def folder(path: Path) -> None:
    _gone(path)
    path.mkdir()


def dangling(path: Path) -> None:
    _gone(path)
    path.symlink_to(path.parent / "nowhere")


def circle(path: Path) -> None:
    _gone(path)
    path.symlink_to(path)


def listening(path: Path) -> None:
    """A socket. Its path is short, for the system takes no long one."""
    _gone(path)
    here = Path.cwd()
    try:
        os.chdir(path.parent)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def binary(path: Path) -> None:
    path.write_bytes(b"\xff\xfe\x00" * 1000)


def text(path: Path) -> None:
    path.write_bytes(b"this is no file of a run\n" * 40)


def deep_list(path: Path) -> None:
    path.write_bytes(b"[" * DEEP)


def deep_object(path: Path) -> None:
    path.write_bytes(b'{"run":' * DEEP)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def other_value(path: Path) -> None:
    path.write_bytes(b"[1]\n")


FILES: Final[dict[str, Damage]] = {
    each.__name__: each
    for each in (
        missing, empty, pipe, folder, dangling, circle, listening, binary, text, deep_list,
        deep_object, cut, other_value,
    )
}  # fmt: skip

VALUES: Final[dict[str, Any]] = {
    "null": None,
    "text": "x",
    "half": "\ud800",
    "huge": 10**400,
    "beyond": 2**63,
    "negative": -5,
    "fraction": 0.5,
    "nan": float("nan"),
    "infinite": float("inf"),
    "true": True,
    "list": [1],
    "texts": ["x"],
    "object": {"x": 1},
    "objects": [{"x": [None]}],
}
"""What may stand in the place of a field."""


def fields_of(value: Any, most: int = 4, at: tuple[str | int, ...] = ()) -> Iterator[Any]:
    """Yield the path of each field of a document, as deep as ``most``."""
    inner: list[tuple[str | int, Any]] = list(value.items()) if isinstance(value, dict) else []
    if isinstance(value, list):
        inner = [(0, value[0])] if value else []
    for name, each in inner:
        yield (*at, name)
        if len(at) + 1 < most:
            yield from fields_of(each, most, (*at, name))


def replaced(document: Any, at: tuple[str | int, ...], value: Any) -> Any:
    """Return a copy of a document with another value of one field."""
    found = json.loads(json.dumps(document))
    inner = found
    for name in at[:-1]:
        inner = inner[name]
    inner[at[-1]] = value
    return found


class Hangs(BaseException):
    """What was called did not return in time."""


@contextmanager
def deadline() -> Iterator[None]:
    """Raise ``Hangs`` in the block when it takes too long."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hangs

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(DEADLINE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
