"""What an engine does: the passes over the large tables. Everything else is shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.causes.classify import CauseInputs
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.phases import Phase
from failback.analytics.analysis.results import Counts


@dataclass(frozen=True, slots=True)
class Forbidden:
    """When a good send does not yet count as recovery from one outage."""

    first_bad: int
    lo: Ints
    hi: Ints


class Engine(Protocol):
    """Passes over deliver, produce, pull, commit and scan of one run."""

    name: str

    def known(self, boots: Mapping[str, Sequence[int]]) -> pa.Table:
        """Highest offsets before each start of a master (``partials.known_partials``)."""

    def count(self, context: Context) -> Counts:
        """Count: add up the partial rows of all large tables."""

    def resumed(self, context: Context, forbidden: Sequence[Forbidden]) -> pa.Table:
        """First good send after each outage (``partials.resumed_partials``)."""

    def phase_rows(self, context: Context, wanted: Sequence[Phase]) -> pa.Table:
        """Rows behind instants that :meth:`count` found (``partials.phase_partials``)."""

    def links(self, context: Context, messages: pa.Table) -> pa.Table:
        """What was sent of messages that are the same by business key (``tables.LINKS``).

        Args:
            context: As in :meth:`count`.
            messages: Depths of (grp, lane) that occur more than once.
        """

    def classify(
        self, context: Context, messages: pa.Table, copies: pa.Table, inputs: CauseInputs
    ) -> pa.Table:
        """Classify the candidates.

        Args:
            context: As in :meth:`count`.
            messages: Depths of (grp, lane) that occur more than once.
            copies: Depths of (grp, queue, epoch) that occur more than once.
            inputs: The small tables; ``produced`` is the engine's own to fill.

        Returns:
            ``tables.CLASSIFIED``, sorted.
        """

    def order(self, context: Context, topics: frozenset[str], classified: pa.Table) -> pa.Table:
        """Order inversions per key of ordered topics (``tables.ORDER``)."""
