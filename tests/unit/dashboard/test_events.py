"""Event streams: resumed from the ring, reset when too old, cut off when too slow."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from failback.analytics.dashboard.events import EventHub


async def taken(stream: AsyncIterator[str], count: int) -> list[str]:
    found = [await anext(stream) for _ in range(count)]
    await stream.aclose()  # type: ignore[attr-defined]
    return found


def parts(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.strip().splitlines())


async def test_a_reader_gets_what_is_published_after_it_came() -> None:
    hub = EventHub()
    hub.publish("phase", {"text": "before"})
    stream = hub.stream()
    assert await anext(stream) == ": connected\n\n"
    hub.publish("phase", {"text": "a\nb"}, "r1")
    event = parts((await taken(stream, 1))[0])
    assert (event["id"], event["event"]) == ("2", "phase")
    assert json.loads(event["data"]) == {"run": "r1", "text": "a\nb"}
    assert hub.readers == 0


async def test_last_event_id_brings_what_was_missed_and_nothing_twice() -> None:
    hub = EventHub()
    for number in range(5):
        hub.publish("counters", {"n": number}, "r1" if number % 2 else "r2")
    hub.publish("fleet", {"n": 5})
    texts = await taken(hub.stream("r1", 1), 4)
    assert [parts(text)["id"] for text in texts[1:]] == ["2", "4", "6"], "its run, and everybody's"
    assert await taken(hub.stream("", 6), 1) == [": connected\n\n"]


async def test_an_id_that_left_the_ring_or_never_was_resets() -> None:
    hub = EventHub(ring=3)
    for number in range(10):
        hub.publish("counters", {"n": number})
    for last in (0, 5, 11):
        first = parts((await taken(hub.stream("", last), 1))[0])
        assert (first["event"], first["id"]) == ("reset", "10"), last
    assert len(await taken(hub.stream("", 7), 4)) == 4, "7 is the last before the ring"


async def test_a_slow_reader_is_told_and_left_alone() -> None:
    hub = EventHub(queue=2)
    stream = hub.stream()
    await anext(stream)
    for number in range(5):
        hub.publish("counters", {"n": number})
    kinds = [parts(text)["event"] async for text in stream]
    assert kinds == ["counters", "counters", "overrun"]
    assert hub.readers == 0


async def test_so_many_readers_and_no_more() -> None:
    hub = EventHub(most_readers=1)
    assert not hub.is_full
    stream = hub.stream()
    await anext(stream)
    assert hub.is_full
    await stream.aclose()
    assert not hub.is_full


async def test_silence_is_filled_with_pings_without_an_id() -> None:
    text = (await taken(EventHub().stream(ping_seconds=0.01), 2))[1]
    assert parts(text)["event"] == "ping"
    assert "id:" not in text


async def test_closing_ends_every_stream() -> None:
    hub = EventHub()
    stream = hub.stream()
    await anext(stream)
    hub.publish("fleet", {})
    hub.close()
    assert len([text async for text in stream]) == 1


@pytest.mark.parametrize("is_busy", [False, True])
async def test_a_stream_ends_when_its_reader_may_not_look_any_more(is_busy: bool) -> None:
    hub, may = EventHub(), [True]
    stream = hub.stream(ping_seconds=0.01, allowed=lambda: may[0])
    await anext(stream)
    await anext(stream)
    may[0] = False
    seen = 0
    async for _ in stream:
        seen += 1
        assert seen < 10_000, "it goes on for ever"
        if is_busy:
            hub.publish("fleet", {})
    assert hub.readers == 0
