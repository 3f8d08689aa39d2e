"""The process queue: its offset never passes an unfinished message."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from failback.client.consumer.process_queue import NO_OFFSET, ProcessQueue
from failback.protocol.message import MessageExt


def message(offset: int, body: bytes = b"x") -> MessageExt:
    return MessageExt(
        "T", 0, 0, offset, 0, 0, 0, ("10.0.0.1", 1), 0, ("10.0.0.1", 1), 0, 0, body, {}, 0, 0
    )


def queue_with(*offsets: int) -> ProcessQueue:
    queue = ProcessQueue(pqe=1, now=0.0)
    queue.put([message(offset) for offset in offsets])
    return queue


def test_removing_from_an_empty_queue_says_so() -> None:
    assert queue_with().remove([message(3)]) == NO_OFFSET


def test_offset_is_the_lowest_unfinished_then_one_past_the_highest() -> None:
    queue = queue_with(5, 6, 7)
    assert queue.remove([message(6)]) == 5
    assert queue.remove([message(5)]) == 7
    assert queue.remove([message(7)]) == 8
    assert queue.remove([message(7)]) == NO_OFFSET


def test_removing_what_is_not_held_still_tells_the_offset() -> None:
    assert queue_with(5, 6).remove([message(99)]) == 5


def test_a_message_put_twice_counts_once() -> None:
    queue = queue_with(5, 6)
    queue.put([message(5)])
    assert (len(queue), queue.body_bytes, queue.max_put) == (2, 2, 6)


def test_lower_offsets_put_later_are_found() -> None:
    queue = queue_with(8, 9)
    queue.put([message(3)])  # after a reset downwards
    assert (queue.lowest(), queue.span(), queue.max_put) == (3, 6, 3)
    assert queue.remove([message(3)]) == 8
    head = queue.head()
    assert head is not None
    assert head.queue_offset == 8


def test_pull_expiry_is_strictly_more_than_the_limit() -> None:
    queue = ProcessQueue(pqe=1, now=10.0)
    assert not queue.is_pull_expired(130.0, 120)
    assert queue.is_pull_expired(130.1, 120)


def test_clear_forgets_everything() -> None:
    queue = queue_with(5, 6)
    queue.clear()
    assert (len(queue), queue.body_bytes, queue.span(), queue.head()) == (0, 0, 0, None)


@settings(deadline=None)
@given(
    holes=st.sets(st.integers(0, 60), max_size=20),
    batches=st.integers(1, 7),
    seed=st.integers(0, 2**32),
)
def test_committed_offset_never_passes_an_unfinished_message(
    holes: set[int], batches: int, seed: int
) -> None:
    """Whatever order handlers finish in, and whatever offsets a filter left out."""
    rng = random.Random(seed)
    offsets = [offset for offset in range(61) if offset not in holes]
    queue = ProcessQueue(pqe=1, now=0.0)
    unfinished: set[int] = set()
    committed = -1
    to_put = list(offsets)
    while to_put or unfinished:
        if to_put and (not unfinished or rng.random() < 0.5):
            batch, to_put = to_put[:batches], to_put[batches:]
            queue.put([message(offset) for offset in batch])
            unfinished.update(batch)
            continue
        done = rng.sample(sorted(unfinished), rng.randint(1, min(3, len(unfinished))))
        offset = queue.remove([message(one) for one in done])
        unfinished.difference_update(done)
        assert all(offset <= other for other in unfinished)
        if unfinished:
            assert offset == min(unfinished)
        # The store raises the offset only, so it may lag when lower offsets come late; here
        # offsets come in order and it never falls.
        assert offset >= committed
        committed = offset
        assert len(queue) == len(unfinished)
        assert queue.body_bytes == len(unfinished)
    if offsets:
        assert committed == offsets[-1] + 1
