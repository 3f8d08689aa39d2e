"""One question to a peer: within a time limit, counted, so many at once and no more."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from failback.operator.metrics import Metrics
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)

_CONCURRENT: Final = 64
_TURN_SECONDS: Final = 0.2
Value = TypeVar("Value")


class Questions:
    """Asks brokers and name servers; shared by all that ask."""

    def __init__(self, metrics: Metrics, timeout_seconds: float) -> None:
        self._metrics = metrics
        self._timeout_seconds = timeout_seconds
        self._limit = asyncio.Semaphore(_CONCURRENT)
        self._problems: dict[str, dict[int, str]] = {}
        """Address → request code → why the last question had no answer."""

    async def order(self, code: int, order: Awaitable[Value]) -> Value:
        """Return the answer of an admin request; failures are raised.

        Raises:
            FailbackError: The peer refused or could not be asked.
            TimeoutError: It did not answer in time.
        """
        try:
            async with self.turn():
                return await self._answered(code, order)
        finally:
            if isinstance(order, Coroutine):
                order.close()  # the task was cancelled before its turn: nothing was asked

    async def _answered(self, code: int, order: Awaitable[Value]) -> Value:
        """Await the answer within the time limit; count it."""
        begun, result = time.monotonic(), "ok"
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await order
        except TimeoutError:
            result = "timeout"
            raise
        except FailbackError:
            result = "error"
            raise
        finally:
            self._metrics.admin_request(code, result, time.monotonic() - begun)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Hold one of the places for questions; a question without an answer soon gives it back.

        So many questions at once don't time each other out, and peers that never answer hold up
        no others.
        """
        held = True

        def leave() -> None:
            nonlocal held
            if held:
                held = False
                self._limit.release()

        await self._limit.acquire()
        timer = asyncio.get_running_loop().call_later(_TURN_SECONDS, leave)
        try:
            yield
        finally:
            timer.cancel()
            leave()

    async def ask(self, code: int, address: str, question: Awaitable[Value]) -> Value | None:
        """Return the answer of an admin request, or ``None`` when there is none in time.

        :meth:`problem` says why there was none.
        """
        try:
            answer = await self.order(code, question)
        except (FailbackError, TimeoutError) as error:
            words = str(error) or f"no answer from {address} within {self._timeout_seconds:g} s"
            known = self._problems.setdefault(address, {})
            if words not in known.values():
                logger.info("question %d: %s", code, words)
            known[code] = words
            return None
        if known := self._problems.get(address, {}):
            known.pop(code, None)
        return answer

    def problem(self, address: str) -> str:
        """Return why a peer gave no answer to a question, empty where it answers all of them."""
        return next(iter(self._problems.get(address, {}).values()), "")

    def forget(self, address: str) -> None:
        """Drop what is known of a peer that no resource asks any more."""
        self._problems.pop(address, None)
