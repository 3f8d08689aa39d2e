"""How the broker keeps its JSON files: ``X``, ``X.bak`` and, for a moment, ``X.tmp``.

Persisting writes ``X.tmp``, copies what ``X`` holds to ``X.bak``, deletes ``X`` and renames
``X.tmp`` to ``X``. A kill between the last two leaves the ``.bak`` of one persist earlier, which
loading then takes. That window, the missing fsync, and an empty table where both files are gone or
hold no byte belong to what a failover costs, so they are kept as they are.
:func:`persist_json_config_atomically` is the guarded way: at every instant, power loss included,
``X`` is whole and is one of the last two contents. Both ways leave the same files.

A file that is mounted alone can't be replaced: it is written over.

A file that holds no table is refused under all rules, a file without a byte or with ``{}`` under
the guarded ones. A broker that read it as an empty table would write that over a repairable file.
Source: MixAll.string2File and ConfigManager, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from msgspec.structs import astuple

from failback.broker.disk_errors import is_fatal
from failback.common.files import sync_folder
from failback.common.replacing import write_over
from failback.common.text import visible, where_and_why, why
from failback.protocol import fastjson
from failback.protocol.body import Body
from failback.protocol.errors import CorruptStore, ProtocolError, StoreError

logger = logging.getLogger(__name__)

Decoded = TypeVar("Decoded")
Table = TypeVar("Table", bound=Body)


class ConfigFiles:
    """The file operations of the protocol; tests put one in its place that dies half-way."""

    def read(self, path: Path) -> bytes | None:
        """Return the content; ``None`` when there is no such file."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, path: Path, content: bytes, *, sync: bool = False) -> None:
        """Replace the content in place, creating the folder when missing.

        ``sync``: return when it is on the disk. The descriptor that wrote is the one that is
        synced: a descriptor opened later may not report an error.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.write(content)
            if sync:
                file.flush()
                os.fsync(file.fileno())

    def delete(self, path: Path) -> None:
        """Remove the file if it exists."""
        path.unlink(missing_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        """Give ``source`` the name ``target``; what had it is gone."""
        source.rename(target)

    def write_over(self, path: Path, previous: bytes, content: bytes) -> None:
        """As :func:`failback.common.replacing.write_over`."""
        write_over(path, previous, content)

    def sync_folder(self, path: Path) -> None:
        """Wait until a folder's names are on the disk."""
        sync_folder(path)


_FILES = ConfigFiles()


def backup_of(path: Path) -> Path:
    """Return where the content of one persist earlier is kept."""
    return path.with_name(path.name + ".bak")


def temporary_of(path: Path) -> Path:
    """Return where a content is written before it takes the name."""
    return path.with_name(path.name + ".tmp")


def persist_json_config(path: Path, text: str | bytes, files: ConfigFiles = _FILES) -> None:
    """Replace ``path`` by ``text``, step by step as 4.9.8 does.

    Raises:
        OSError: A step failed; the steps before it have happened.
    """
    new = temporary_of(path)
    content = text if isinstance(text, bytes) else text.encode()
    _write_new(new, content, files, sync=False)
    previous = files.read(path)
    if previous is not None:  # an empty one too: that is how a .bak becomes empty
        files.write(backup_of(path), previous)
    with _mounted_alone(path, previous, content, files):
        files.delete(path)
        files.rename(new, path)


def persist_json_config_atomically(
    path: Path, text: str | bytes, files: ConfigFiles = _FILES
) -> None:
    """Replace ``path`` by ``text`` in one step, on the disk when this returns.

    Raises:
        OSError: A step failed; ``path`` is what it was.
    """
    new = temporary_of(path)
    content = text if isinstance(text, bytes) else text.encode()
    _write_new(new, content, files, sync=True)
    previous = files.read(path)
    if previous:
        files.write(backup_of(path), previous)
    with _mounted_alone(path, previous, content, files):
        files.rename(new, path)
    files.sync_folder(path.parent)


@contextlib.contextmanager
def _mounted_alone(
    path: Path, previous: bytes | None, content: bytes, files: ConfigFiles
) -> Iterator[None]:
    """Write over ``path`` where it is a mount of its own, which nothing can take the place of.

    One that is read-only stays as it is, and the table waits: it is not the disk that is broken.
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.EBUSY or previous is None:
            raise
        try:
            files.write_over(path, previous, content)
        except OSError as other:
            if other.errno == errno.EROFS:
                raise error from other
            raise
        finally:
            files.delete(temporary_of(path))


def _write_new(new: Path, content: bytes, files: ConfigFiles, *, sync: bool) -> None:
    """Write the whole of ``new``, or leave nothing of it: a full disk has other uses for it."""
    try:
        files.write(new, content, sync=sync)
    except OSError:
        with contextlib.suppress(OSError):
            files.delete(new)
        raise


def load_json_config(
    path: Path,
    decode: Callable[[str], Decoded],
    files: ConfigFiles = _FILES,
    *,
    is_guarded: bool = False,
) -> Decoded | None:
    """Return what ``path``, or else its ``.bak``, decodes to; ``None`` when neither holds any.

    ``decode`` says with :class:`ProtocolError` or :class:`ValueError` that a text is no good.

    Raises:
        CorruptStore: A file with content can't be decoded, and the other is no help; under the
            guarded rules also one that holds nothing.
    """
    problems: list[str] = []
    damaged: Path | None = None
    for each in (path, backup_of(path)):
        content = files.read(each)
        if content is None:
            continue
        # Zeros are what delayed allocation leaves of a file whose size the disk knew already.
        if not content.strip(b"\0 \t\r\n"):
            problems.append(f"{each.name} is empty ({len(content)} bytes of nothing)")
            continue
        try:
            decoded = decode(_text_of(content))
        except HoldsNothing as error:
            problems.append(f"{each.name} is empty ({error})")
            continue
        except (ProtocolError, ValueError) as error:
            damaged = damaged or each
            problems.append(f"{each.name} is no table: {error}")
            continue
        if each is not path:
            missing = f"{path.name} is missing"
            logger.warning("%s: falling back to %s", (problems or [missing])[0], each)
        return decoded
    if not problems:
        return None
    if damaged is not None or is_guarded:
        raise DamagedTable(damaged or path, "; ".join(problems))
    logger.warning("%s: %s: starting empty", path, "; ".join(problems))
    return None


class HoldsNothing(ProtocolError):
    """A file says nothing of its table, not even that it is empty."""


def table_of(body: type[Table]) -> Callable[[str], Table]:
    """Return what reads a table's file, and refuses a file without the table's fields.

    fastjson reads such a file as an empty table, and the next persist loses its content. ``{}``
    counts as empty, like a file without a byte: an empty table is written with its field.
    """

    def decode(text: str) -> Table:
        table = body.from_json(text)
        known = dict(zip(body.__struct_encode_fields__, astuple(table), strict=True))
        tables = {name: value for name, value in known.items() if isinstance(value, dict)}
        if any(tables.values()):
            return table
        found = fastjson.loads(text)
        theirs = {_folded(str(name)): value for name, value in found.items()}
        if any(isinstance(theirs.get(_folded(name)), dict) for name in tables):
            return table
        missing = next(iter(tables))
        if found and theirs.keys().isdisjoint(map(_folded, known)):
            names = ", ".join(map(visible, map(str, found)))
            raise ProtocolError(f"it has {names}, and no {missing}")
        raise HoldsNothing(f"there is no {missing} in it")

    return decode


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").casefold()


def _text_of(content: bytes) -> str:
    """Return a file's text.

    Raises:
        ProtocolError: It is no UTF-8: says line and column.
    """
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        problem = f"byte {content[error.start]:#04x} is no UTF-8 (line {line}, column {column})"
        raise ProtocolError(problem) from error


class DamagedTable(CorruptStore):
    """A table that is there, can't be read, and has no usable copy beside it."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(path, 0, what)

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.what}. Mend it or put a copy in its place; "
            "delete it and its .bak to begin with an empty table"
        )


class NotStored(StoreError):
    """A change that was ordered is not made: its table can't be written."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path} can't be written: {why(error)}; nothing was changed")


class TableFile:
    """One table's file: which way it is written, what waits to be written, which text is newer.

    Attributes:
        path: The file.
        is_waiting: Whether the disk refused the last text and :meth:`retry` has to write it.
    """

    def __init__(
        self,
        path: Path,
        is_guarded: Callable[[], bool],
        write_again: Callable[[], None] | None = None,
    ) -> None:
        """``is_guarded`` tells for each write whether it is made in one, synced step.

        ``write_again`` has a text written again that the disk refused, where that is not done here.
        """
        self.path = path
        self._write_again = write_again
        self.is_guarded = is_guarded
        self._writing = threading.Lock()
        self._made = 0
        self._written = 0
        self._waiting: Callable[[], str] | None = None

    @property
    def is_waiting(self) -> bool:
        return self._waiting is not None

    def load(self, decode: Callable[[str], Decoded]) -> Decoded | None:
        """Return what the file, or else its ``.bak``, decodes to; ``None`` without either.

        Raises:
            CorruptStore: It is there and can't be read: see :func:`load_json_config`.
        """
        return load_json_config(self.path, decode, is_guarded=self.is_guarded())

    def next_generation(self) -> int:
        """Return the number of a text that is made now; a later text has a larger one."""
        self._made += 1
        return self._made

    def write(self, text: str | bytes, generation: int | None = None) -> None:
        """Write ``text``, unless a newer one is written already. From any thread.

        Raises:
            OSError: The file could not be written.
        """
        number = self.next_generation() if generation is None else generation
        with self._writing:
            if number <= self._written:
                return
            way = persist_json_config_atomically if self.is_guarded() else persist_json_config
            way(self.path, text)
            self._written = number
        if number == self._made:
            self._waiting = None

    def keep(self, make_text: Callable[[], str]) -> None:
        """Write what ``make_text`` gives; where the disk has no room, :meth:`retry` does it later.

        Raises:
            OSError: The disk is broken or read-only.
        """
        try:
            self.write(make_text())
        except OSError as error:
            self.write_later(make_text, error)

    def write_later(self, make_text: Callable[[], str], error: OSError) -> None:
        """Let :meth:`retry` write the text that the disk refused with ``error``.

        Raises:
            OSError: The error is fatal: no later write would succeed.
        """
        if is_fatal(error):
            raise error
        self.wait(make_text, error)

    def wait(self, make_text: Callable[[], str], error: OSError) -> None:
        """As :meth:`write_later`, after a fatal error too."""
        if self._waiting is None:
            logger.error("%s is not written now, and will be: %s", self.path, why(error))
        self._waiting = make_text

    def retry(self) -> None:
        """Write the refused text again; keep it for the next call if the disk still refuses."""
        if self._waiting is None:
            return
        if self._write_again is not None:
            self._write_again()
            return
        try:
            self.write(self._waiting())
        except OSError as error:
            logger.debug("not yet: %s", where_and_why(error))
        else:
            logger.info("%s is written", self.path)
