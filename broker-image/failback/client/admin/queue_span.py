"""The offsets that a queue has, and what an offset outside of them means. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Span(NamedTuple):
    """From the first offset that is stored to the end of a queue."""

    first: int
    end: int
    """The offset that the next message gets."""

    def holds(self, offset: int) -> bool:
        """Whether a group can go on there."""
        return self.first <= offset <= self.end

    def nearest(self, offset: int) -> int:
        """The offset of the queue that is nearest to one that may lie outside."""
        return max(self.first, min(offset, self.end))

    def lag(self, offset: int) -> int:
        """Messages that are stored and not consumed."""
        return self.end - self.nearest(offset)

    def expired(self, offset: int) -> int:
        """Messages that were not consumed and are no longer stored."""
        return max(0, self.first - max(0, offset))

    def beyond(self, offset: int) -> int:
        """How far an offset lies behind the end, where there never was a message."""
        return max(0, offset - self.end)

    def outside(self, offset: int) -> str:
        """By how much an offset lies outside, in words; empty for one within."""
        if offset > self.end:
            return f"{offset} lies {self.beyond(offset)} beyond the end {self.end}"
        if offset < self.first:
            return f"{offset} lies {self.first - offset} below the first offset {self.first}"
        return ""
