"""``failback`` with brokers that keep consumer offsets in a wrong way.

Everything else of them is the product: ``python wrong_brokers.py WRONG up ...`` is ``failback up``,
and starts its servers as ``python wrong_brokers.py WRONG broker -c ...``, which is ``failback
broker -c ...`` after one method or two were replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from failback.broker.metadata.offsets.consumer_offset_manager import ConsumerOffsetManager
from failback.cli.__main__ import main
from failback.operator.local import podspec

_commit = ConsumerOffsetManager.commit
_query = ConsumerOffsetManager.query


def _ignores_file() -> None:
    """A restarted broker begins with an empty table, whatever its file says."""
    ConsumerOffsetManager.load = lambda self: None  # type: ignore[method-assign]


def _commits_nothing() -> None:
    """Commits are answered as always, and dropped."""

    def commit(
        self: ConsumerOffsetManager, group: str, topic: str, queue_id: int, offset: int
    ) -> None: ...

    ConsumerOffsetManager.commit = commit  # type: ignore[method-assign]


def _merges_downwards() -> None:
    """Of two values the smaller one stays, of commits and of what a slave copies."""

    def commit(
        self: ConsumerOffsetManager, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        stored = _query(self, group, topic, queue_id)
        _commit(self, group, topic, queue_id, offset if stored < 0 else min(stored, offset))

    def merge(self: ConsumerOffsetManager, table: Mapping[str, Mapping[int, int]]) -> None:
        for key, queues in table.items():
            mine = self.table.setdefault(key, {})
            for queue_id, offset in queues.items():
                mine[queue_id] = min(offset, mine.get(queue_id, offset))

    ConsumerOffsetManager.commit = commit  # type: ignore[method-assign]
    ConsumerOffsetManager.merge_from_master = merge  # type: ignore[method-assign]


def _answers_zero() -> None:
    """Who asks where to begin is told 0; the table itself is right."""

    def query(self: ConsumerOffsetManager, group: str, topic: str, queue_id: int) -> int:
        return min(_query(self, group, topic, queue_id), 0)

    ConsumerOffsetManager.query = query  # type: ignore[method-assign]


WRONGS: Final[Mapping[str, Callable[[], None]]] = {
    "ignores-file": _ignores_file,
    "commits-nothing": _commits_nothing,
    "merges-downwards": _merges_downwards,
    "answers-zero": _answers_zero,
}


def program(wrong: str, *words: str) -> int:
    """Be ``failback up`` with wrong brokers, or one of its servers."""
    if words[0] == "up":
        podspec.own_command = lambda: [sys.executable, __file__, wrong]
    else:
        WRONGS[wrong]()
    return main(words)


if __name__ == "__main__":
    sys.exit(program(*sys.argv[1:]))
