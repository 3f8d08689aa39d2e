"""Fewer points of a curve that look the same. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from failback.analytics.analysis.arrays.intervals import Ints


def extremes(values: Sequence[float] | NDArray[np.generic], limit: int) -> Ints:
    """Places of the least and greatest of each of ``limit / 2`` equal spans, ascending.

    All places where there are no more than ``limit``.
    """
    every = np.asarray(values)
    if every.size <= limit:
        return np.arange(every.size)
    span = -(-every.size // (limit // 2))
    # The last span is filled up with its own last value, which adds no new place.
    filled = np.pad(every, (0, -every.size % span), mode="edge").reshape(-1, span)
    starts = np.arange(0, every.size, span)
    return np.unique([starts + filled.argmin(axis=1), starts + filled.argmax(axis=1)])
