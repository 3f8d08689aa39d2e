"""How figures are written for people, the same in page, terminal and ``summary.md``. Pure.

``2,400`` messages, ``60.3 %``, ``6.6 s``; a dash for what was not measured.
"""

from __future__ import annotations

import math
from typing import Final

UNKNOWN: Final = "–"
_LEAST_SHARE: Final = 0.0005
"""A smaller share would round to ``0.0 %``, which reads as none."""


def number(value: float | None) -> str:
    """A count with groups of three, or a measured value with one decimal."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def percent(share: float | None) -> str:
    """A share of one as ``60.3 %``."""
    if share is None or not math.isfinite(share):
        return UNKNOWN
    if 0 < share < _LEAST_SHARE:
        return "< 0.1 %"
    return f"{100 * share:,.1f} %"


def seconds(value: float | None) -> str:
    """A time span: ``6.6 s``; under a tenth of a second in milliseconds."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if 0 < abs(value) < 0.1:
        return f"{1000 * value:,.0f} ms"
    return f"{value:,.1f} s"


def many(value: int, noun: str) -> str:
    """``1 queue``, ``1,200 queues``."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"
