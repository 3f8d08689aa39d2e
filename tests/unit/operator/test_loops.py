"""When the loops look at their resources."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from failback.operator.controller.loops import Loops, next_look
from failback.operator.controller.passes import Passed
from failback.operator.metrics import Metrics

POLL = 5.0
NEVER = float("inf")
times = st.floats(min_value=0, max_value=1e7)


def test_resources_that_are_looked_at_one_after_the_other_are_looked_at_together_next_time() -> (
    None
):
    looks = {next_look(1000 + step / 100, NEVER, POLL) for step in range(500)}
    assert len(looks) == 10


@given(now=times)
def test_a_poll_is_at_most_a_turn_early_and_never_late(now: float) -> None:
    assert POLL * 0.9 - 1e-6 <= next_look(now, NEVER, POLL) - now <= POLL + 1e-6


@given(now=times, after=st.floats(min_value=0, max_value=4))
def test_a_pass_that_is_due_sooner_comes_when_it_is_due(now: float, after: float) -> None:
    assert next_look(now, now + after, POLL) == now + after


@given(now=times, late=times)
def test_a_pass_that_is_late_comes_now(now: float, late: float) -> None:
    assert next_look(now, now - late, POLL) == now


class Resources:
    """Two resources, of which one has peers that never answer."""

    def __init__(self) -> None:
        self.passes = 0

    async def refresh(self, kind: str, namespace: str, name: str) -> bool:
        if name == "hangs":
            await asyncio.Event().wait()
        return False

    async def run(self, kind: str, namespace: str, name: str) -> Passed:
        self.passes += 1
        return Passed("ok", wake_after=0.01)

    def forget(self, *key: str) -> None:
        """Nothing is remembered."""


async def test_a_resource_that_hangs_is_told_late_and_the_others_go_on() -> None:
    passes: Any = Resources()
    loops = Loops(
        passes, resync_seconds=60, poll_seconds=1, exists=lambda _: True, dependents=lambda _: ()
    )
    metrics = Metrics(version="0", kopf="0", kubernetes="0")
    metrics.late = loops.late
    hangs, goes_on = ("Topic", "shop", "hangs"), ("Topic", "shop", "goes-on")
    loops.ensure(hangs)
    loops.ensure(goes_on)
    await asyncio.sleep(0.3)
    assert passes.passes > 2
    assert loops.late() == {}
    loops._loops[hangs].due_at -= 300
    assert set(loops.late()) == {hangs}
    found = [line for line in metrics.text().decode().splitlines() if "pass_late_seconds{" in line]
    assert [line.rpartition(" ")[0] for line in found] == [
        'failback_operator_pass_late_seconds{kind="Topic",name="hangs",namespace="shop"}'
    ]
    await loops.close()
    loops._loops.clear()
    assert b"pass_late_seconds{" not in metrics.text()
