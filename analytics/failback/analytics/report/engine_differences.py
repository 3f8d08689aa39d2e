"""Where two reports of one run differ: what one engine found and another did not. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

OWN: Final = frozenset({"engine", "created", "timings", "quality.runs_per_row"})
"""What a report says of its own making; the last depends on how rows were divided."""


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """``PATH: value of one, value of the other`` of everything that is not equal.

    What reports say of their own making is left out.
    """
    return list(_differing(one, other, ""))


def _differing(one: Any, other: Any, path: str) -> Iterator[str]:
    if path in OWN:
        return
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            yield from _differing(
                one.get(name), other.get(name), f"{path}.{name}" if path else name
            )
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, (left, right) in enumerate(zip(one, other, strict=True)):
            yield from _differing(left, right, f"{path}.{number}")
    elif isinstance(one, list) and isinstance(other, list):
        yield f"{path}: {len(one)} entries, {len(other)} entries"
    elif one != other:
        yield f"{path}: {one!r}, {other!r}"
