"""Which records of a process are missing, by the ranges of its files. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def missing_ranges(
    last_seq: int, records: int, ranges: Iterable[tuple[int, int]]
) -> list[tuple[int, int]]:
    """First and last ``seq`` of every hole in ``1..last_seq``.

    Args:
        last_seq: How far the process got.
        records: How many of its records are stored, all tables together.
        ranges: Lowest and highest ``seq`` of each of its hot files.

    A hole inside a file (one of its tables is missing) cannot be placed: then all is named.
    """
    if records >= last_seq:
        return []
    holes = []
    following = 1
    for low, high in sorted(ranges):
        if low > following:
            holes.append((following, low - 1))
        following = max(following, high + 1)
    if following <= last_seq:
        holes.append((following, last_seq))
    return holes or [(1, last_seq)]
