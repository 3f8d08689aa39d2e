"""Text of strangers as it may be shown: no character moves a cursor, a line or an eye.

Control characters, line and paragraph separators, marks that change the direction of writing,
characters without a width and halves of characters stand as the escapes that Python writes for
them. Everything else stays as it is. Pure.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\x1b": r"\x1b"}


def visible(text: str, most: int | None = None) -> str:
    """Return ``text`` with escapes for what cannot be seen, on one line.

    Args:
        most: Characters after which the rest is only counted.
    """
    left = "" if most is None or len(text) <= most else f"... ({len(text)} characters)"
    text = text if most is None else text[:most]
    return (text if text.isprintable() else "".join(map(_shown, text))) + left


def is_visible(text: str) -> bool:
    """Whether ``text`` is shown as it is."""
    return text.isprintable() or visible(text) == text


def _shown(character: str) -> str:
    # A blank of another width is seen as a blank; Python counts it among what cannot be printed.
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    code = ord(character)
    if code < 0x100:
        return _SHORT.get(character, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
