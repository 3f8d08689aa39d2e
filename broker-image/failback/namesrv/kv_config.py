"""The key-value configuration: the only state of the name server that is on disk.

A file ``{"configTable":{namespace:{key:value}}}``, written with fsync and rename so that it is
always the old or the new one. Source: KVConfigManager, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from failback.common.joined_writes import JoinedWrites, Write
from failback.common.replacing import rewrite_file
from failback.protocol.body import Body
from failback.protocol.errors import ConfigError, ProtocolError
from failback.protocol.names import check_room

logger = logging.getLogger(__name__)

MOST_ENTRIES: Final = 10_000
MOST_BYTES: Final = 1024**2
"""Of all namespaces, keys and values."""
ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""Namespace whose table every broker gets with the answer to its registration."""


class _KVConfigFile(Body):
    config_table: dict[str, dict[str, str]]


class KVConfigManager:
    """Namespaces of keys and values. A change is visible when it is on disk."""

    def __init__(self, path: Path, most_entries: int = MOST_ENTRIES) -> None:
        self._path = path
        self.most_entries = most_entries
        self._table: dict[str, dict[str, str]] = {}
        self._wanted = self._table
        """With the changes that are not on disk so far."""
        self._waiting: list[asyncio.Future[None]] = []
        self._writes = JoinedWrites(self._take)

    def load(self) -> None:
        """Read the file; if it is empty or damaged, the ``.bak`` that a Java name server leaves.

        Without a file, or with only empty ones, the table is empty.

        Raises:
            ConfigError: One cannot be read and the other is no help: names file and reason.
        """
        problem: ConfigError | None = None
        if not self._path.exists():
            return
        for path in (self._path, self._path.with_name(self._path.name + ".bak")):
            try:
                data = path.read_bytes().strip()
                if not data:
                    continue
                self._table = self._wanted = _KVConfigFile.from_json(data).config_table
            except FileNotFoundError:
                continue
            except (OSError, ProtocolError) as error:
                problem = problem or ConfigError("kvConfigPath", str(error), file=path)
                continue
            if path != self._path:
                logger.warning("%s holds nothing: read from %s", self._path, path.name)
            return
        if problem is not None:
            raise problem
        self._table = self._wanted = {}

    def put(self, namespace: str, key: str, value: str) -> asyncio.Future[None] | None:
        """Put one value; return what is done when it is on disk, ``None`` if it is.

        Its error is an ``OSError``: the change could not be written, and is undone.

        Raises:
            TableFull: There is no room for another key, or for so long a value.
        """
        before = self._wanted.get(namespace, {})
        if key not in before:
            check_room("keys", sum(map(len, self._wanted.values())), self.most_entries)
        wanted = {**self._wanted, namespace: {**before, key: value}}
        if len(value) >= len(before.get(key, "")):
            check_room("bytes of keys and values", _bytes_of(wanted) - 1, MOST_BYTES)
        return self._replace(wanted)

    def delete(self, namespace: str, key: str) -> asyncio.Future[None] | None:
        """Delete a key, if it is there; an emptied namespace stays. Returns as :meth:`put`."""
        table = self._wanted.get(namespace, {})
        if key not in table:
            return None
        left = {name: value for name, value in table.items() if name != key}
        return self._replace({**self._wanted, namespace: left})

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return a namespace's table, ``None`` if it never had a key."""
        table = self._table.get(namespace)
        return None if table is None else dict(table)

    def _replace(self, table: dict[str, dict[str, str]]) -> asyncio.Future[None] | None:
        self._wanted = table
        try:
            done = asyncio.get_running_loop().create_future()
        except RuntimeError:
            self._writes.wake()
            return None
        self._waiting.append(done)
        self._writes.wake()
        return done

    def _take(self) -> Write:
        wanted, waiting = self._wanted, self._waiting
        self._waiting = []

        def work() -> int:
            content = _KVConfigFile(wanted).to_json(pretty=True)
            rewrite_file(self._path, content)
            return 2 * len(content)

        def done(error: Exception | None) -> None:
            refused: list[asyncio.Future[None]] = []
            if error is None:
                self._table = wanted
            else:  # what was put behind it is refused too: it rests on that
                self._wanted, refused, self._waiting = self._table, self._waiting, []
            for each in waiting + refused:
                each.set_result(None) if error is None else each.set_exception(error)
            if error is not None and not waiting:
                raise error

        return Write(work, done)


def _bytes_of(table: dict[str, dict[str, str]]) -> int:
    return sum(
        len(namespace) + sum(len(key) + len(value) for key, value in entries.items())
        for namespace, entries in table.items()
    )
