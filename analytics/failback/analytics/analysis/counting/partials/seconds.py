"""Spans of seconds that partial rows are of, so that long runs do not have more of them. Pure.

A span is one second in a run of up to an hour, and near every step of a fault. Elsewhere a span is
as long as makes some thousands of the whole run. What comes later than an hour after the run's end
lies in spans of a day. A span has the number of its last full second after run zero: what is known
of it is known by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from failback.analytics.analysis.arrays.intervals import Ints

NS: Final = 1_000_000_000
MAX_SPANS: Final = 3_600
"""Of a run, beside the seconds near faults."""
BEFORE_SECONDS: Final = 60
AFTER_SECONDS: Final = 120
_HOUR: Final = 3_600
_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class Seconds:
    """The spans of one run: stretches of spans of equal width, ascending."""

    begins: tuple[int, ...] = (0,)
    """Second with which each stretch begins; the first one also has what lies before it."""
    widths: tuple[int, ...] = (1,)
    """Seconds of a span in each; the last span of a stretch may have fewer."""

    @classmethod
    def of(cls, end_ns: int, faults_ns: Iterable[int]) -> Self:
        """Those of a run.

        Args:
            end_ns: Its end, ns after run zero; 0 where it is not known.
            faults_ns: When something was done to it, ns after run zero.
        """
        length = max(0, end_ns) // NS + 1
        wide = -(-length // MAX_SPANS)
        near = (
            (at // NS - BEFORE_SECONDS, at // NS + AFTER_SECONDS) for at in faults_ns if wide > 1
        )
        begins, widths = [0], [wide]
        for lo, hi in _joined(near):
            begins += [lo, hi]
            widths += [1, wide]
        begins[0] = min(begins)
        if end_ns > 0:
            begins.append(max(length, begins[-1]) + _HOUR)
            widths.append(_DAY)
        return cls(tuple(begins), tuple(widths))

    def last(self, t_ns: Ints) -> Ints:
        """Number of the span that each instant lies in; ns after run zero."""
        second = t_ns // NS
        begin, width, end, _ = self._stretches(second)
        if isinstance(width, int) and width == 1:
            return second
        found: Ints = np.minimum(begin + ((second - begin) // width + 1) * width, end) - 1
        return found

    def firsts_of(self, last: Ints) -> Ints:
        """The first second of each of these spans."""
        begin, width, _, _ = self._stretches(last)
        found: Ints = begin + (last - begin) // width * width
        return found

    def widths_of(self, last: Ints) -> Ints:
        """How many seconds each of these spans has."""
        found: Ints = last - self.firsts_of(last) + 1
        return found

    def between(self, first: Ints, behind: Ints) -> tuple[Ints, Ints]:
        """All spans from ``first`` up to ``behind``: an index of the pair for each, and the span.

        ``behind`` itself is not among them.
        """
        begin = self._place(first)
        length = np.maximum(self._place(behind) - begin, 0)
        which = np.repeat(np.arange(length.size), length)
        step = np.arange(which.size) - np.repeat(np.cumsum(length) - length, length)
        place = begin[which] + step
        begins, widths, ends, places = self._columns()
        stretch = np.maximum(np.searchsorted(places, place, "right") - 1, 0)
        last = begins[stretch] + (place - places[stretch] + 1) * widths[stretch]
        return which, np.minimum(last, ends[stretch]) - 1

    def _stretches(self, second: Ints) -> tuple[Ints | int, Ints | int, Ints | int, Ints | int]:
        """Begin, width, end and first place of each second's stretch; numbers if it is one."""
        begins, widths, ends, places = self._columns()
        if not second.size:
            return 0, 1, 0, 0
        extremes = np.array([second.min(), second.max()])
        lo, hi = np.maximum(np.searchsorted(begins, extremes, "right") - 1, 0).tolist()
        if lo == hi:
            return int(begins[lo]), int(widths[lo]), int(ends[lo]), int(places[lo])
        stretch = np.maximum(np.searchsorted(begins, second, "right") - 1, 0)
        return begins[stretch], widths[stretch], ends[stretch], places[stretch]

    def _place(self, second: Ints) -> Ints:
        """Ascending numbers without gaps of the spans."""
        begin, width, _, place = self._stretches(second)
        found: Ints = place + (second - begin) // width
        return found

    def _columns(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Begin, width, end and place of the first span of each stretch."""
        begins, widths = (np.array(each, np.int64) for each in (self.begins, self.widths))
        ends = np.append(begins[1:], np.iinfo(np.int64).max)
        spans = -((begins[:-1] - ends[:-1]) // widths[:-1])
        return begins, widths, ends, np.append(0, np.cumsum(spans))


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans that do not touch, ascending."""
    found: list[tuple[int, int]] = []
    for lo, hi in sorted(spans):
        if found and lo <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], hi)
        else:
            found.append((lo, hi))
    return found
