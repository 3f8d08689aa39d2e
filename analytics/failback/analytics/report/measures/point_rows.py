"""A point of a plot, and the report beside it. Pure.

Points are a table in long form, one row per point, that the engines write as
``figures-data.parquet``::

    kind string, group string?, broker string?, topic string?, qid int32?, t_ns int64,
    value double, label string?, exact int64?, width_s int32?

``exact`` is the value where that is an integer: a double has no more than 53 bits of an offset.
``width_s`` is how many seconds, from ``t_ns``, a rate or a count is of; one where it is null.

``kind`` is one of ``produce_rate``, ``deliver_rate``, ``dup_rate`` (messages/s),
``dup_by_group`` (messages, by report group: the label), ``dup_by_queue``, ``send_latency``
(ms; label = result of the attempt), the five offset copies of :data:`time_series.OFFSET_SERIES`,
``exposure`` (messages), and ``event`` (label = text). Of offset copies over hours, the least and
the greatest of equal spans are there, and all from before a fault to after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

Report = Mapping[str, Any]

MAX_LINES: Final = 6
"""Groups that get a curve of their own in one figure; the tables have all."""


class Point(NamedTuple):
    """One row of the points table."""

    kind: str
    group: str | None
    broker: str | None
    topic: str | None
    qid: int | None
    t_ns: int
    value: float
    """An ``int`` where it is one: offsets and counts."""
    label: str | None
    width_s: int = 1


def points_of(table: pa.Table) -> list[Point]:
    """The rows of a points table."""
    columns = table.to_pydict()
    columns["width_s"] = [1 if width is None else width for width in columns["width_s"]]
    columns["value"] = [
        value if integer is None else integer
        for value, integer in zip(columns["value"], columns["exact"], strict=True)
    ]
    return [Point(*row) for row in zip(*(columns[name] for name in Point._fields), strict=True)]
