"""The result tables of a run: what an analysis hands to a report. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from failback.analytics.analysis.causes.coverage import Distance, Progress
from failback.analytics.analysis.causes.windows import Redelivered, Windows
from failback.analytics.analysis.counting.normalise import Dropped
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.resolution import Resolution
from failback.analytics.run.history import GroupQueue, History
from failback.analytics.run.run_folder import RunFolder


class LakeRead(Protocol):
    """The lake that an analysis read, as far as a report tells of it."""

    @property
    def parts(self) -> Mapping[str, Sequence[Any]]:
        """Files by table; each has ``name``, ``rows`` and ``size``."""

    @property
    def unreadable(self) -> Sequence[str]:
        """Files that could not be read."""

    @property
    def filled(self) -> Mapping[str, Sequence[str]]:
        """Nullable columns that some file of a table lacks."""

    def rows(self, table: str) -> int:
        """Rows of a table."""

    def segments(self) -> Sequence[Mapping[str, Any]]:
        """The notes of all segments."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Histories of everything, added up: one table per family."""

    depths: Mapping[str, pa.Table]
    """``tables.DEPTHS`` of the interval families."""
    values: Mapping[str, pa.Table]
    """``tables.VALUES`` of the value families."""
    dropped: Dropped
    orphan_ends: int
    """End records without a begin anywhere."""
    runs: int
    """Interval rows before they were added up; small beside the rows when histories are dense."""


@dataclass(frozen=True, slots=True)
class Repeats:
    """Deliveries that occur more than once, added up: one table per family."""

    depths: Mapping[str, pa.Table]
    """``tables.DEPTHS`` of the interval families."""
    values: Mapping[str, pa.Table]
    """``tables.VALUES`` of the value families."""
    resolution: Resolution


class Resumed(NamedTuple):
    """One assignment of a queue after its first, by its number in the history: what was processed
    before it (the last offset plus one), the offset that it saw as the group's, and how many
    messages are re-consumed by that."""

    number: int
    key: GroupQueue
    consumed: int
    start: int
    expected: int


@dataclass(frozen=True, slots=True)
class Foreign:
    """What is known of a run of another engine beside its counts."""

    resumed: Sequence[Resumed]
    proved: pa.Table
    """``attribution.PROVED``."""
    send_gap: int | None
    """The longest time without an acknowledged send in a queue, from the kill on, ns."""
    receive_gaps: Mapping[str, int]
    """By group whose one member ran through: the longest time without a delivery, ns."""


@dataclass(slots=True)
class Analysis:
    """All result tables of a run. Integers only; ratios and seconds are the report's."""

    folder: RunFolder
    lake: LakeRead
    history: History
    context: Context
    counts: Counts
    progress: Progress
    repeats: Repeats
    order: pa.Table
    resumed: Mapping[int, int]
    """Per outage the end of the first lasting good send, ns after run zero."""
    phase_rows: Mapping[tuple[int, str], str]
    """Per (outage, phase) the row that gave it its instant: ``table/process number/seq``."""
    failed_after: Mapping[int, bool]
    """Per outage whether any send failed after it."""
    distances: Sequence[Distance]
    """Per assignment."""
    redelivered: Mapping[int, Redelivered]
    """Per assignment, of those that delivered something again."""
    windows: Windows
    foreign: Foreign | None = None
    """Beside the counts, of a run of another engine than RocketMQ."""
    timings: dict[str, float] = field(default_factory=dict)
