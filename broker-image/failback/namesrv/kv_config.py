"""The key-value configuration: the only state of the name server that is on disk.

A file ``{"configTable":{namespace:{key:value}}}``, written with fsync and rename so that it is
always the old or the new one. Source: KVConfigManager, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from failback.common.replacing import rewrite_file
from failback.protocol.body import Body
from failback.protocol.errors import ConfigError, ProtocolError
from failback.protocol.names import check_room

logger = logging.getLogger(__name__)

MOST_ENTRIES: Final = 10_000
ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""Namespace whose table every broker gets with the answer to its registration."""


class _KVConfigFile(Body):
    config_table: dict[str, dict[str, str]]


class KVConfigManager:
    """Namespaces of keys and values. Every change is on disk before the call returns."""

    def __init__(self, path: Path, most_entries: int = MOST_ENTRIES) -> None:
        self._path = path
        self.most_entries = most_entries
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file; if it is empty or damaged, the ``.bak`` that a Java name server leaves.

        Without a file, or with only empty ones, the table is empty.

        Raises:
            ConfigError: One cannot be read and the other is no help: names file and reason.
        """
        problem: ConfigError | None = None
        if not self._path.exists():
            self._table = {}
            return
        for path in (self._path, self._path.with_name(self._path.name + ".bak")):
            try:
                data = path.read_bytes().strip()
                if not data:
                    continue
                self._table = _KVConfigFile.from_json(data).config_table
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
        self._table = {}

    def put(self, namespace: str, key: str, value: str) -> None:
        """Put one value.

        Raises:
            OSError: The change cannot be written; it is then undone.
            TableFull: There is no room for another key.
        """
        if key not in self._table.get(namespace, {}):
            check_room("keys", sum(map(len, self._table.values())), self.most_entries)
        self._replace({**self._table, namespace: {**self._table.get(namespace, {}), key: value}})

    def delete(self, namespace: str, key: str) -> None:
        """Delete a key, if it is there; an emptied namespace stays. Raises as :meth:`put`."""
        if key in self._table.get(namespace, {}):
            left = {name: value for name, value in self._table[namespace].items() if name != key}
            self._replace({**self._table, namespace: left})

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """Return a namespace's table, ``None`` if it never had a key."""
        table = self._table.get(namespace)
        return None if table is None else dict(table)

    def _replace(self, table: dict[str, dict[str, str]]) -> None:
        rewrite_file(self._path, _KVConfigFile(table).to_json(pretty=True))
        self._table = table
