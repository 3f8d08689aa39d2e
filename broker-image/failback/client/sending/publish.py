"""Which queue the next send goes to (pure), with and without the choice by latency.

Source: TopicPublishInfo, MQFaultStrategy, LatencyFaultToleranceImpl, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from failback.protocol.body import MessageQueue

LATENCY_MS: Final = (50, 100, 550, 1_000, 2_000, 3_000, 15_000)
UNAVAILABLE_MS: Final = (0, 0, 30_000, 60_000, 120_000, 180_000, 600_000)
ISOLATE_LATENCY_MS: Final = 30_000
"""What a failed attempt counts as: it isolates its broker for 600 s."""

_INT31: Final = 0x7FFF_FFFF


class SendCounter:
    """The turning index of the queue choice: one per producer (per thread in Java)."""

    __slots__ = ("_value",)

    def __init__(self, rng: random.Random) -> None:
        self._value = rng.getrandbits(31)

    def next(self) -> int:
        self._value = (self._value + 1) & _INT31
        return self._value


@dataclass(slots=True)
class PublishInfo:
    """The queues of one topic that can be sent to. Shared by the producers of an instance."""

    queues: Sequence[MessageQueue] = ()
    has_route: bool = False
    write_queues: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_usable(self) -> bool:
        return bool(self.queues)

    def select(self, counter: SendCounter, last_broker: str | None) -> MessageQueue:
        """Pick the next queue; after a failure one of another broker if there is any."""
        queues = self.queues
        if last_broker is not None:
            for _ in queues:
                queue = queues[counter.next() % len(queues)]
                if queue.broker_name != last_broker:
                    return queue
        return queues[counter.next() % len(queues)]


@dataclass(slots=True)
class _Fault:
    latency_ms: float
    available_from: float


class LatencyFaults:
    """Remembers how long each broker took and keeps away from the slow for a while.

    Args:
        scale: Multiplies thresholds and durations, as every interval of a scaled run.
    """

    def __init__(self, rng: random.Random, scale: float = 1.0) -> None:
        self._faults: dict[str, _Fault] = {}
        self._turn = SendCounter(rng)
        self._scale = scale

    def update(self, broker_name: str, latency_ms: float, *, isolate: bool, now: float) -> None:
        """Note an attempt's latency, or with ``isolate`` its failure. ``now`` in seconds."""
        measured = ISOLATE_LATENCY_MS * self._scale if isolate else latency_ms
        away_ms = unavailable_ms(measured / self._scale) * self._scale
        self._faults[broker_name] = _Fault(latency_ms, now + away_ms / 1000)

    def is_available(self, broker_name: str, now: float) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or now >= fault.available_from

    def select(self, info: PublishInfo, counter: SendCounter, now: float) -> MessageQueue:
        """Pick the next queue of an available broker; failing that, of one of the better half."""
        start = counter.next()
        for step in range(len(info.queues)):
            queue = info.queues[(start + step) % len(info.queues)]
            if self.is_available(queue.broker_name, now):
                return queue
        broker_name = self._pick_one_at_least(now)
        if broker_name is not None:
            count = info.write_queues.get(broker_name, 0)
            if count > 0:
                topic = info.queues[0].topic
                return MessageQueue(topic, broker_name, counter.next() % count)
            del self._faults[broker_name]
        return info.select(counter, None)

    def _pick_one_at_least(self, now: float) -> str | None:
        if not self._faults:
            return None
        ranked = sorted(
            self._faults,
            key=lambda name: (
                not self.is_available(name, now),
                self._faults[name].latency_ms,
                self._faults[name].available_from,
            ),
        )
        half = len(ranked) // 2 or 1
        return ranked[self._turn.next() % half]


def unavailable_ms(latency_ms: float) -> int:
    """How long a broker is avoided after an attempt of this length: the largest threshold wins."""
    index = bisect_right(LATENCY_MS, latency_ms) - 1
    return UNAVAILABLE_MS[index] if index >= 0 else 0
