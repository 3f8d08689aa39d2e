"""What is done with one part of the deliveries that occur more than once. Pure, for workers.

A part has all deliveries of its messages, and their send attempts where those can matter. Parts are
about equal, but a message is never cut: one that was delivered a million times makes its part
longer by a million rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.arrays.intervals import IntervalSet
from failback.analytics.analysis.causes.business_keys import produced_by_key
from failback.analytics.analysis.causes.classify import CauseInputs, classify, joined
from failback.analytics.analysis.causes.send_backs import SEND_BACKS, send_backs_of, sent_back_table
from failback.analytics.analysis.counting import families, tables
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.sums import SCHEMA, Key, Partials
from failback.analytics.analysis.engines import row_blocks
from failback.analytics.analysis.engines.candidates import (
    Candidates,
    Repeated,
    Sent,
    by_lane,
    only_repeated,
)
from failback.analytics.analysis.engines.joins import produced_of
from failback.analytics.run.align import Clocks
from failback.analytics.run.definitions import BUSINESS_KEY

CANDIDATES: Final = 0
ATTEMPTS: Final = 1
SENT_BACK: Final = 2
"""Kinds of blocks in a part."""


class Reduce(Protocol):
    """Makes partial rows of a part. Picklable."""

    @property
    def processed(self) -> Sequence[int | None]:
        """Per assignment what had been processed when its queue was taken."""

    def attributed(self, classified: pa.Table, send_backs: pa.Table) -> pa.Table:
        """The rows of a part (``tables.CLASSIFIED``) as a person may want to see them.

        ``send_backs`` (``send_backs.SEND_BACKS``) are those of the part's messages.
        """

    def counted(self, attributed: pa.Table) -> pa.Table:
        """Partial rows of them (``sums.SCHEMA``)."""


class RowsTo(Protocol):
    """Where the rows of parts go, one by one. Picklable."""

    def write(self, part: pa.Table) -> None:
        """Write what ``Reduce.attributed`` made of a part; again, if a task is repeated."""


@dataclass(frozen=True, slots=True)
class CandidatesByMessage:
    """Brings candidates to the part of their message."""

    candidates: Candidates
    parts: int

    def __call__(self, chunk: pa.Table) -> pa.Table:
        found = [
            row_blocks.by_message(piece, self.parts, CANDIDATES)
            for piece in self.candidates.pieces_of(chunk)
        ]
        return pa.concat_tables([row_blocks.BLOCKS.empty_table(), *found])


@dataclass(frozen=True, slots=True)
class AttemptsByMessage:
    """Brings send attempts to the part of the message that they made."""

    sent: Sent
    parts: int

    def __call__(self, chunk: pa.Table) -> pa.Table:
        return row_blocks.by_message(self.sent.among(chunk), self.parts, ATTEMPTS)


@dataclass(frozen=True, slots=True)
class SendBacksByMessage:
    """Brings what was sent back to the part of its message."""

    lanes: Mapping[int, IntervalSet]
    """The messages that occur more than once."""
    context: Context
    parts: int

    def __call__(self, chunk: pa.Table) -> pa.Table:
        found = send_backs_of(chunk, self.context)
        c = Columns(found)
        lseq, again = c.ints("lseq"), np.zeros(c.count, bool)
        for one, where in by_lane(c.ints("lane")):
            if one in self.lanes:
                again[where] = self.lanes[one].contains(lseq[where])
        return row_blocks.by_message(found.filter(pa.array(again)), self.parts, SENT_BACK)


@dataclass(frozen=True, slots=True)
class PartReduction:
    """Classifies a part and makes partial rows of it; nothing else leaves it."""

    inputs: CauseInputs
    clocks: Clocks
    key: str
    reduce: Reduce
    rows: RowsTo | None
    has_attempts: bool
    """Whether send attempts are in the parts."""
    wider: Repeated | None = None
    """What was looked for, where that is more than what occurs more than once."""

    def __call__(self, part: pa.Table) -> pa.Table:
        """Partial rows (``sums.SCHEMA``) of one part (``row_blocks.BLOCKS``)."""
        candidates = row_blocks.unpacked(part, CANDIDATES)
        if not candidates:
            return SCHEMA.empty_table()
        if self.wider is not None:
            candidates = only_repeated(candidates, self.wider)
        attempts = row_blocks.unpacked(part, ATTEMPTS)
        back = sent_back_in(part)
        del part
        classified = classify(candidates, self.inputs, sent_back_table(back), self.clocks)
        resent = pc.sum(classified.column("resent").cast(pa.int64())).as_py()
        parts = [classified]
        del classified
        classified = joined(parts, partial(self._produced, attempts))
        attributed = self.reduce.attributed(classified, back)
        del classified
        if self.rows is not None:
            self.rows.write(attributed)
        found = self.reduce.counted(attributed)
        return (
            found if self.has_attempts or not resent else pa.concat_tables([found, _open(resent)])
        )

    def _produced(self, attempts: list[pa.Table]) -> pa.Table:
        """Send attempts of the messages of the part, summed up."""
        if not attempts:
            return tables.PRODUCED.empty_table()
        whole = pa.concat_tables(attempts)
        return produced_by_key(whole) if self.key == BUSINESS_KEY else produced_of(whole)


def sent_back_in(part: pa.Table) -> pa.Table:
    """What was sent back of a part's messages (``send_backs.SEND_BACKS``)."""
    return pa.concat_tables([SEND_BACKS.empty_table(), *row_blocks.unpacked(part, SENT_BACK)])


def _open(resent: int) -> pa.Table:
    out = Partials()
    out.values(families.RESENT, Key(), np.array([resent], np.int64))
    return out.table()
