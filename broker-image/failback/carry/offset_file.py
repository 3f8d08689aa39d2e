"""The master's file of consumer offsets: read as the broker will, replaced whole, and put back.

Beside ``consumerOffset.json`` a carry leaves ``.before-carry``, what the broker would have loaded,
and ``.carried``, the SHA-256 of what it loads instead. It never touches ``.bak``, the broker's own
copy of one persist earlier. A kill at any step leaves the old file or the new one.
Source: ConfigManager.load and loadBak, apache/rocketmq 4.9.7 and 5.3.3.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from failback.carry.master_store import take_after
from failback.carry.merge import Table
from failback.common.files import sync_folder
from failback.common.text import visible
from failback.protocol import fastjson
from failback.protocol.errors import CorruptStore, ProtocolError, StoreError
from failback.protocol.headers import Int32, Int64

_TABLE = "offsetTable"


@dataclass(frozen=True, slots=True)
class Document:
    """What such a file says."""

    content: bytes = b""
    table: dict[str, dict[int, int]] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    """Its other fields, as they were read."""

    def written(self, table: Table) -> bytes:
        """Return the file's content with another table: fastjson's form, sorted."""
        parts = {name: fastjson.dumps(value) for name, value in self.others.items()}
        parts[_TABLE] = fastjson.dumps(table, unquoted_int_keys=True)
        members = (fastjson.dumps(name) + b":" + part for name, part in sorted(parts.items()))
        return b"{" + b",".join(members) + b"}"


def read_document(content: bytes) -> Document:
    """Read a table of consumer offsets: a broker's file, or its answer to 43.

    Raises:
        ProtocolError: It is neither.
    """
    try:
        # Numbers in quotes are read many times faster.
        found = fastjson.loads(fastjson.with_quoted_keys(content) or content)
        if not isinstance(found, dict):
            raise ProtocolError("it holds no object")
        table = found.pop(_TABLE, None) or {}
        typed = msgspec.convert(table, dict[str, dict[Int32, Int64]], strict=False)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ProtocolError(str(error)) from None
    return Document(content, typed, {str(name): value for name, value in found.items()})


@dataclass(frozen=True, slots=True)
class Base:
    """What a broker that starts now would load."""

    document: Document
    read_from: str
    """Name of the file; empty when a broker would start without an offset."""
    previous: dict[str, dict[int, int]] | None
    """The persist before, if ``read_from`` is not it."""
    problem: str = ""
    """Why the broker's own file was not read."""


class OffsetFile:
    """The file at ``path`` and what lies beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> Base:
        """Return what the broker would load: the file, or else its ``.bak``.

        Raises:
            CorruptStore: Neither can be read, so that the broker would not start.
            OSError: A file is there and may not be read.
        """
        content, backup = self._content(""), self._content(".bak")
        problem = f"{self.path} is missing" if content is None else f"{self.path} is empty"
        if content:
            try:
                return Base(read_document(content), self.path.name, self._previous(backup))
            except ProtocolError as error:
                problem = f"{self.path} is no table of offsets: {visible(str(error), 200)}"
        if not backup:
            return Base(Document(), "", None, problem if content else "")
        name = f"{self.path.name}.bak"
        try:
            return Base(read_document(backup), name, None, problem)
        except ProtocolError as error:
            raise CorruptStore(
                self.path, 0, f"{problem}, and {name} is none either: {visible(str(error), 200)}"
            ) from None

    def replace(self, base: Document, content: bytes) -> None:
        """Give the broker another table to load, and keep what it would have loaded.

        Raises:
            OSError: The disk refused; the file is as it was.
        """
        folder = self.path.parent
        model = (self.path if self.path.exists() else folder).stat()
        new, kept = self._beside(".carry"), self._beside(".before-carry.new")
        sums = self._beside(".carried.new")
        try:
            _write(new, content, model)
            _write(kept, base.content, model)
            _write(sums, _sum(content).encode(), model)
            kept.replace(self._beside(".before-carry"))
            sums.replace(self._beside(".carried"))
            new.replace(self.path)
            sync_folder(folder)
        except OSError as error:
            for left in (new, kept, sums):
                left.unlink(missing_ok=True)
            error.filename = error.filename or str(self.path)  # a full disk names none
            raise

    def undo(self, *, force: bool = False) -> None:
        """Put back what the broker would have loaded.

        Args:
            force: Also where the broker has written its file since.

        Raises:
            StoreError: There is nothing to undo, or a broker has written its file since.
            OSError: The disk refused; the file is as it was.
        """
        before, carried = self._beside(".before-carry"), self._content(".carried")
        if not before.exists():
            raise StoreError(f"there is no {before}: nothing to undo")
        now = self._content("") or b""
        if not force and (carried or b"").decode(errors="replace") != _sum(now):
            raise StoreError(
                f"{self.path} is not what the carry wrote: a broker has written it since, and "
                "an undo would lose what was committed; --force puts the old file back all the same"
            )
        before.replace(self.path)
        self._beside(".carried").unlink(missing_ok=True)
        sync_folder(self.path.parent)

    def _previous(self, backup: bytes | None) -> dict[str, dict[int, int]] | None:
        try:
            return read_document(backup).table if backup else None
        except ProtocolError:
            return None

    def _content(self, ending: str) -> bytes | None:
        try:
            return self._beside(ending).read_bytes()
        except FileNotFoundError:
            return None

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(self.path.name + ending)


def _sum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, content: bytes, model: os.stat_result) -> None:
    """Write and sync a file with the owner of another, and its mode if that is a file."""
    with path.open("wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), model.st_mode & 0o666)
        take_after(file.fileno(), model)
        file.flush()
        os.fsync(file.fileno())
