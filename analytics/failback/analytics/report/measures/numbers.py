"""From exact integers to the numbers of a report: rounded once, at the very end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Any, Final

import numpy as np

from failback.analytics.analysis.arrays.intervals import Ints

Row = dict[str, Any]

NS: Final = 1_000_000_000


def ratio(part: int, whole: int) -> float | None:
    """A share, rounded half-even to four digits; null when there is nothing to share."""
    return float(round(Fraction(part, whole), 4)) if whole else None


def seconds(ns: int) -> float:
    """Nanoseconds as seconds, to the microsecond."""
    return float(round(Fraction(ns, NS), 6))


def millis(ns: int | None) -> float | int | None:
    """Nanoseconds as milliseconds to the microsecond; whole ones as integers."""
    if ns is None:
        return None
    exact = round(Fraction(ns, 1_000_000), 3)
    return int(exact) if exact.denominator == 1 else float(exact)


def quantile(ordered: Sequence[int] | Ints, share: float) -> int | None:
    """Nearest-rank quantile of ascending values."""
    return int(ordered[max(0, ceil(share * len(ordered)) - 1)]) if len(ordered) else None


def quantile_of_counts(ordered: Ints, below: Ints, share: float) -> int | None:
    """The same of distinct ascending values and how many are at most as great as each."""
    if not ordered.size:
        return None
    rank = max(1, ceil(share * int(below[-1])))
    return int(ordered[np.searchsorted(below, rank)])
