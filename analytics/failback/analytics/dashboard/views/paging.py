"""Pages of a list by cursor: opaque, stable while the list grows at its front. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from failback.analytics.dashboard.problems import DashboardProblem

MOST: Final = 500
CURSOR_CHARS: Final = 512
_Item = TypeVar("_Item")


def page(
    items: Sequence[_Item], key: Callable[[_Item], str], cursor: str, limit: int
) -> tuple[list[_Item], str | None]:
    """The items behind the one that the cursor names, and the cursor of the following page.

    Raises:
        DashboardProblem: The cursor is none of ours, or its item is gone.
    """
    start = 0
    if cursor:
        name = decode(cursor)
        start = next((at + 1 for at, each in enumerate(items) if key(each) == name), -1)
        if start < 0:
            raise DashboardProblem("bad-cursor", "its item is gone; begin without a cursor")
    found = list(items[start : start + limit])
    more = start + limit < len(items)
    return found, encode(key(found[-1])) if more and found else None


def encode(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def decode(cursor: str) -> str:
    """The name that a cursor was made of. Raises ``DashboardProblem``."""
    try:
        raw = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        name = raw.decode()
    except (binascii.Error, ValueError) as error:
        raise DashboardProblem("bad-cursor", "it is none of this API") from error
    if encode(name) != cursor:
        raise DashboardProblem("bad-cursor", "it is none of this API")
    return name
