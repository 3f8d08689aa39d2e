"""Brings what was sent of messages by business key to the parts of the messages. For workers.

Deliveries are put into parts by message, where those that came once are left out. The links of the
others meet send attempts and send-backs in parts by what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.arrays.intervals import IntervalSet
from failback.analytics.analysis.causes.business_keys import (
    attempts_by_key,
    links_of,
    links_of_repeated,
    send_backs_by_key,
)
from failback.analytics.analysis.causes.send_backs import send_backs_of
from failback.analytics.analysis.counting.normalise import Dropped, Ends, normalise
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.engines import chunks, row_blocks
from failback.analytics.analysis.engines.joins import produced_of
from failback.analytics.analysis.engines.repeats import ATTEMPTS, SENT_BACK, sent_back_in

LINKS: Final = 3
"""A further kind of blocks, only in parts by what was sent."""


@dataclass(frozen=True, slots=True)
class Links:
    """Of deliveries the links of messages, by message and then by what was sent."""

    context: Context
    ends: Ends
    messages: Mapping[Any, IntervalSet]
    """Per (group, lane), with all messages that occur more than once."""
    parts: int

    def of_chunk(self, chunk: pa.Table) -> pa.Table:
        """Those of raw rows, by message (``row_blocks.BLOCKS``)."""
        rows = normalise(chunk, self.context, self.ends, Dropped())
        return _by(links_of(rows, self.messages), "lane", "lseq", self.parts, LINKS)

    def of_part(self, part: pa.Table) -> pa.Table:
        """Those of what came more than once in one part of :meth:`of_chunk`, by what was sent."""
        again = links_of_repeated(row_blocks.unpacked(part, LINKS))
        return _by(again, "sent_lane", "sent_lseq", self.parts, LINKS)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Attempts and send-backs, by what was sent and then by message."""

    context: Context
    parts: int
    parts_of_messages: int

    def attempts(self, chunk: pa.Table) -> pa.Table:
        """Of rows of ``produce``, by what was sent (``row_blocks.BLOCKS``)."""
        return _by(chunks.all_attempts_of(chunk), "lane", "lseq", self.parts, ATTEMPTS)

    def send_backs(self, chunk: pa.Table) -> pa.Table:
        """Of rows of ``sendback``, by what was sent (``row_blocks.BLOCKS``)."""
        return _by(send_backs_of(chunk, self.context), "lane", "lseq", self.parts, SENT_BACK)

    def of_part(self, part: pa.Table) -> pa.Table:
        """What one part by what was sent tells, by message (``row_blocks.BLOCKS``)."""
        links = row_blocks.unpacked(part, LINKS)
        if not links:
            return row_blocks.BLOCKS.empty_table()
        linked = pa.concat_tables(links)
        attempts = pa.concat_tables(
            [chunks.ATTEMPTS.empty_table(), *row_blocks.unpacked(part, ATTEMPTS)]
        )
        sent = attempts_by_key(linked, produced_of(attempts))
        back = send_backs_by_key(linked, sent_back_in(part))
        return pa.concat_tables(
            [
                _by(sent, "lane", "lseq", self.parts_of_messages, ATTEMPTS),
                _by(back, "lane", "lseq", self.parts_of_messages, SENT_BACK),
            ]
        )


def _by(found: pa.Table, lane: str, lseq: str, parts: int, kind: int) -> pa.Table:
    c = Columns(found)
    return row_blocks.split(found, row_blocks.parts_of(c.ints(lane), c.ints(lseq), parts), kind)
