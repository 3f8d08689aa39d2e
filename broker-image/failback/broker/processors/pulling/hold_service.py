"""Held pulls: requests that found nothing and wait for a message.

A pull is held per (topic, queue) until a message that passes its filter arrives there or its
connection closes. A pass every five seconds also ends it: when there are newer messages, or when
its time is over. Then the whole request runs again, without being held a second time. Pure: time is
an argument.

Source: PullRequestHoldService, NotifyMessageArrivingListener, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

logger = logging.getLogger(__name__)

RequestT = TypeVar("RequestT")


MOST_HELD: Final = 2**31 - 1


class TooManyHeld(Exception):
    """As many pulls are held as may be."""


class HeldPull(Generic[RequestT]):
    """One held request."""

    __slots__ = ("connection", "deadline_ms", "offset", "queue", "request", "tags")

    def __init__(
        self,
        request: RequestT,
        connection: Hashable,
        *,
        topic: str,
        queue_id: int,
        offset: int,
        tags: frozenset[int] | None,
        deadline_ms: float,
    ) -> None:
        self.request = request
        self.connection = connection
        self.queue = (topic, queue_id)
        self.offset = offset
        """Queue offset it waits for."""
        self.tags = tags
        """Tag hashes that pass, ``None`` = all."""
        self.deadline_ms = deadline_ms


class PullRequestHoldService(Generic[RequestT]):
    """The held pulls of one broker.

    ``run_again`` processes a request without holding it; ``bounds`` tells how many are held in all
    and of one connection.
    """

    def __init__(
        self,
        max_offset_of: Callable[[str, int], int],
        run_again: Callable[[HeldPull[RequestT]], None],
        *,
        bounds: Callable[[], tuple[int, int]] = lambda: (MOST_HELD, MOST_HELD),
    ) -> None:
        self._max_offset_of = max_offset_of
        self._run_again = run_again
        self._queues: dict[tuple[str, int], list[HeldPull[RequestT]]] = {}
        self._of_connection: dict[Hashable, set[HeldPull[RequestT]]] = {}
        self._woken: list[HeldPull[RequestT]] = []
        self._bounds = bounds
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def hold(self, pull: HeldPull[RequestT]) -> None:
        """Hold a pull.

        Raises:
            TooManyHeld: There is no room for it; it is not held.
        """
        of_one = self._of_connection.setdefault(pull.connection, set())
        most, most_of_one = self._bounds()
        if self._count >= most or len(of_one) >= most_of_one:
            if not of_one:
                del self._of_connection[pull.connection]
            raise TooManyHeld(f"{len(of_one)} pulls of this client are held, {self._count} in all")
        self._queues.setdefault(pull.queue, []).append(pull)
        of_one.add(pull)
        self._count += 1

    def arrived(self, topic: str, queue_id: int, max_offset: int, tags_code: int | None) -> None:
        """Choose the pulls that a message wakes; :meth:`wake` runs them, once its answer is out.

        ``max_offset`` is the queue's new end. ``tags_code`` ``None`` passes every filter.
        """
        held = self._queues.get((topic, queue_id))
        if not held:
            return
        stay = []
        for pull in held:
            passes = tags_code is None or pull.tags is None or tags_code in pull.tags
            if pull.offset < max_offset and passes:
                self._release(pull)
            else:
                stay.append(pull)
        self._keep((topic, queue_id), stay)

    def sweep(self, now_ms: float) -> None:
        """Choose the pulls that have messages to read, or have waited long enough."""
        for queue, held in list(self._queues.items()):
            max_offset = self._max_offset_of(*queue)
            stay = []
            for pull in held:
                if pull.offset < max_offset or pull.deadline_ms <= now_ms:
                    self._release(pull)
                else:
                    stay.append(pull)
            self._keep(queue, stay)

    def wake(self) -> None:
        """Run again whom :meth:`arrived` and :meth:`sweep` have chosen."""
        while self._woken:
            woken, self._woken = self._woken, []
            for pull in woken:
                try:
                    self._run_again(pull)
                # One bad request must not keep the others asleep.
                except Exception:
                    logger.exception("held pull on %s failed", pull.queue)

    def drop(self, connection: Hashable) -> None:
        """Forget the pulls of a closed connection."""
        self._woken = [pull for pull in self._woken if pull.connection is not connection]
        gone = self._of_connection.pop(connection, set())
        self._count -= len(gone)
        for queue in {pull.queue for pull in gone}:
            self._keep(queue, [pull for pull in self._queues[queue] if pull not in gone])

    def _keep(self, queue: tuple[str, int], held: list[HeldPull[RequestT]]) -> None:
        if held:
            self._queues[queue] = held
        else:
            self._queues.pop(queue, None)

    def _release(self, pull: HeldPull[RequestT]) -> None:
        self._woken.append(pull)
        self._count -= 1
        pulls = self._of_connection.get(pull.connection)
        if pulls is not None:
            pulls.discard(pull)
            if not pulls:
                del self._of_connection[pull.connection]
