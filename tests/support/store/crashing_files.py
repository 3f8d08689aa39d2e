"""A file system in memory that can lose what was not synced, for tests of the store.

Every change is journalled. :meth:`CrashingFiles.after_kill` and :meth:`after_power_loss` give
the files as a crash at any point of the journal would leave them, so one run of a scenario is
tested at all of its crash points. :meth:`after_torn_power_loss` loses single sectors.

:class:`CrashingConfigFiles` keeps the JSON files in the same journal; those are written in place,
so a crash may leave them short, and a power loss may leave them empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, Final

from failback.broker.metadata.json_config import ConfigFiles

SECTOR_BYTES: Final = 512
"""What a disk writes whole or not at all."""


@dataclass(frozen=True)
class Change:
    """One step of the journal.

    create, write, delete, sync, sync_directory, small, rewrite, rename (``target``) or note. A
    ``small`` is atomic and durable; a ``rewrite`` empties the file and writes it again. An allocate
    is only asked for, never kept: it changes nothing that can be read.
    """

    kind: str
    path: Path = Path()
    position: int = 0
    """In the file; of a sync, the step before which it covers everything."""
    data: bytes = b""
    size: int = 0
    note: Any = None
    target: Path = Path()


class CrashingHandle:
    def __init__(self, files: CrashingFiles, path: Path) -> None:
        self._files = files
        self._path = path
        self._content = files.content[path]

    def write_at(self, position: int, data: bytes | memoryview) -> None:
        self._files.record(Change("write", self._path, position, bytes(data)))

    def allocate(self, position: int, length: int) -> None:
        self._files.fail(Change("allocate", self._path, position, size=length))

    def is_readable(self, length: int) -> bool:
        return length <= len(self._content)

    def duplicate(self) -> CrashingHandle:
        return self

    def reserve(self, length: int) -> None:
        self.allocate(0, length)

    def write_words(self, words: Mapping[int, int]) -> None:
        for position, value in words.items():
            self.write_at(position, value.to_bytes(4, "big", signed=True))

    def view(self) -> memoryview:
        return memoryview(self._content).toreadonly()

    def sync(self) -> None:
        self._files.record_sync(self._path)

    def data_after(self, position: int) -> tuple[int, int] | None:
        end = len(self._content)
        return (position, end) if position < end else None

    def close(self) -> None:
        pass


@dataclass
class CrashingFiles:
    """Satisfies ``failback.broker.store.log.files.Files``."""

    durable: dict[Path, bytes] = field(default_factory=dict)
    """What the disk held before the journal began."""
    boot: str = "boot"
    journal: list[Change] = field(default_factory=list)
    fail: Callable[[Change], None] = lambda change: None
    """Called before each change; may raise OSError."""
    modified: dict[Path, int] = field(default_factory=dict)
    """When files were last written, ms; 0 where it is not told."""
    used: float = 0.0
    """How full the disk is, 0 to 1."""

    _covers: int | None = None

    def __post_init__(self) -> None:
        self.content = self._replay(self.journal)

    def _replay(self, changes: Iterable[Change]) -> dict[Path, bytearray]:
        content = {path: bytearray(data) for path, data in self.durable.items()}
        for change in changes:
            _apply(content, change)
        return content

    # --- Files ------------------------------------------------------------------------------

    def names(self, directory: Path) -> list[str]:
        depth = len(directory.parts)
        inside = (path.parts for path in self.content if directory in path.parents)
        return sorted({parts[depth] for parts in inside})

    def size(self, path: Path) -> int:
        return len(self.content[path]) if path in self.content else -1

    def create(self, path: Path, size: int, *, durable: bool) -> None:
        self.record(Change("create", path, size=size))
        if durable:
            self.record_sync(path)
            self.sync_directory(path.parent)

    def modified_ms(self, path: Path) -> int:
        return self.modified.get(path, 0)

    def used_ratio(self, path: Path) -> float:
        return self.used

    def open(self, path: Path) -> CrashingHandle:
        if path not in self.content:
            raise FileNotFoundError(path)
        return CrashingHandle(self, path)

    def delete(self, path: Path) -> None:
        if path in self.content:
            self.record(Change("delete", path))

    def remove_directory(self, path: Path) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        self.record(Change("sync_directory", path))

    def read_small(self, path: Path) -> bytes | None:
        return bytes(self.content[path]) if path in self.content else None

    def write_small(self, path: Path, data: bytes) -> None:
        self.record(Change("small", path, data=data))

    def lock(self, path: Path) -> Callable[[], None]:
        return lambda: None

    def boot_id(self) -> str:
        return self.boot

    # --- journal ----------------------------------------------------------------------------

    def record(self, change: Change) -> None:
        self.fail(change)
        self.journal.append(change)
        _apply(self.content, change)

    def record_sync(self, path: Path) -> None:
        covers = len(self.journal) if self._covers is None else self._covers
        self.record(Change("sync", path, covers))

    @contextmanager
    def covering(self, step: int) -> Iterator[None]:
        """Let syncs cover only what was written before ``step``: they began then, as it were."""
        self._covers = step
        try:
            yield
        finally:
            self._covers = None

    def note(self, note: Any) -> None:
        """Put what the scenario knows at this point into the journal."""
        self.journal.append(Change("note", note=note))

    def last_note(self, point: int) -> Any:
        """Return the last note before step ``point``, None if there was none."""
        return next((c.note for c in reversed(self.journal[:point]) if c.kind == "note"), None)

    def writes(self, part: str) -> list[Change]:
        """Return the writes to files with ``part`` in their path."""
        return [c for c in self.journal if c.kind == "write" and part in str(c.path)]

    # --- crashes ----------------------------------------------------------------------------

    def after_kill(self, point: int, torn_bytes: int = -1) -> CrashingFiles:
        """Return the files when the process died at step ``point``: whatever was written is there.

        Of the write at ``point`` itself, the first ``torn_bytes`` are there too; -1: it had not
        begun, so that a file that is to be written again is not empty yet.
        """
        journal = self.journal[:point]
        if torn_bytes >= 0 and point < len(self.journal):
            change = self.journal[point]
            if change.kind in ("write", "rewrite"):
                journal.append(replace(change, data=change.data[:torn_bytes]))
        return CrashingFiles(self.durable, self.boot, journal)

    def after_power_loss(self, point: int, kept: Callable[[int], bool]) -> CrashingFiles:
        """Return the files when the machine died at step ``point``.

        What was synced is there, and of the rest the changes whose step ``kept`` says.
        """
        durable = self._durable(point)
        content = self._replay(
            change
            for step, change in enumerate(self.journal[:point])
            if step in durable or kept(step)
        )
        disk = {path: bytes(data) for path, data in content.items()}
        return CrashingFiles(disk, self.boot + "'")

    def after_torn_power_loss(self, point: int, random: Random) -> CrashingFiles:
        """Return the files when the machine died at ``point`` while it wrote its cache out.

        Every sector is as it was at some moment between its last sync and the crash, each for
        itself. Names are journalled by the file system: of unsynced creations, removals and
        renames it keeps the first ones.
        """
        durable = self._durable(point)
        named_until = random.randint(0, point)
        moments: dict[tuple[Path, int], int] = {}
        changes: list[Change] = []
        for step, change in enumerate(self.journal[:point]):
            if step in durable:
                changes.append(change)
            elif change.kind in ("create", "delete", "rename"):
                changes += [change] if step < named_until else []
            elif change.kind == "rewrite":
                if step < moments.setdefault((change.path, -1), random.randint(0, point)):
                    changes.append(change)
            elif change.kind == "write":
                for piece in _sectors(change):
                    key = (change.path, piece.position // SECTOR_BYTES)
                    if step < moments.setdefault(key, random.randint(0, point)):
                        changes.append(piece)
        content = self._replay(changes)
        disk = {path: bytes(data) for path, data in content.items()}
        return CrashingFiles(disk, self.boot + "'")

    def _durable(self, point: int) -> set[int]:
        steps: set[int] = set()
        written: dict[Path, list[int]] = {}
        named: dict[Path, list[int]] = {}
        for step, change in enumerate(self.journal[:point]):
            if change.kind in ("write", "rewrite"):
                written.setdefault(change.path, []).append(step)
            elif change.kind in ("create", "delete", "rename"):
                named.setdefault(change.path.parent, []).append(step)
            elif change.kind == "small":
                steps.add(step)
            elif change.kind == "sync":
                unsynced = written.pop(change.path, [])
                steps.update(each for each in unsynced if each < change.position)
                written[change.path] = [each for each in unsynced if each >= change.position]
            elif change.kind == "sync_directory":
                steps.update(named.pop(change.path, ()))
        return steps


def _sectors(write: Change) -> Iterator[Change]:
    """Cut a write where sectors meet."""
    at = 0
    while at < len(write.data):
        room = SECTOR_BYTES - (write.position + at) % SECTOR_BYTES
        yield replace(write, position=write.position + at, data=write.data[at : at + room])
        at += room


def _apply(content: dict[Path, bytearray], change: Change) -> None:
    if change.kind == "create":
        content[change.path] = bytearray(change.size)
    elif change.kind == "write" and change.path in content:
        end = change.position + len(change.data)
        assert end <= len(content[change.path]), f"a write behind the end of {change.path}"
        content[change.path][change.position : end] = change.data
    elif change.kind == "delete":
        content.pop(change.path, None)
    elif change.kind in ("small", "rewrite"):
        content[change.path] = bytearray(change.data)
    elif change.kind == "rename":
        # One whose content never reached the disk is there all the same, and empty.
        content[change.target] = content.pop(change.path, bytearray())


class CrashingConfigFiles(ConfigFiles):
    """The JSON files in the journal of a :class:`CrashingFiles`."""

    def __init__(self, files: CrashingFiles) -> None:
        self._files = files

    def read(self, path: Path) -> bytes | None:
        return self._files.read_small(path)

    def write(self, path: Path, content: bytes, *, sync: bool = False) -> None:
        self._files.record(Change("rewrite", path, data=content))
        if sync:
            self._files.record_sync(path)

    def delete(self, path: Path) -> None:
        self._files.delete(path)

    def rename(self, source: Path, target: Path) -> None:
        self._files.record(Change("rename", source, target=target))

    def sync_folder(self, path: Path) -> None:
        self._files.sync_directory(path)
