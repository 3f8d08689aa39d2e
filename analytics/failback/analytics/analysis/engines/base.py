"""What a runner does: an engine's passes over pieces of tables, grouped by part, and joined.

An engine has the passes; runners differ only in where the pieces are worked on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self

import pyarrow as pa

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.lake.row_groups import Wanted

PART_ROWS: Final = 250_000
"""Rows of a part, about: what is worked on together when rows are grouped by message or by key."""


@dataclass(frozen=True, slots=True)
class Forbidden:
    """When a good send does not yet count as recovery from one outage."""

    first_bad: int
    lo: Ints
    hi: Ints


Spans = Sequence[Mapping[str, tuple[Any, Any]]]
"""Rows that lie in one of several ranges: by column the least and the greatest value."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One table's part of a job: the columns to read, and what to do with a chunk of them.

    Workers may be other processes: ``function`` and ``wanted`` are functions of a module, methods
    of a picklable object, or ``functools.partial`` of such.
    """

    table: str
    columns: Sequence[str]
    function: Callable[[pa.Table], pa.Table]
    wanted: Wanted | None = None
    """Row groups that are read; all of them if it says nothing."""
    spans: Spans | None = None
    """The same as a filter of rows: other row groups without a null ``lane`` have no such row."""


@dataclass(frozen=True, slots=True)
class Joined:
    """Partial rows, added up: one table per family."""

    values: Mapping[str, pa.Table]
    """``tables.VALUES``."""
    depths: Mapping[str, pa.Table]
    """``tables.DEPTHS``."""
    runs: int
    """Interval rows before they were added up."""


class Rows(Protocol):
    """What passes made, wherever it lies; used once."""

    def whole(self) -> pa.Table:
        """All of it, here."""

    def values(self) -> Mapping[str, pa.Table]:
        """Partial rows without intervals, joined (``Joined.values``)."""

    def joined(self, condense: Callable[[pa.Table], pa.Table]) -> Joined:
        """Partial rows, joined.

        ``condense`` is picklable. It makes partial rows of depths (``tables.DEPTHS``), of some
        blocks at a time (``engines.condensing``).
        """

    def by_part(self, function: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> Self:
        """What a function makes of all blocks (``blocks.BLOCKS``) of each part.

        The function is picklable, and what it returns has ``schema``.
        """

    def and_(self, other: Self) -> Self:
        """These and others of the same runner and schema."""


class Runner(Protocol):
    """Works through the tables of one run."""

    name: str
    parallelism: int
    """Parts that are worked on at a time."""

    def mapped(self, passes: Sequence[Pass], schema: pa.Schema) -> Rows:
        """What the passes make of every chunk of their tables, with ``schema``.

        A file that cannot be read is left out and named in the lake.
        """
