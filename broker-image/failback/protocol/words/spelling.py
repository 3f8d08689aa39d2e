"""Which known word a misspelt one was meant to be, for messages about unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
