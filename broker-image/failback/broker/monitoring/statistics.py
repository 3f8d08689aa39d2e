"""Counters of one broker and the rates over 10 s, 1 min and 10 min made of them.

The store path adds to plain attributes; one sample a second keeps what the windows need.
Source of the meanings: StoreStatsService, BrokerStats, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple

WINDOWS_SECONDS: Final = (10, 60, 600)
SAMPLE_MS: Final = 1000
GROUP_SAMPLE_MS: Final = 10_000
GROUP_SAMPLES: Final = 6
_LATENCY_CAP_MS: Final = 60_000
# Upper ends in ms, exclusive, of the classes that the original prints.
_CLASSES: Final = (
    (1, "[<=0ms]"),
    (10, "[0~10ms]"),
    (50, "[10~50ms]"),
    (100, "[50~100ms]"),
    (200, "[100~200ms]"),
    (500, "[200~500ms]"),
    (1000, "[500ms~1s]"),
    (2000, "[1~2s]"),
    (3000, "[2~3s]"),
    (4000, "[3~4s]"),
    (5000, "[4~5s]"),
    (10_000, "[5~10s]"),
    (None, "[10s~]"),
)


class Sample(NamedTuple):
    """Counters at one instant; ``at`` in seconds of a clock that never goes back."""

    at: float
    put: int
    get_found: int
    get_miss: int
    transferred: int


class GroupReads:
    """Reads of a group on a topic that found messages, and the bytes they handed out."""

    __slots__ = ("bytes", "found")

    def __init__(self) -> None:
        self.found = 0
        self.bytes = 0


class QueueReads:
    """Reads of a group on one queue that found messages, and what the last one left behind.

    Attributes:
        next_offset: Queue offset behind what was handed out last.
        found: How many reads.
        milliseconds: How long they took together, each in whole ms.
    """

    __slots__ = ("found", "milliseconds", "next_offset")

    def __init__(self) -> None:
        self.next_offset = self.found = self.milliseconds = 0


class BrokerStatistics:
    """Counts since the process started."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        local_day: Callable[[], int] = lambda: time.localtime().tm_yday,
    ) -> None:
        self._clock = clock
        self._local_day = local_day
        self.put_messages = 0
        self.put_bytes = 0
        self.put_failed = 0
        self.get_found = 0
        self.get_miss = 0
        self.transferred_messages = 0
        self.put_longest_ms = 0.0
        self.get_longest_ms = 0.0
        self.messages_out: Counter[tuple[str, str]] = Counter()
        """Messages handed out by (topic, group)."""
        self.reads: dict[tuple[str, str], GroupReads] = {}
        """By (topic, group)."""
        self.queue_reads: dict[tuple[str, str, int], QueueReads] = {}
        """By (topic, group, queue id)."""
        self.sent_back: Counter[str] = Counter()
        """Messages that consumers sent back, by ``topic@group`` of their origin."""
        self._latency_ms: Counter[int] = Counter()
        self._counted = 0
        self._samples: deque[Sample] = deque(maxlen=WINDOWS_SECONDS[-1] + 1)
        self._group_samples: deque[tuple[float, dict[tuple[str, str], int]]] = deque(
            [(clock(), {})], maxlen=GROUP_SAMPLES
        )
        self._day = local_day()
        self.put_total_at_midnight = [0, 0]  # yesterday's, today's
        self.get_total_at_midnight = [0, 0]
        self.sample()

    def committed(self, elapsed_seconds: float) -> None:
        """Note how long the messages of one run took from reading to written."""
        count = self.put_messages - self._counted
        if count > 0:
            self._counted = self.put_messages
            elapsed_ms = elapsed_seconds * 1000
            self._latency_ms[min(int(elapsed_ms), _LATENCY_CAP_MS)] += count
            self.put_longest_ms = max(self.put_longest_ms, elapsed_ms)

    def read(
        self, topic: str, group: str, messages: int, elapsed_seconds: float, size: int = 0
    ) -> None:
        """Note one read for a group that found ``messages`` of ``size`` bytes together."""
        if messages:
            self.get_found += 1
            self.transferred_messages += messages
            key = topic, group
            self.messages_out[key] += messages
            reads = self.reads.get(key)
            if reads is None:
                reads = self.reads[key] = GroupReads()
            reads.found += 1
            reads.bytes += size
        else:
            self.get_miss += 1
        self.get_longest_ms = max(self.get_longest_ms, elapsed_seconds * 1000)

    def read_queue(
        self, topic: str, group: str, queue_id: int, next_offset: int, elapsed_seconds: float
    ) -> None:
        """Note that a read of a queue found messages before ``next_offset``."""
        key = topic, group, queue_id
        reads = self.queue_reads.get(key)
        if reads is None:
            reads = self.queue_reads[key] = QueueReads()
        reads.next_offset = next_offset
        reads.found += 1
        reads.milliseconds += int(elapsed_seconds * 1000)

    def group_rate(self, topic: str, group: str) -> float:
        """Return messages per second handed to ``group`` over about the last minute."""
        at, counts = self._group_samples[0]
        elapsed = self._clock() - at
        handed_out = self.messages_out[topic, group] - counts.get((topic, group), 0)
        return handed_out / elapsed if elapsed > 0 else 0.0

    def sample_groups(self) -> None:
        """Take the sample of these ten seconds for :meth:`group_rate`."""
        self._group_samples.append((self._clock(), dict(self.messages_out)))

    def sample(self) -> None:
        """Take the sample of this second; notes the totals when a local day has begun."""
        self._samples.append(
            Sample(
                self._clock(),
                self.put_messages,
                self.get_found,
                self.get_miss,
                self.transferred_messages,
            )
        )
        today = self._local_day()
        if today != self._day:
            self._day = today
            self.put_total_at_midnight = [self.put_total_at_midnight[1], self.put_messages]
            self.get_total_at_midnight = [self.get_total_at_midnight[1], self.transferred_messages]

    def rates(self, field: str) -> tuple[float, ...]:
        """Return events per second of a :class:`Sample` field over the three windows."""
        now = self._samples[-1]
        return tuple(self._rate(field, now, seconds) for seconds in WINDOWS_SECONDS)

    def _rate(self, field: str, now: Sample, seconds: int) -> float:
        first = now
        for sample in reversed(self._samples):
            if now.at - sample.at > seconds + SAMPLE_MS / 2000:
                break
            first = sample
        elapsed = now.at - first.at
        if elapsed <= 0:
            return 0.0
        return float(getattr(now, field) - getattr(first, field)) / elapsed

    def get_rates(self) -> tuple[float, ...]:
        """Return reads per second, found or not."""
        pairs = zip(self.rates("get_found"), self.rates("get_miss"), strict=True)
        return tuple(found + miss for found, miss in pairs)

    def latency_distribution(self) -> str:
        """Return how many messages took how long, as the original words it."""
        counts = dict.fromkeys((name for _, name in _CLASSES), 0)
        for elapsed_ms, count in self._latency_ms.items():
            for end, name in _CLASSES:
                if end is None or elapsed_ms < end:
                    counts[name] += count
                    break
        return " ".join(f"{name}:{count}" for name, count in counts.items())

    def latency_ms(self, quantile: float) -> int:
        """Return the latency in ms that ``quantile`` of the messages did not exceed."""
        wanted = quantile * self._latency_ms.total()
        seen = 0
        for elapsed_ms in sorted(self._latency_ms):
            seen += self._latency_ms[elapsed_ms]
            if seen >= wanted:
                return elapsed_ms
        return 0
