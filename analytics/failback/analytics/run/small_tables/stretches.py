"""Which rows of a series tell what it was at an instant, how high it came, and where it fell."""

from __future__ import annotations

import numpy as np

from failback.analytics.run.small_tables.columns import Ints


def telling(series: Ints, slot: Ints, state: Ints, t: Ints, value: Ints, *, falls: bool) -> Ints:
    """Row numbers, ascending, of the ends and the highest value of every stretch.

    A stretch is a part of a series with one slot and one state. Rows of two chunks are told apart
    as if they had been in one, where the chunks' rows of a series follow each other in time.

    Args:
        series: What each row is of.
        slot: Numbers that ascend with time in a series.
        state: Something that changes seldom, as the life of a process.
        t: When.
        value: How much.
        falls: Also the two rows of every step down: between them a series only grows.
    """
    if not t.size:
        return np.empty(0, np.int64)
    order = _in_time(series, t, value)
    of, at, what, when, much = (each[order] for each in (series, slot, state, t, value))
    same = of[1:] == of[:-1]
    new = np.append(True, ~same | (at[1:] != at[:-1]) | (what[1:] != what[:-1]))
    first = np.flatnonzero(new)
    last = np.append(first[1:], new.size) - 1
    stretch = np.cumsum(new) - 1
    # Of several rows at one end the readers take the least or the greatest.
    keep = (when == when[first][stretch]) | (when == when[last][stretch])
    highest = np.flatnonzero(much == np.maximum.reduceat(much, first)[stretch])
    once = np.append(True, np.diff(stretch[highest]) != 0)
    keep[highest[once]] = True
    if falls:
        down = same & (much[1:] < much[:-1])
        keep[1:] |= down
        keep[:-1] |= down
    return np.sort(order[keep])


def _in_time(series: Ints, t: Ints, value: Ints) -> Ints:
    """Rows by series, time and value; mostly each series is in order already."""
    order = np.argsort(series, kind="stable")
    of, when, much = series[order], t[order], value[order]
    later = (when[1:] > when[:-1]) | ((when[1:] == when[:-1]) & (much[1:] >= much[:-1]))
    if (later | (of[1:] != of[:-1])).all():
        return order
    return np.lexsort((value, t, series))
