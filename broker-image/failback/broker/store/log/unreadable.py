"""Ranges of mapped files that can't be read: a bad sector, or an end that somebody cut off.

The first touch of such a page is a signal that ends a process. The kernels replace the page by
zeros and count it (``native/faults.c``): who has read asks whether the count has changed.
Without kernels the process ends, and ``faulthandler`` says where.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from failback.broker.native import kernels
from failback.protocol.errors import StoreError

_touch: Final = (
    cast(Callable[[tuple[memoryview, ...], bool], int], kernels.touch)
    if kernels is not None
    else None
)


class ReadFailed(StoreError):
    """A range of a file can't be read. Everything else can."""

    def __init__(self, path: Path, position: int, what: str) -> None:
        super().__init__(f"{path} can't be read at byte {position}: {what}")
        self.path = path


def catch_bad_pages() -> None:
    """Let reads of bad pages fail one by one from now on, not the process."""
    if kernels is not None:
        kernels.catch_bus_errors()


def bad_pages() -> int:
    """Return how many pages of this process could not be read; 0 without kernels."""
    return cast(int, kernels.bad_pages()) if kernels is not None else 0


class ReadCheck:
    """Whether what was read is what the files hold.

    Attributes:
        failures: How many reads were found not to be.
    """

    def __init__(self, drop_mappings: Callable[[], None]) -> None:
        """``drop_mappings`` lets all files be mapped anew: zeros took the place of their pages."""
        self._drop_mappings = drop_mappings
        self._known = bad_pages()
        self.failures = 0

    def is_good(self, views: tuple[memoryview, ...], *, are_records: bool) -> bool:
        """Touch ``views``; tell whether all that was read since the last call could be read.

        ``are_records``: each must also begin with a record, and not with the hole that is where a
        file was cut and grew again.
        """
        if _touch is None:
            return True
        count = _touch(views, are_records)
        return count == self._known or self._is_bad(count)

    def _is_bad(self, count: int) -> bool:
        if count >= 0:
            self._known = count
        self._drop_mappings()
        return False
