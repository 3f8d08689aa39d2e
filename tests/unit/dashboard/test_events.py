"""Event streams: what changed is said once to everybody who listens, and never piles up."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from fastapi.sse import ServerSentEvent

from failback.analytics.dashboard.events import EventHub


async def taken(stream: AsyncIterator[ServerSentEvent], count: int) -> list[tuple[str, str]]:
    """So many events after the greeting: kind and run."""
    if count == 0:
        assert (await anext(stream)).comment == "connected"
        return []
    found = [await anext(stream) for _ in range(count)]
    assert all(each.event == "changed" for each in found)
    return [(each.data["kind"], each.data["run"]) for each in found]


async def test_a_reader_is_told_what_changed_after_it_came() -> None:
    hub = EventHub()
    hub.publish("phase")
    stream = hub.stream()
    await taken(stream, 0)
    hub.publish("phase", "r1")
    hub.publish("fleet")
    assert await taken(stream, 2) == [("phase", "r1"), ("fleet", "")]
    await stream.aclose()
    assert hub.readers == 0


async def test_a_reader_of_one_run_hears_of_it_and_of_what_belongs_to_none() -> None:
    hub = EventHub()
    stream = hub.stream("r1")
    await taken(stream, 0)
    for run in ("r2", "r1", ""):
        hub.publish("counters", run)
    assert await taken(stream, 2) == [("counters", "r1"), ("counters", "")]


async def test_what_a_slow_reader_was_not_told_is_told_once() -> None:
    hub = EventHub()
    stream = hub.stream()
    await taken(stream, 0)
    for number in range(10_000):
        hub.publish("counters", f"r{number % 2}")
    assert await taken(stream, 2) == [("counters", "r0"), ("counters", "r1")]
    hub.publish("counters", "r0")
    assert await taken(stream, 1) == [("counters", "r0")], "new again"


async def test_so_many_readers_and_no_more() -> None:
    hub = EventHub(most_readers=1)
    assert not hub.is_full
    stream = hub.stream()
    await taken(stream, 0)
    assert hub.is_full
    await stream.aclose()
    assert not hub.is_full


async def test_closing_ends_every_stream() -> None:
    hub = EventHub()
    stream = hub.stream()
    await taken(stream, 0)
    hub.close()
    assert [each async for each in stream] == []
    assert hub.readers == 0


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_stream_ends_when_its_reader_may_not_look_any_more(is_busy: bool) -> None:
    hub, may = EventHub(), [True]
    stream = hub.stream(check_seconds=0.01, allowed=lambda: may[0])
    await taken(stream, 0)
    hub.publish("fleet")
    await taken(stream, 1)
    may[0] = False
    if is_busy:
        hub.publish("fleet")
    seen = 0
    async for _ in stream:
        seen += 1
        assert seen < 10_000, "it goes on for ever"
        if is_busy:
            hub.publish("fleet")
    assert hub.readers == 0
