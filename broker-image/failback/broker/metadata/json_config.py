"""How the broker keeps its JSON files: ``X``, ``X.bak`` and, for a moment, ``X.tmp``.

Persisting writes ``X.tmp``, copies what ``X`` holds to ``X.bak``, deletes ``X`` and renames
``X.tmp`` to ``X``. A kill between the last two leaves the ``.bak`` of one persist earlier, which
loading then takes. That window, the missing fsync, and an empty table without a word when both
files are gone belong to what a failover costs, so they are kept as they are.
:func:`persist_json_config_atomically` is the guarded way: at every instant, power loss included,
``X`` is whole and is one of the last two contents. Both ways leave the same files.
Source: MixAll.string2File and ConfigManager, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from failback.protocol.errors import CorruptStore, ProtocolError

logger = logging.getLogger(__name__)

Decoded = TypeVar("Decoded")


class ConfigFiles:
    """The file operations of the protocol; tests put one in its place that dies half-way."""

    def read(self, path: Path) -> bytes | None:
        """Return the content; ``None`` when there is no such file."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: Path, content: bytes) -> None:
        """Replace the content in place, creating the folder when missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def delete(self, path: Path) -> None:
        """Remove the file if it exists."""
        path.unlink(missing_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        """Give ``source`` the name ``target``; what had it is gone."""
        source.rename(target)

    def sync(self, path: Path) -> None:
        """Wait until a file's content, or a folder's names, are on the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_FILES = ConfigFiles()


def backup_of(path: Path) -> Path:
    """Return where the content of one persist earlier is kept."""
    return path.with_name(path.name + ".bak")


def persist_json_config(path: Path, text: str, files: ConfigFiles = _FILES) -> None:
    """Replace ``path`` by ``text``, step by step as 4.9.8 does.

    Raises:
        OSError: A step failed; the steps before it have happened.
    """
    new = path.with_name(path.name + ".tmp")
    files.write(new, text.encode())
    previous = files.read(path)
    if previous is not None:  # an empty one too: that is how a .bak becomes empty
        files.write(backup_of(path), previous)
    files.delete(path)
    files.rename(new, path)


def persist_json_config_atomically(path: Path, text: str, files: ConfigFiles = _FILES) -> None:
    """Replace ``path`` by ``text`` in one step, on the disk when this returns.

    Raises:
        OSError: A step failed; ``path`` is what it was.
    """
    new = path.with_name(path.name + ".tmp")
    files.write(new, text.encode())
    files.sync(new)
    previous = files.read(path)
    if previous:
        files.write(backup_of(path), previous)
    files.rename(new, path)
    files.sync(path.parent)


def load_json_config(
    path: Path, decode: Callable[[str], Decoded], files: ConfigFiles = _FILES
) -> Decoded | None:
    """Return what ``path``, or else its ``.bak``, decodes to; ``None`` when neither holds any.

    ``decode`` says with :class:`ProtocolError` or :class:`ValueError` that a text is no good.

    Raises:
        CorruptStore: There is a ``.bak`` with content, and it can't be decoded either.
    """
    try:
        content = files.read(path)
        if content:
            return decode(content.decode())
        problem = "is missing" if content is None else "is empty"
    except (ProtocolError, ValueError) as error:
        problem = f"cannot be read: {error}"
    backup = backup_of(path)
    spare = files.read(backup)
    if not spare:
        if content or spare is not None:
            logger.warning("%s %s and %s holds nothing: starting empty", path, problem, backup)
        return None
    logger.warning("%s %s: falling back to %s", path, problem, backup)
    try:
        return decode(spare.decode())
    except (ProtocolError, ValueError) as error:
        raise CorruptStore(backup, 0, f"{error}; and {path} {problem}") from error
