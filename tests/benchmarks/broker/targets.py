"""What the broker has to reach beside Apache RocketMQ 4.9, as ratios ours/Apache. Pure."""

from __future__ import annotations

from typing import Final

from tests.benchmarks.targets import Target, at_least, at_most


def send_rate(threads: int) -> Target:
    return at_least(1.7 if threads >= 16 else 1.0)


def send_cpu(batch: int) -> Target:
    return at_most(0.8 if batch > 1 else 0.4)


SLAVE_CPU: Final = at_most(0.5)
P99: Final = at_most(0.7)
CONSUME_RATE: Final = at_least(1.0)
CONSUME_CPU: Final = at_most(0.4)
CATCH_UP_OURS: Final = at_least(10)
CATCH_UP_MIXED: Final = at_least(1)
IDLE_MEMORY: Final = at_most(0.25)
LOADED_MEMORY: Final = at_most(0.15)
BOOT: Final = at_most(0.33)
RESTART: Final = at_most(0.5)
GROWTH: Final = at_most(1.1)
"""Of our own CPU per message, between the small and the large."""
STANDS_MS: Final = at_most(5)
"""Milliseconds that the loop may stand for one new name."""
NEW_NAMES: Final = at_most(2)
"""Of p99 of sends, beside a burst of new names and without."""
