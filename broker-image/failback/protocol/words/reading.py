"""Reads numbers that a peer or a user wrote as text. Pure."""

from __future__ import annotations

import re
from typing import Final

_SIGNED: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
"""What a Java long can be, and little more."""


def signed(text: str | None) -> int | None:
    """Return a whole number of at most 19 digits; ``None`` for anything else.

    ``int`` itself takes digits of other scripts and spaces, and raises beyond 4,300 digits.
    """
    return int(text) if text is not None and _SIGNED.fullmatch(text) else None


def whole(text: str | None) -> int | None:
    """The same without a sign."""
    return None if text is None or text.startswith("-") else signed(text)


def whole_or_0(text: str | None) -> int:
    """Return such a number, 0 for anything else."""
    return whole(text) or 0
