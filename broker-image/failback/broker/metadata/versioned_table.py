"""A table of metadata with its version, in a file: what topics and consumer groups have alike.

A change is visible at once and written soon, or it is asked for: :meth:`VersionedTable.order` and
:class:`NewNames` make it visible when the file has it. Rows stay encoded, and what changes within
100 ms is written together (:mod:`failback.common.joined_writes`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple

from failback.broker.config.config import BrokerConfig
from failback.broker.disk_errors import is_fatal
from failback.broker.metadata.json_config import NotStored, TableFile, table_of
from failback.common.joined_writes import JoinedWrites, MustWait, Write
from failback.protocol.body import Body
from failback.protocol.route import DataVersion

logger = logging.getLogger(__name__)

Entry = TypeVar("Entry", bound=Body)
Wrapper = TypeVar("Wrapper", bound=Body)
_Made = TypeVar("_Made")
_SHOWN_NAMES: Final = 10
_encode: Final = msgspec.json.Encoder(order="sorted").encode


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Order(NamedTuple):
    """A change that waits for its version: name, entry or ``None``, its row in the file."""

    name: str
    entry: Any
    row: bytes | None
    at_once: bool
    """Whether a disk that has no room now refuses the change: it was ordered."""
    is_new: bool
    done: asyncio.Future[None]


class NewName(NamedTuple):
    """An entry that a request brings."""

    table: VersionedTable[Any, Any]
    entry: Any
    at_once: bool


class NewNames(MustWait):
    """A request brings names. It goes on when they are stored, and has done nothing so far."""

    def __init__(self, names: list[NewName]) -> None:
        super().__init__()
        self.names = names
        of_tables = [id(name.table) for name in names]
        self.count = max(map(of_tables.count, set(of_tables)))  # a group and its retry topic: one

    def order(self) -> list[asyncio.Future[None]]:
        """Have them stored; return what is done when they are, or can't be.

        Raises:
            TableFull: There is no room for all of them.
        """
        return [name.table.bring(name.entry, at_once=name.at_once) for name in self.names]


class VersionedTable(ABC, Generic[Entry, Wrapper]):
    """Entries by name. The wrapper is the body of table and version, in this order; so is the file.

    Every change bumps :attr:`data_version`.

    Attributes:
        kind: What an entry is called in the log.
        on_change: Called after names that requests brought were made.
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
        self.writes = JoinedWrites(self._take)
        self.file = TableFile(path, lambda: config.failback_guard_offset_file, self.writes.wake)
        self.on_change: Callable[[], None] = lambda: None
        self._config = config
        self._clock_ms = clock_ms
        self.table: dict[str, Entry] = {self.name_of(entry): entry for entry in built_in}
        self.data_version = DataVersion(timestamp=clock_ms(), counter=0)
        self._rows: dict[str, bytes] | None = None
        """By name, as they stand in the file; ``None`` until there is a use for them."""
        self._orders: list[_Order] = []
        self._brought: dict[str, asyncio.Future[None]] = {}
        self._refused: dict[str, NotStored] = {}
        """New names that the disk has not taken just now."""
        self._is_unwritten = False
        """Whether there is a change that is visible and not in the file."""
        self._answer: tuple[DataVersion | None, bytes] = (None, b"")

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

    def to_wrapper(self) -> Wrapper:
        """Return table and version as answers and registrations carry them."""
        return self._wrapped(dict(self.table), self.data_version)

    def _wrapped(self, table: dict[str, Entry], version: DataVersion) -> Wrapper:
        wrap: Callable[..., Wrapper] = self._wrapper
        return wrap(table, version)

    def to_json(self) -> bytes:
        """Return version and table as an answer carries them; kept until the version changes."""
        if self._answer[0] != self.data_version:
            self._answer = self.data_version, _encode(self.to_wrapper())
        return self._answer[1]

    # --- changes that are asked for ---

    async def order(self, name: str, entry: Entry | None) -> None:
        """Replace an entry, or remove it, when the file says so.

        Raises as :meth:`check_new`, and:
            NotStored: The disk does not take it; nothing was changed.
        """
        if entry is not None:
            self.check_new(name)
        old = self.table.get(name)
        await self._ordered(name, entry, at_once=True, is_new=False)
        logger.info("%s %s: %s, was %s", self.kind, name, entry, old)

    def asked(self, entry: Entry, *, at_once: bool = False) -> Entry:
        """Return an entry that a request brings; its name is checked already.

        Raises:
            NewNames: It has to be stored first.
            NotStored: The disk has not taken it.
        """
        refused = self._refused.get(self.name_of(entry))
        if refused is not None:
            raise refused
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.create(entry)
            return entry
        raise NewNames([NewName(self, entry, at_once)])

    def bring(self, entry: Entry, *, at_once: bool) -> asyncio.Future[None]:
        """Have the entry of :meth:`asked` stored, once for all that ask for it.

        Raises as :meth:`check_new`.
        """
        name = self.name_of(entry)
        if name not in self._brought:
            self.check_new(name)
            self._brought[name] = self._ordered(name, entry, at_once=at_once, is_new=True)
        return self._brought[name]

    def _ordered(
        self, name: str, entry: Entry | None, *, at_once: bool, is_new: bool
    ) -> asyncio.Future[None]:
        done = asyncio.get_running_loop().create_future()
        row = None if entry is None else _row(name, entry)
        self._orders.append(_Order(name, entry, row, at_once, is_new, done))
        self.writes.wake()
        return done

    # --- changes that are visible at once ---

    def update(self, entry: Entry) -> None:
        """Create or replace an entry at once. A disk without room takes it later."""
        self._put({self.name_of(entry): entry})

    def create(self, entry: Entry) -> None:
        """Create an entry that a request brought, or would have."""
        self.update(entry)
        self._created([self.name_of(entry)])

    def _created(self, names: list[str]) -> None:
        shown = ", ".join(names[:_SHOWN_NAMES])
        others = f" and {len(names) - _SHOWN_NAMES} others" if len(names) > _SHOWN_NAMES else ""
        logger.info("created %s %s%s", self.kind, shown, others)
        self.on_change()

    def take_back(self, name: str, before: Entry | None) -> None:
        """Make an entry again what it was before a change, or nothing."""
        self._put({name: before})

    def forget(self, name: str) -> None:
        """Remove an entry on a slave, whose master did; the version stays behind the master's."""
        if name in self.table:
            self._put({name: None}, self.data_version.next(self.data_version.timestamp))

    def _put(self, changed: Mapping[str, Entry | None], version: DataVersion | None = None) -> None:
        for name, entry in changed.items():
            self._apply(name, entry, None if entry is None else _row(name, entry))
        self.data_version = version or self.data_version.next(self._clock_ms())
        self._is_unwritten = True
        self.writes.wake()

    def _apply(self, name: str, entry: Entry | None, row: bytes | None) -> None:
        _set(self.table, name, entry)
        if self._rows is not None:
            _set(self._rows, name, row)

    def _put_quietly(self, entry: Entry) -> None:
        """Replace an entry under the version that there is; the next write has it."""
        name = self.name_of(entry)
        self._apply(name, entry, _row(name, entry))
        self.data_version = msgspec.structs.replace(self.data_version)  # a write under way lacks it
        self._answer = None, b""

    def replace_all(self, wrapper: Wrapper) -> bool:
        """Take over a master's version and table if the version differs; false if it is equal.

        The versions are compared for difference, not for age: what only the slave has goes.
        """
        table, theirs = astuple(wrapper)
        if theirs == self.data_version:
            return False
        self.table, self._rows = dict(table), None
        self._put({}, theirs)
        return True

    def load(self) -> None:
        """Put the file's entries over the built-in ones and take its version.

        Raises:
            CorruptStore: It is there, can't be read, and its ``.bak`` is no help.
        """
        wrapper = self.file.load(table_of(self._wrapper))
        if wrapper is not None:
            table, self.data_version = astuple(wrapper)
            self.table.update(table)
            self._rows = _rows(self.table)

    # --- the file ---

    def persist(self) -> None:
        """Write version and table now.

        Raises:
            OSError: The file could not be written.
        """
        self.file.write(self._to_text(_rows(self.table), self.data_version))

    def _take(self) -> Write:
        """Begin a write of what is visible and ordered now."""
        orders, self._orders = self._orders, []
        before, version, is_unwritten = self.data_version, self.data_version, self._is_unwritten
        table, rows = dict(self.table), None if self._rows is None else dict(self._rows)
        for order in orders:
            version = version.next(self._clock_ms())
            _set(table, order.name, order.entry)
            if rows is not None:
                _set(rows, order.name, order.row)
        self._is_unwritten = False
        generation = self.file.next_generation()
        made: dict[str, bytes] = {}
        answer = b""

        def work() -> int:
            nonlocal answer
            found = _rows(table) if rows is None else rows
            made.update((name, found[name]) for name in sorted(found))
            text = self._to_text(made, version)
            self.file.write(text, generation)
            answer = text
            for depth in (3, 2, 1, 0):  # no string has a line break, and C keeps the loop for less
                answer = answer.replace(b"\n" + b"\t" * depth, b"")
            return 2 * len(text)  # the file's and its .bak's

        def done(error: Exception | None) -> None:
            if error is not None:
                self._is_unwritten |= is_unwritten
                self._not_written(orders, error)
            elif self.data_version is before:
                self.table, self._rows, self.data_version = table, made, version
                self._answer = version, answer
            else:
                self._make_visible(orders)
            for order in orders:
                if order.is_new:
                    self._brought.pop(order.name, None)
                if not order.done.done():
                    order.done.set_result(None)
            created = [order.name for order in orders if order.is_new and error is None]
            if created:
                self._created(created)

        return Write(work, done)

    def _make_visible(self, orders: list[_Order]) -> None:
        """Apply changes that the file has; what else changed meanwhile is written with them."""
        for order in orders:
            self._apply(order.name, order.entry, order.row)
            self.data_version = self.data_version.next(self._clock_ms())
        if orders:
            self._is_unwritten = True
            self.writes.wake()

    def _not_written(self, orders: list[_Order], error: Exception) -> None:
        """Refuse what was ordered; keep the rest for a later write."""
        if not isinstance(error, OSError):
            logger.error("%s is not written", self.file.path, exc_info=error)
            error = OSError(str(error))
        kept = [] if is_fatal(error) else [order for order in orders if not order.at_once]
        for order in orders:
            if order in kept:
                continue
            refusal = NotStored(self.file.path, error)
            if not order.done.done():
                order.done.set_exception(refusal)
            if order.is_new:  # told to the requests that come again
                order.done.exception()
                self._refused[order.name] = refusal
                asyncio.get_running_loop().call_soon(self._refused.clear)
        for order in kept:
            self._apply(order.name, order.entry, order.row)
            self.data_version = self.data_version.next(self._clock_ms())
        if self._is_unwritten or kept:
            self._is_unwritten = True
            self.file.wait(str, error)  # its text is made when it is written

    def _to_text(self, rows: Mapping[str, bytes], version: DataVersion) -> bytes:
        """Return the file's text; ``rows`` are in the order of their names."""
        empty = self._wrapped({}, version).to_json(pretty=True)
        if not rows:
            return empty
        begin, end = empty.split(b"{}")
        return b"%b{%b\n\t}%b" % (begin, b",".join(rows.values()), end)


def now(make: Callable[[], _Made]) -> _Made:
    """Return what ``make`` makes where no request waits: new names are visible at once."""
    try:
        return make()
    except NewNames as new:
        for name in new.names:
            name.table.create(name.entry)
        return make()


def _set(table: dict[str, Any], name: str, value: Any) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value


def _rows(table: Mapping[str, Body]) -> dict[str, bytes]:
    return {name: _row(name, table[name]) for name in sorted(table)}


def _row(name: str, entry: Body) -> bytes:
    """Return a row of the file as ``to_json(pretty=True)`` writes it."""
    # No string has a quote behind a comma: that would be escaped.
    members = _encode(entry)[1:-1].replace(b',"', b',\n\t\t\t"')
    return b"\n\t\t%b:{\n\t\t\t%b\n\t\t}" % (_encode(name), members)
