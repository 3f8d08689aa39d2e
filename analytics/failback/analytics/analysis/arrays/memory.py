"""Memory that is free again goes back to the system, not to the allocators' stocks."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import pyarrow as pa


def give_back() -> None:
    """Release what Arrow's pool and malloc keep of what was freed.

    Worth it between passes over all rows: what the next one needs would come on top.

    Source: malloc_trim(3), of the GNU C library; other ones keep what they like.
    """
    pa.default_memory_pool().release_unused()
    _trim()(0)


@cache
def _trim() -> Callable[[int], int]:
    trim: Callable[[int], int] = getattr(ctypes.CDLL(None), "malloc_trim", int)
    return trim
