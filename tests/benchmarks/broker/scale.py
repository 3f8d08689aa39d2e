"""How much of everything a run does: the full one (under an hour) or the small one (minutes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Scale:
    """What may be chosen on the command line, and the sizes of what is prepared."""

    sizes: tuple[int, ...] = (128, KIB, 16 * KIB)
    threads: tuple[int, ...] = (1, 16, 64)
    batches: tuple[int, ...] = (1, 32)
    seconds: float = 3.0
    """One measured window."""
    rounds: int = 3
    """Windows per engine and cell, in alternation; medians are taken."""
    warm_seconds: float = 15.0
    """Load on a broker that has just started: the JIT of an Apache broker needs it."""
    ramp_seconds: float = 0.7
    """Load before each window."""
    window_bytes: int = 384 * MIB
    """A window ends early when its bodies sum up to this: the disk is finite."""
    backlog: int = 1_000_000
    catch_up_bytes: int = 512 * MIB
    catch_up_rounds: int = 2
    restart_bytes: int = 4 * GIB
    topics: int = 1000
    grown_from_bytes: int = GIB
    grown_to_bytes: int = 16 * GIB
    idle_seconds: float = 15.0
    """From boot until the memory of an idle broker is read."""


FULL: Final = Scale()
SMALL: Final = Scale(
    sizes=(KIB,),
    seconds=1.0,
    rounds=1,
    warm_seconds=5.0,
    ramp_seconds=0.3,
    window_bytes=128 * MIB,
    backlog=100_000,
    catch_up_bytes=32 * MIB,
    catch_up_rounds=1,
    restart_bytes=256 * MIB,
    topics=1000,
    grown_from_bytes=64 * MIB,
    grown_to_bytes=512 * MIB,
    idle_seconds=5.0,
)
SCALES: Final = {"full": FULL, "small": SMALL}
