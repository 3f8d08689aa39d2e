"""The handler of the workload: takes its time, and fails as often as it is told."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from failback.chaos.workload.plan import BadBody, HandlerPlan, read_body
from failback.client.model import ConsumeResult
from failback.protocol.message import MessageExt


class WorkloadHandler:
    """Handles one message after another per thread; the knobs can be turned while it runs."""

    def __init__(self, plan: HandlerPlan, seed: int) -> None:
        self.plan = plan
        self.delivered = 0
        self.under_way = 0
        self.bad_bodies = 0
        self._random = random.Random(seed)

    async def __call__(self, messages: list[MessageExt]) -> ConsumeResult:
        self.under_way += len(messages)
        try:
            self._check(messages)
            seconds = self._duration() * len(messages)
            if seconds > 0:
                await asyncio.sleep(seconds)
            if self.plan.fail_ratio and self._random.random() < self.plan.fail_ratio:
                return ConsumeResult.RECONSUME_LATER
            return ConsumeResult.SUCCESS
        finally:
            self.under_way -= len(messages)
            self.delivered += len(messages)

    def set_knobs(self, request: dict[str, Any]) -> None:
        """Change what the request names; the rest stays."""
        self.plan = HandlerPlan(
            mean_ms=float(request.get("mean_ms", self.plan.mean_ms)),
            jitter_ms=float(request.get("jitter_ms", self.plan.jitter_ms)),
            fail_ratio=float(request.get("fail_ratio", self.plan.fail_ratio)),
        )

    def _duration(self) -> float:
        jitter = self.plan.jitter_ms
        drawn = self._random.uniform(-jitter, jitter) if jitter else 0.0
        return max(0.0, self.plan.mean_ms + drawn) / 1000

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
