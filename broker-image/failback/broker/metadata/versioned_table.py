"""A table of metadata with its version, in a file: what topics and consumer groups have alike."""

from __future__ import annotations

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.json_config import NotStored, TableFile, table_of
from failback.protocol.body import Body
from failback.protocol.route import DataVersion

logger = logging.getLogger(__name__)

Entry = TypeVar("Entry")
Wrapper = TypeVar("Wrapper", bound=Body)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class VersionedTable(ABC, Generic[Entry, Wrapper]):
    """Entries by name. The wrapper is the body that carries table and version, and the file's text.

    Every change bumps :attr:`data_version` and is persisted before the call returns; where the disk
    has no room, soon after it has some again.

    Attributes:
        kind: What an entry is called in the log.
    """

    kind: str
    _wrapper: type[Wrapper]

    def __init__(
        self,
        path: Path,
        config: BrokerConfig,
        built_in: Iterable[Entry],
        *,
        clock_ms: Callable[[], int] = now_ms,
    ) -> None:
        self.file = TableFile(path, lambda: config.failback_guard_offset_file)
        self._config = config
        self._clock_ms = clock_ms
        self.table: dict[str, Entry] = {self.name_of(entry): entry for entry in built_in}
        self.data_version = DataVersion(timestamp=clock_ms(), counter=0)

    @abstractmethod
    def name_of(self, entry: Entry) -> str:
        """Return the name that an entry is found by."""

    @abstractmethod
    def check_new(self, name: str) -> None:
        """Refuse an entry that is not here and cannot be made.

        Raises:
            NameRefused: Nothing may be called so.
            TableFull: There is no room for another.
        """

    @abstractmethod
    def to_wrapper(self) -> Wrapper:
        """Return version and table as an answer carries them."""

    @abstractmethod
    def _unwrapped(self, wrapper: Wrapper) -> tuple[DataVersion, dict[str, Entry]]:
        """Return version and table of a wrapper."""

    def update(self, entry: Entry) -> None:
        """Create or replace an entry. The caller tells the name servers of a topic.

        Raises as :meth:`check_new`, and:
            NotStored: The disk does not take it; nothing was changed.
        """
        name = self.name_of(entry)
        self.check_new(name)
        old = self.table.get(name)
        with self._whole(at_once=True):
            self.table[name] = entry
        logger.info("%s %s: %s, was %s", self.kind, name, entry, old)

    def delete(self, name: str) -> bool:
        """Remove an entry; false when there was none. Name servers and offsets keep theirs.

        Raises:
            NotStored: The disk does not take it; nothing was changed.
        """
        if name not in self.table:
            logger.warning("%s %s not deleted: there is none", self.kind, name)
            return False
        with self._whole(at_once=True):
            del self.table[name]
        logger.info("deleted %s %s", self.kind, name)
        return True

    def take_back(self, name: str, before: Entry | None) -> None:
        """Make an entry again what it was before a change, or nothing.

        A disk without room takes it later.
        """
        with self._whole():
            if before is None:
                self.table.pop(name, None)
            else:
                self.table[name] = before

    def forget(self, name: str) -> None:
        """Remove an entry on a slave, whose master did; the version stays behind the master's."""
        if self.table.pop(name, None) is not None:
            self.data_version = self.data_version.next(self.data_version.timestamp)
            self.file.keep(self._to_text)

    def replace_all(self, wrapper: Wrapper) -> bool:
        """Take over a master's version and table if the version differs; false if it is equal.

        The versions are compared for difference, not for age: what only the slave has goes.
        """
        before, version = self.table, self.data_version
        theirs, table = self._unwrapped(wrapper)
        if theirs == version:
            return False
        self.data_version, self.table = theirs, dict(table)
        try:
            self.file.keep(self._to_text)
        except OSError:  # the next copy is to differ again
            self.table, self.data_version = before, version
            raise
        return True

    def load(self) -> None:
        """Put the file's entries over the built-in ones and take its version.

        Raises:
            CorruptStore: It is there, can't be read, and its ``.bak`` is no help.
        """
        wrapper = self.file.load(table_of(self._wrapper))
        if wrapper is not None:
            self.data_version, table = self._unwrapped(wrapper)
            self.table.update(table)

    def persist(self) -> None:
        """Write version and table.

        Raises:
            OSError: The file could not be written.
        """
        self.file.write(self._to_text())

    def _to_text(self) -> str:
        return self.to_wrapper().to_json(pretty=True).decode()

    @contextlib.contextmanager
    def _whole(self, *, at_once: bool = False) -> Iterator[None]:
        """Give what is changed inside a version of its own, and store it; or nothing of it holds.

        Args:
            at_once: Whether a disk that has no room now refuses the change: it was ordered.
        """
        before, version = dict(self.table), self.data_version
        yield
        self.data_version = version.next(self._clock_ms())
        try:
            if at_once:
                self.persist()
            else:
                self.file.keep(self._to_text)
        except OSError as error:
            self.table, self.data_version = before, version
            if at_once:
                raise NotStored(self.file.path, error) from error
            raise
