"""What the tests of failure modes look at: deliveries, offsets in files, copies of a disk."""

from __future__ import annotations

import itertools
import shutil
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from failback.client.consumelog.hook import StartOffset
from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeResult, HandlerAnswer
from failback.protocol.errors import ProtocolError
from failback.protocol.message import MessageExt
from failback.protocol.route import parse_offset_table
from tests.support.clients.client_lab import RecordingHook, Row
from tests.support.common.polling import until
from tests.support.java.apache import Broker, Engine

BROKER_SCALE = 0.05
CLIENT_SCALE = 0.02
PATIENT_SECONDS = 90.0
UNDER_WAY_SECONDS = 0.25
"""For a commit on its way to a broker that is busy."""
NEVER_MS = 3_600_000.0
"""An interval that does not come round within a test."""


@dataclass(frozen=True)
class Periods:
    """How long the periods of a test last, in seconds."""

    persist: float
    synchronise: float
    register: float
    commit: float
    route: float
    rebalance: float
    heartbeat: float

    @classmethod
    def of(cls, engine: Engine) -> Periods:
        broker = BROKER_SCALE if engine == "failback" else 1.0
        client = CLIENT_SCALE
        return cls(
            5 * broker, 10 * broker, 30 * broker, 5 * client, 30 * client, 20 * client, 30 * client
        )


@dataclass(frozen=True)
class Bound:
    """At most so many messages are re-consumed: the formula of a failure mode, in figures."""

    row: int
    formula: str
    most: float

    def holds(self, found: int) -> None:
        """Show the figure beside its bound, and compare."""
        print(f"failure mode {self.row}: {found} again, at most {self.most:g} = {self.formula}")
        assert found <= self.most


def most_within(times: Iterable[float], seconds: float) -> int:
    """Return R·T: the most events in any period of ``seconds``, its ends included."""
    ordered = sorted(times)
    best = first = 0
    for last, at in enumerate(ordered):
        while at - ordered[first] > seconds:
            first += 1
        best = max(best, last - first + 1)
    return best


@dataclass(frozen=True, slots=True)
class Got:
    """One delivery to a handler."""

    at: float
    body: bytes
    queue_id: int
    offset: int
    reconsume_times: int


class Member:
    """A push consumer of ours in this process, and what its handler got."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.got: list[Got] = []
        self.hook = RecordingHook()
        self.consumer: PushConsumer
        self.answer: Callable[[MessageExt], HandlerAnswer | Awaitable[HandlerAnswer]] = success

    async def handle(self, messages: list[MessageExt]) -> HandlerAnswer:
        (message,) = messages
        answer = self.answer(message)
        if isinstance(answer, Awaitable):
            answer = await answer
        self.got.append(
            Got(
                time.monotonic(),
                message.body,
                message.queue_id,
                message.queue_offset,
                message.reconsume_times,
            )
        )
        return answer

    @property
    def bodies(self) -> list[bytes]:
        return [got.body for got in self.got]

    @property
    def times(self) -> list[float]:
        return [got.at for got in self.got]

    @property
    def assignments(self) -> list[Row]:
        """The queues of its topic that it took, in order."""
        return [row for row in self.hook.of("assign") if row.queue.topic == self.topic]

    @property
    def start(self) -> StartOffset:
        """Where it began on the queue that it took last."""
        start: StartOffset = self.assignments[-1].start
        return start

    def held(self) -> set[tuple[str, int]]:
        """Return broker and number of the queues of its topic that it holds now."""
        return {
            (queue.broker_name, queue.queue_id)
            for queue in self.consumer.held_queues
            if queue.topic == self.topic
        }

    async def gets(self, bodies: Iterable[bytes], what: str = "the messages") -> None:
        """Wait until each of ``bodies`` was delivered to it."""
        wanted = set(bodies)
        await until(lambda: wanted <= set(self.bodies), what, PATIENT_SECONDS)

    async def begins_at(self, offset: int) -> None:
        """Wait until the queue that it took last was begun at ``offset``."""
        await until(
            lambda: self.assignments and self.start.offset == offset,
            f"a start at {offset}",
            PATIENT_SECONDS,
        )

    async def reaches(self, end: int) -> None:
        """Wait until the last message below a queue's ``end`` was delivered to it."""
        await until(
            lambda: any(got.offset == end - 1 for got in self.got),
            f"the message at {end - 1}",
            PATIENT_SECONDS,
        )

    async def stop(self) -> None:
        """Leave the group in order; its last commit goes to whom it knows as the broker."""
        await self.consumer.shutdown()


def success(_message: MessageExt) -> ConsumeResult:
    return ConsumeResult.SUCCESS


def again(*members: Member) -> int:
    """Return how many deliveries were not the first of their message."""
    counted = Counter(body for member in members for body in member.bodies)
    return counted.total() - len(counted)


def offset_file(broker: Broker) -> Path:
    return broker.store / "config" / "consumerOffset.json"


def in_file(broker: Broker, group: str, topic: str, queue_id: int = 0) -> int:
    """Return what ``consumerOffset.json`` holds now, -1 for nothing."""
    return in_table(offset_file(broker), group, topic, queue_id)


def in_table(file: Path, group: str, topic: str, queue_id: int = 0) -> int:
    """Return what a file of consumer offsets holds now, -1 for nothing."""
    try:
        table = parse_offset_table(file.read_text())
    except (FileNotFoundError, ProtocolError, ValueError):  # it is being replaced
        return -1
    return table.get(f"{topic}@{group}", {}).get(queue_id, -1)


async def until_in_file(broker: Broker, group: str, topic: str, wanted: int) -> None:
    """Wait until a broker has persisted ``wanted``."""
    await until(
        lambda: in_file(broker, group, topic) == wanted, f"{wanted} in the file", PATIENT_SECONDS
    )


def unpersisted_seconds(periods: Periods, broker: Broker, member: Member) -> float:
    """Return how far back a broker killed this instant forgets what a member handled.

    That is a period of the broker's persists and one of the member's commits, or as long as they
    were in fact: either may be late on a busy machine.
    """
    age = time.time() - offset_file(broker).stat().st_mtime
    return max(periods.persist, age) + commit_seconds(periods, member)


def commit_seconds(periods: Periods, member: Member) -> float:
    """Return how far what a broker knew up to now was behind a member: the longest it took."""
    commits = [row.time for row in member.hook.of("commit") if row.queue.topic == member.topic]
    gaps = [later - at for at, later in itertools.pairwise([*commits, time.monotonic()])]
    return max(periods.commit, *gaps) + UNDER_WAY_SECONDS


class DiskCopy:
    """The messages of a broker's disk at one instant, for a disk that forgets or is restored.

    Taken of a broker that nobody sends to. Offsets and other metadata are not part of it.
    """

    _PARTS = ("commitlog", "consumequeue", "checkpoint")

    def __init__(self, broker: Broker, folder: Path) -> None:
        self._store, self._folder = broker.store, folder
        folder.mkdir(parents=True)
        _copy(self._PARTS, self._store, folder)

    def restore(self) -> None:
        """Put it back; the broker must not run. Key indexes are left to be made again."""
        shutil.rmtree(self._store / "index", ignore_errors=True)
        _copy(self._PARTS, self._folder, self._store)


def _copy(parts: Iterable[str], source: Path, target: Path) -> None:
    for part in parts:
        if (source / part).is_dir():
            shutil.rmtree(target / part, ignore_errors=True)
            # A queue's file is made beside its place, and may be put there meanwhile.
            made = shutil.ignore_patterns(".creating*")
            shutil.copytree(source / part, target / part, ignore=made)
        elif (source / part).exists():
            shutil.copy2(source / part, target / part)
