"""A point of a plot, the queue that it may belong to, and the report beside it. Pure.

Points are a table in long form, one row per point, that the engines write as
``figures-data.parquet``::

    kind string, group string?, broker string?, topic string?, qid int32?, t_ns int64,
    value double, label string?

``kind`` is one of ``produce_rate``, ``deliver_rate``, ``dup_rate`` (messages/s, one point per
second), ``dup_by_group`` (the same by report group: the label), ``dup_by_queue``, ``send_latency``
(ms; label = result of the attempt), the five offset copies of :data:`figure_types.OFFSET_SERIES`,
``exposure`` (messages), and ``event`` (label = text).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

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
    label: str | None


class QueueKey(NamedTuple):
    """One queue as one group sees it."""

    group: str
    broker: str
    topic: str
    qid: int

    @property
    def text(self) -> str:
        return f"{self.topic} {self.broker}/{self.qid}"
