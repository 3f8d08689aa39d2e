"""Ranges of mapped files that can't be read: a bad sector, or an end that was cut off.

The first touch of such a page is a signal that ends a process. The kernels replace the page by
zeros and count it (``native/faults.c``): a reader compares the count before
and after.
Without kernels the process ends, and ``faulthandler`` says where.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from failback.broker.native import kernels
from failback.protocol.errors import StoreError


def _touch_nothing(_views: tuple[memoryview, ...], _are_records: bool) -> int:
    return 0


touch: Final[Callable[[tuple[memoryview, ...], bool], int]] = (
    _touch_nothing if kernels is None else kernels.touch
)
"""``touch(views, are_records)``: read a byte of each page of ``views``; return :func:`bad_pages`.

Or -1 if ``are_records`` and one of them does not begin with a record, but perhaps with the hole
that is where a file was cut and grew again."""

BAD_PAGE: Final = "a bad sector, or somebody cut the file"


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
        known: How many bad pages there were when the files were mapped last.
        failures: How many reads were found not to be.
    """

    def __init__(self, drop_mappings: Callable[[], None]) -> None:
        """``drop_mappings`` lets all files be mapped again: zeros took the place of their pages."""
        self._drop_mappings = drop_mappings
        self.known = bad_pages()
        self.failures = 0

    def is_good(self, views: tuple[memoryview, ...], *, are_records: bool) -> bool:
        """Touch ``views``; tell whether all that was read from the mappings could be read."""
        if touch(views, are_records) == self.known:
            return True
        self.begin_again()
        return False

    def begin_again_if_needed(self) -> None:
        """Map the files again if there were bad pages since the last time."""
        if bad_pages() != self.known:
            self.begin_again()

    def begin_again(self) -> None:
        """Map the files again."""
        self._drop_mappings()
        self.known = bad_pages()
