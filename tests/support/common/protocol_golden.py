"""Golden bytes and bodies of ``tests/data/protocol``; each file names its origin."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from failback.protocol.body import Body
from failback.protocol.headers import Int64

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


class ConsumeMessageDirectlyResult(Body):
    """What a client answers to 309; brokers pass it on unread."""

    order: bool = False
    auto_commit: bool = True
    consume_result: Literal[
        "CR_SUCCESS",
        "CR_LATER",
        "CR_ROLLBACK",
        "CR_COMMIT",
        "CR_THROW_EXCEPTION",
        "CR_RETURN_NULL",
    ] = "CR_SUCCESS"
    remark: str | None = None
    spent_time_mills: Int64 = 0
