"""Brings what was sent of messages by business key to the parts of the messages. For workers.

Deliveries are put into parts by message, where those that came once are left out. The links of the
others meet send attempts and send-backs in parts by what was sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

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
        return row_blocks.by_message(links_of(rows, self.messages), self.parts, LINKS)

    def of_part(self, part: pa.Table) -> pa.Table:
        """Those of what came more than once in one part of :meth:`of_chunk`, by what was sent."""
        again = links_of_repeated(row_blocks.unpacked(part, LINKS))
        return row_blocks.by_message(again, self.parts, LINKS, "sent_lane", "sent_lseq")


@dataclass(frozen=True, slots=True)
class Evidence:
    """Attempts and send-backs, by what was sent and then by message."""

    context: Context
    parts: int
    parts_of_messages: int

    def attempts(self, chunk: pa.Table) -> pa.Table:
        """Of rows of ``produce``, by what was sent (``row_blocks.BLOCKS``)."""
        return row_blocks.by_message(chunks.all_attempts_of(chunk), self.parts, ATTEMPTS)

    def send_backs(self, chunk: pa.Table) -> pa.Table:
        """Of rows of ``sendback``, by what was sent (``row_blocks.BLOCKS``)."""
        return row_blocks.by_message(send_backs_of(chunk, self.context), self.parts, SENT_BACK)

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
                row_blocks.by_message(sent, self.parts_of_messages, ATTEMPTS),
                row_blocks.by_message(back, self.parts_of_messages, SENT_BACK),
            ]
        )
