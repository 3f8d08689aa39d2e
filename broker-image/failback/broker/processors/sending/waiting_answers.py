"""Send answers that wait for a flush, a slave, or both.

One deque per condition, ordered by end offset, instead of a future per message: what an
acknowledgement covers is always at the front. A message that waits for both is in both deques and
is answered when the second condition is settled. The slave's verdict then overrides the disk's, as
in CommitLog.asyncPutMessage of apache/rocketmq 4.9.8. Pure: time is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from failback.protocol.codes import ResponseCode


class Receiver(Protocol):
    """Where an answer goes: a connection."""

    def push(self, data: bytes, /) -> None: ...


class WaitingAnswer:
    """One answer and what it still waits for."""

    __slots__ = ("_arguments", "_make", "_receiver", "disk_code", "missing", "slave_code")

    def __init__(
        self, receiver: Receiver, make: Callable[..., bytes], arguments: tuple[Any, ...]
    ) -> None:
        """``make(code, *arguments)`` returns the frame to send."""
        self._receiver = receiver
        self._make = make
        self._arguments = arguments
        self.disk_code = 0
        self.slave_code = 0
        self.missing = 0

    def settle(self) -> None:
        """Note that one condition is decided; sends the answer when it was the last."""
        self.missing -= 1
        if self.missing <= 0:
            self.send()

    def send(self) -> None:
        code = self.slave_code or self.disk_code
        self._receiver.push(self._make(code, *self._arguments))


class _Entry(NamedTuple):
    end_offset: int
    deadline_ms: float
    answer: WaitingAnswer


class _Condition:
    """The answers that wait for one thing, oldest first."""

    __slots__ = ("_entries", "_timeout_code")

    def __init__(self, timeout_code: int) -> None:
        self._entries: deque[_Entry] = deque()
        self._timeout_code = timeout_code

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first_deadline_ms(self) -> float | None:
        return self._entries[0].deadline_ms if self._entries else None

    def add(self, end_offset: int, deadline_ms: float, answer: WaitingAnswer) -> None:
        answer.missing += 1
        self._entries.append(_Entry(end_offset, deadline_ms, answer))

    def reached(self, offset: int) -> None:
        entries = self._entries
        while entries and entries[0].end_offset <= offset:
            entries.popleft().answer.settle()

    def failed(self, offset: int) -> None:
        entries = self._entries
        while entries and entries[0].end_offset <= offset:
            self._fail(entries.popleft().answer)

    def expire(self, now_ms: float) -> None:
        entries = self._entries
        while entries and entries[0].deadline_ms <= now_ms:
            self._fail(entries.popleft().answer)

    def _fail(self, answer: WaitingAnswer) -> None:
        if self._timeout_code == ResponseCode.FLUSH_SLAVE_TIMEOUT:
            answer.slave_code = self._timeout_code
        else:
            answer.disk_code = self._timeout_code
        answer.settle()


class WaitingAnswers:
    """All send answers that are not out yet. Offsets are ends of records in the commit log."""

    def __init__(self) -> None:
        self._flush = _Condition(int(ResponseCode.FLUSH_DISK_TIMEOUT))
        self._replica = _Condition(int(ResponseCode.FLUSH_SLAVE_TIMEOUT))

    def __len__(self) -> int:
        return max(len(self._flush), len(self._replica))

    @property
    def first_flush_deadline_ms(self) -> float | None:
        return self._flush.first_deadline_ms

    @property
    def first_replica_deadline_ms(self) -> float | None:
        return self._replica.first_deadline_ms

    def add(
        self,
        answer: WaitingAnswer,
        end_offset: int,
        *,
        flush_deadline_ms: float | None = None,
        replica_deadline_ms: float | None = None,
    ) -> None:
        """Hold ``answer`` until ``end_offset`` is flushed and replicated, or the deadlines pass."""
        if replica_deadline_ms is not None:
            self._replica.add(end_offset, replica_deadline_ms, answer)
        if flush_deadline_ms is not None:
            self._flush.add(end_offset, flush_deadline_ms, answer)

    def flushed(self, offset: int) -> None:
        """Everything below ``offset`` is on disk."""
        self._flush.reached(offset)

    def flush_failed(self, offset: int) -> None:
        """What lies below ``offset`` and still waits could not be flushed."""
        self._flush.failed(offset)

    def replicated(self, offset: int) -> None:
        """A slave holds everything below ``offset``."""
        self._replica.reached(offset)

    def expire(self, now_ms: float) -> None:
        """Answer what has waited too long: FLUSH_DISK_TIMEOUT, FLUSH_SLAVE_TIMEOUT."""
        self._flush.expire(now_ms)
        self._replica.expire(now_ms)

    def give_up(self) -> None:
        """Answer all that wait as timed out: the broker stops."""
        self.expire(float("inf"))
