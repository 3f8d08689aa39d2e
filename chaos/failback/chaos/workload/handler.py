"""The handler of the workload: takes its time, and fails as often as its knobs say.

It counts what it did since its knobs were turned last, so that the fault that turned them can see
that messages are handled so: only calls that began after that moment count.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, replace
from typing import Any, Final

from failback.chaos.workload.plan import BadBody, HandlerPlan, read_body
from failback.client.model import ConsumeResult
from failback.protocol.message import MessageExt

KNOBS: Final = ("delay_ms", "fail_ratio", "throw_ratio")


class HandlerFailure(Exception):
    """What a handler raises when its knobs say so."""


@dataclass(slots=True)
class Since:
    """What was handled since the knobs were turned."""

    handled: int = 0
    later: int = 0
    thrown: int = 0
    least_ms: float | None = None
    """The shortest call."""


class WorkloadHandler:
    """Handles one message after another per thread; the knobs can be turned while it runs."""

    def __init__(self, plan: HandlerPlan, seed: int) -> None:
        self.plan = plan
        self.delivered = 0
        self.under_way = 0
        self.bad_bodies = 0
        self.since = Since()
        self._random = random.Random(seed)

    async def __call__(self, messages: list[MessageExt]) -> ConsumeResult:
        self.under_way += len(messages)
        since, began = self.since, time.monotonic()
        try:
            self._check(messages)
            seconds = self._duration() * len(messages)
            if seconds > 0:
                await asyncio.sleep(seconds)
            return self._result(since, len(messages))
        finally:
            took_ms = (time.monotonic() - began) * 1000 / len(messages)
            since.handled += len(messages)
            since.least_ms = min(took_ms, since.least_ms or took_ms)
            self.under_way -= len(messages)
            self.delivered += len(messages)

    def set_knobs(self, request: dict[str, Any]) -> None:
        """Change what the request names; the rest stays."""
        named = ("mean_ms", "jitter_ms", *KNOBS)
        changes = {name: float(request[name]) for name in named if name in request}
        self.plan = replace(self.plan, **changes)
        self.since = Since()

    def stats(self) -> dict[str, Any]:
        """The knobs, and what was handled since they were turned."""
        since = self.since
        return {
            "knobs": {name: getattr(self.plan, name) for name in KNOBS},
            "handled": since.handled,
            "later": since.later,
            "thrown": since.thrown,
            "least_ms": since.least_ms,
        }

    def _result(self, since: Since, count: int) -> ConsumeResult:
        plan = self.plan
        if not plan.fail_ratio and not plan.throw_ratio:
            return ConsumeResult.SUCCESS
        drawn = self._random.random()
        if drawn < plan.fail_ratio:
            since.later += count
            return ConsumeResult.RECONSUME_LATER
        if drawn < plan.fail_ratio + plan.throw_ratio:
            since.thrown += count
            raise HandlerFailure("the workload was told to raise")
        return ConsumeResult.SUCCESS

    def _duration(self) -> float:
        jitter = self.plan.jitter_ms
        drawn = self._random.uniform(-jitter, jitter) if jitter else 0.0
        return (max(0.0, self.plan.mean_ms + drawn) + self.plan.delay_ms) / 1000

    def _check(self, messages: list[MessageExt]) -> None:
        for message in messages:
            try:
                read_body(message.body)
            except BadBody:
                self.bad_bodies += 1


def order_key_of(message: MessageExt) -> tuple[str | None, int | None]:
    """Ordering key and its counter of a message of ours, for the ``deliver`` rows."""
    try:
        found = read_body(message.body)
    except BadBody:
        return None, None
    return (found[1], found[2]) if found else (None, None)
