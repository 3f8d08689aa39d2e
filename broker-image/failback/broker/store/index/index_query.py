"""Looking messages up by key: DefaultMessageStore.queryMessage of 4.9.8."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import msgspec

from failback.broker.store.index.index_service import IndexService
from failback.broker.store.log.commit_log import CommitLog

_CATCH_UP_SECONDS: Final = 2.0
"""How long a question may wait for the index; clients give up after 3 seconds and more."""
_MOST_BYTES: Final = 15 << 20
"""Of records in one answer: it must fit a frame."""


class QueryResult(msgspec.Struct, frozen=True, gc=False):
    """Whole records, oldest first, and the end of the index; zeros when none is found."""

    records: tuple[bytes, ...] = ()
    index_last_update_timestamp: int = 0
    index_last_update_offset: int = 0


def query_messages(
    index: IndexService, log: CommitLog, topic: str, key: str, most: int, begin: int, end: int
) -> Generator[None, None, QueryResult]:
    """Return the newest ``most`` records of a topic with a key, stored in a time range, ms.

    Records of another key with the same hash may be among them, as in 4.9.8. Yields between steps
    of at most some milliseconds.
    """
    yield from index.catch_up(_CATCH_UP_SECONDS)
    found = yield from index.find(topic, key, most, begin, end)
    if not found.physical_offsets:
        return QueryResult()
    records = _records(log, sorted(found.physical_offsets))
    return QueryResult(records, found.last_update_timestamp, found.last_update_offset)


def _records(log: CommitLog, offsets: list[int]) -> tuple[bytes, ...]:
    """Return the records at ascending ``offsets``; the newest, where not all fit one answer."""
    records: list[bytes] = []
    total = 0
    for offset in reversed(offsets):
        record = log.record_at(offset)
        if record is None:
            continue  # expired
        total += len(record)
        if records and total > _MOST_BYTES:
            break
        records.append(record)
    return tuple(reversed(records))
