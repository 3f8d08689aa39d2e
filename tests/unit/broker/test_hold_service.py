"""Held pulls: woken by a fitting message, by the pass, by their deadline; never twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.processors.pulling.hold_service import HeldPull, PullRequestHoldService


class Lab:
    """A hold service over imaginary queues, with a clock the tests move."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, int], int] = {}
        self.ran: list[str] = []
        self.service: PullRequestHoldService[str] = PullRequestHoldService(
            lambda topic, queue_id: self.ends.get((topic, queue_id), 0),
            lambda held: self.ran.append(held.request),
        )

    def hold(
        self,
        name: str,
        *,
        topic: str = "T",
        queue_id: int = 0,
        offset: int = 0,
        tags: frozenset[int] | None = None,
        deadline_ms: float = 15_000,
        connection: str = "c1",
    ) -> None:
        self.service.hold(
            HeldPull(
                name,
                connection,
                topic=topic,
                queue_id=queue_id,
                offset=offset,
                tags=tags,
                deadline_ms=deadline_ms,
            )
        )

    def arrive(self, end: int, tags_code: int = 0, topic: str = "T", queue_id: int = 0) -> None:
        self.ends[topic, queue_id] = end
        self.service.arrived(topic, queue_id, end, tags_code)

    def sweep(self, now_ms: float) -> None:
        self.service.sweep(now_ms)
        self.service.wake()


def test_a_message_wakes_the_pulls_of_its_queue_only() -> None:
    lab = Lab()
    lab.hold("here")
    lab.hold("other queue", queue_id=1)
    lab.hold("other topic", topic="U")
    lab.arrive(1)
    assert lab.ran == [], "nothing runs before the answer to the send is out"
    lab.service.wake()
    assert lab.ran == ["here"]
    assert len(lab.service) == 2


def test_a_message_below_the_wanted_offset_wakes_nobody() -> None:
    lab = Lab()
    lab.hold("ahead", offset=5)
    lab.arrive(5)
    lab.service.wake()
    assert lab.ran == []
    lab.arrive(6)
    lab.service.wake()
    assert lab.ran == ["ahead"]


def test_a_message_that_the_filter_stops_wakes_nobody_until_the_pass() -> None:
    lab = Lab()
    lab.hold("tagged", tags=frozenset({7}))
    lab.arrive(1, tags_code=8)
    lab.service.wake()
    assert lab.ran == []
    lab.sweep(5_000)
    assert lab.ran == ["tagged"], "the pass looks at the queue's end only, as the original does"


def test_a_message_with_the_wanted_tag_wakes() -> None:
    lab = Lab()
    lab.hold("tagged", tags=frozenset({7, 9}))
    lab.arrive(1, tags_code=9)
    lab.service.wake()
    assert lab.ran == ["tagged"]


def test_the_pass_ends_what_has_waited_long_enough() -> None:
    lab = Lab()
    lab.hold("short", deadline_ms=3_000)
    lab.hold("long", deadline_ms=15_000)
    lab.sweep(2_999)
    assert lab.ran == []
    lab.sweep(5_000)
    assert lab.ran == ["short"]
    lab.sweep(15_000)
    assert lab.ran == ["short", "long"]


def test_the_pulls_of_a_closed_connection_are_forgotten() -> None:
    lab = Lab()
    lab.hold("gone", connection="c1")
    lab.hold("stays", connection="c2")
    lab.service.drop("c1")
    lab.arrive(1)
    lab.service.wake()
    assert lab.ran == ["stays"]


def test_a_connection_that_closes_between_arrival_and_wake_is_not_served() -> None:
    lab = Lab()
    lab.hold("gone", connection="c1")
    lab.arrive(1)
    lab.service.drop("c1")
    lab.service.wake()
    assert lab.ran == []


def test_one_failing_pull_does_not_keep_the_others_asleep(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ran: list[str] = []

    def run(held: HeldPull[str]) -> None:
        if held.request == "bad":
            raise RuntimeError("broken")
        ran.append(held.request)

    service: PullRequestHoldService[str] = PullRequestHoldService(lambda _topic, _queue: 1, run)
    for name in ("bad", "good"):
        service.hold(
            HeldPull(
                name, "c", topic="T", queue_id=0, offset=0, tags=None, deadline_ms=float("inf")
            )
        )
    service.sweep(0)
    service.wake()
    assert ran == ["good"]
    assert "held pull on ('T', 0) failed" in caplog.text


pulls = st.tuples(st.integers(0, 2), st.integers(0, 4), st.sampled_from([None, 1, 2]))
events = st.one_of(
    st.tuples(st.just("arrive"), st.integers(0, 2), st.sampled_from([1, 2])),
    st.tuples(st.just("sweep"), st.integers(0, 20_000), st.just(0)),
    st.tuples(st.just("drop"), st.integers(0, 2), st.just(0)),
)


@given(st.lists(pulls, max_size=12), st.lists(events, max_size=12))
def test_every_pull_runs_at_most_once_and_none_is_lost(
    held: list[tuple[int, int, int | None]], happened: list[tuple[str, int, int]]
) -> None:
    lab = Lab()
    for number, (queue_id, offset, tag) in enumerate(held):
        tags = None if tag is None else frozenset({tag})
        lab.hold(
            str(number), queue_id=queue_id, offset=offset, tags=tags, connection=f"c{queue_id}"
        )
    dropped = set()
    for kind, value, tag_code in happened:
        if kind == "arrive":
            lab.arrive(lab.ends.get(("T", value), 0) + 1, tag_code, queue_id=value)
            lab.service.wake()
        elif kind == "sweep":
            lab.sweep(value)
        else:
            lab.service.drop(f"c{value}")
            dropped |= {str(n) for n, pull in enumerate(held) if pull[0] == value}
    assert len(lab.ran) == len(set(lab.ran))
    lab.sweep(float("inf"))
    assert set(lab.ran) | dropped == {str(number) for number in range(len(held))}
    assert len(lab.ran) == len(set(lab.ran))
