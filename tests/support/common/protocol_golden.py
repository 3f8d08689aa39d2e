"""Golden bytes and bodies of ``tests/data/protocol``; each file names its origin."""

from __future__ import annotations

from pathlib import Path

_FOLDER = Path(__file__).parents[2] / "data" / "protocol"


def golden_bytes(name: str) -> bytes:
    """Return the bytes of ``<name>.hex``."""
    return bytes.fromhex("".join(_lines(f"{name}.hex")))


def golden_bodies() -> dict[str, str]:
    """Return the JSON bodies by name."""
    return dict(line.split(" ", 1) for line in _lines("bodies.txt"))


def _lines(file: str) -> list[str]:
    lines = (_FOLDER / file).read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]
