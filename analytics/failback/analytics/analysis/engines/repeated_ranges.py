"""What counting found to occur more than once. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.counting import families
from failback.analytics.analysis.counting.families import Family
from failback.analytics.analysis.engines.candidates import Repeated
from failback.analytics.analysis.results import Counts


@dataclass(frozen=True, slots=True)
class RepeatedRanges:
    """Ranges of messages and of copies, and how many deliveries are of them."""

    messages: pa.Table
    """Depths of (grp, lane), each deeper than one."""
    around: pa.Table
    """The same where they were too many: ranges around them, with others in between."""
    copies: pa.Table
    """Depths of (grp, queue, epoch), each deeper than one."""
    deliveries: int
    """Of messages or of copies, whichever are more."""
    resent: bool
    """Whether some message has several copies, as far as counts tell.

    A message that is one copy is delivered again as often as that one. Where a log was cut, copies
    may be counted together, so that a few are not seen.
    """

    @classmethod
    def of(cls, counts: Counts) -> Self:
        """What counts say."""
        messages, copies = (
            _deep(family.of(counts.depths)) for family in (families.MESSAGE, families.COPY)
        )
        of_messages = _sizes(messages, families.MESSAGE_TIMES, counts.values)
        of_copies = _sizes(copies, families.COPY_TIMES, counts.values)
        return cls(
            messages,
            families.MESSAGE_SPANS.of(counts.depths),
            copies,
            max(of_messages[0], of_copies[0]),
            of_messages[1] > of_copies[1],
        )

    @property
    def wider(self) -> bool:
        """Whether :attr:`searched` has messages that were delivered once."""
        return bool(self.around.num_rows)

    @property
    def searched(self) -> pa.Table:
        """Ranges of (grp, lane) that have every message that was delivered more than once."""
        return pa.concat_tables([self.messages, self.around])

    @property
    def repeated(self) -> Repeated:
        """What is searched, as sets."""
        return Repeated.of(self.searched, self.copies)


def _deep(depths: pa.Table) -> pa.Table:
    return depths.filter(pc.greater_equal(depths.column("depth"), 2))


def _sizes(ranges: pa.Table, times: Family, values: Mapping[str, pa.Table]) -> tuple[int, int]:
    """Deliveries of what occurs more than once, and how many are not the first."""
    c, crowded = Columns(ranges), Columns(_deep(times.of(values)))
    depth = np.append(c.ints("depth"), crowded.ints("depth"))
    count = np.append(c.ints("hi") - c.ints("lo"), crowded.ints("value"))
    return int((count * depth).sum()), int((count * (depth - 1)).sum())
