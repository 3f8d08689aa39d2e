"""The workload's handler: slower, failing or raising as it is told, and counted from then on."""

from __future__ import annotations

import asyncio

import pytest

from failback.chaos.workload.handler import HandlerFailure, WorkloadHandler
from failback.chaos.workload.plan import HandlerPlan
from failback.client.model import ConsumeResult
from failback.protocol.message import MessageExt


def handler(**plan: float) -> WorkloadHandler:
    return WorkloadHandler(HandlerPlan(**{"mean_ms": 0.0, **plan}), seed=1)


def message() -> MessageExt:
    here = ("127.0.0.1", 1)
    return MessageExt("orders", 0, 0, 0, 0, 0, 0, here, 0, here, 0, 0, b"foreign", {}, 0, 0)


async def test_a_delay_comes_on_top_and_is_shown() -> None:
    tested = handler(mean_ms=1.0)
    await tested([message()])
    tested.set_knobs({"delay_ms": 20, "fail_ratio": 0, "throw_ratio": 0})
    assert tested.stats()["handled"] == 0
    await tested([message()])
    shown = tested.stats()
    assert shown["knobs"] == {"delay_ms": 20.0, "fail_ratio": 0.0, "throw_ratio": 0.0}
    assert shown["handled"] == 1
    assert shown["least_ms"] >= 20
    assert tested.plan.mean_ms == 1.0


async def test_a_call_that_began_before_does_not_count() -> None:
    tested = handler(delay_ms=30.0)
    call = asyncio.create_task(tested([message()]))
    await asyncio.sleep(0)
    tested.set_knobs({"delay_ms": 0})
    await call
    assert tested.stats()["handled"] == 0
    assert tested.delivered == 1


async def test_it_asks_for_retries_and_raises_as_often_as_it_is_told() -> None:
    tested = handler()
    tested.set_knobs({"fail_ratio": 1})
    assert await tested([message()]) is ConsumeResult.RECONSUME_LATER
    tested.set_knobs({"fail_ratio": 0, "throw_ratio": 1})
    with pytest.raises(HandlerFailure):
        await tested([message()])
    assert tested.stats()["thrown"] == 1
    tested.set_knobs({"throw_ratio": 0})
    assert await tested([message()]) is ConsumeResult.SUCCESS
