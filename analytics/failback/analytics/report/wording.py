"""How figures of a report are written for people: those of :mod:`failback.common.numbers`.

A dash for what was not measured, and a measured value that is no count has one decimal. Pure.
"""

from __future__ import annotations

import math
from typing import Final

from failback.common import numbers

UNKNOWN: Final = "–"


def number(value: float | None) -> str:
    """A count with groups of three, or a measured value with one decimal."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return numbers.count(value) if isinstance(value, int) else f"{value:,.1f}"


def percent(share: float | None) -> str:
    """A share of one as ``60.3 %``."""
    known = share is not None and math.isfinite(share)
    return numbers.percent(share) if known else UNKNOWN


def seconds(value: float | None) -> str:
    """A time span as ``6.6 s``."""
    known = value is not None and math.isfinite(value)
    return numbers.seconds(value) if known else UNKNOWN


def many(value: int, noun: str) -> str:
    """``1 queue``, ``1,200 queues``."""
    return numbers.counted(value, noun)
