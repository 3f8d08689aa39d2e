"""Where two reports of one run differ: what one engine found and another did not. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

OWN: Final = frozenset({"engine", "created", "timings"})
"""What a report says of its own making."""


def differences(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """``PATH: value of one, value of the other`` of everything that is not equal.

    What reports say of their own making is left out.
    """
    left, right = ({k: v for k, v in each.items() if k not in OWN} for each in (one, other))
    return list(_differing(left, right, ""))


def _differing(one: Any, other: Any, path: str) -> Iterator[str]:
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
