"""Text for people: escapes of what cannot be seen, commands to copy, hints at known names. Pure.

Control characters, line and paragraph separators, marks that change the direction of writing,
characters without a width and halves of characters are shown as the escapes that Python writes for
them. All other characters stay as they are.
"""

from __future__ import annotations

import difflib
import shlex
import unicodedata
from collections.abc import Iterable
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


def typed(*words: object) -> str:
    """Return a command as a person types it: a word stays one word, whoever has chosen it.

    What cannot be seen stands as an escape, so that nothing ends the line.
    """
    return shlex.join(visible(str(word)) for word in words)


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the known word that is nearest to ``word``; empty when none is near."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return near[0] if near else ""


def nearest_few(word: str, known: Iterable[str]) -> list[str]:
    """Return up to three known words that are near ``word``, the nearest first."""
    return difflib.get_close_matches(word, list(known), n=3, cutoff=0.5)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ``, did you mean "X"?``, or nothing when no known word is near."""
    near = nearest(word, known)
    return f', did you mean "{near}"?' if near else ""


def near_or_all(near: str, known: Iterable[str]) -> str:
    """Return ``, did you mean "X"?`` for what is near, else all that is known."""
    return f', did you mean "{near}"?' if near else f", one of {', '.join(known)}"
