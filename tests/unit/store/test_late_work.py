"""Work that waits: when it is done, in which shares, and that nobody waits for it in vain."""

from __future__ import annotations

import asyncio

from failback.broker.store.writing.late_work import LateWork
from tests.support.common.polling import until


class Heap:
    """Work in shares of one piece each; notes how much was left at each."""

    def __init__(self) -> None:
        self.left = 0
        self.seen: list[int] = []

    def __call__(self) -> bool:
        self.seen.append(self.left)
        self.left -= 1
        return self.left > 0


def test_without_a_loop_all_of_it_is_done_at_once() -> None:
    heap = Heap()
    late = LateWork(heap, 0.001)
    heap.left = 3
    late.ask()
    assert (heap.left, late.due) == (0, False)


async def test_it_comes_by_itself_one_share_in_a_turn() -> None:
    heap = Heap()
    late = LateWork(heap, 0.001)
    late.start(asyncio.get_running_loop())
    heap.left = 3
    late.ask()
    assert (heap.seen, late.due) == ([], True)
    turns = 0
    while heap.left:
        before = heap.left
        await asyncio.sleep(0)
        assert before - heap.left <= 1
        turns += 1
        assert turns < 1_000_000
    assert (heap.seen, late.due) == ([3, 2, 1], False)


async def test_who_needs_it_gets_all_of_it_and_nothing_comes_twice() -> None:
    heap = Heap()
    late = LateWork(heap, 0.001)
    late.start(asyncio.get_running_loop())
    heap.left = 3
    late.ask()
    late.share()
    assert (heap.left, late.due) == (2, True)
    late.settle()
    assert (heap.left, late.due) == (0, False)
    heap.left = 1
    late.ask()
    await until(lambda: heap.left == 0, "the next work")
    assert heap.seen == [3, 2, 1, 1]


async def test_what_brings_new_work_goes_first_but_not_for_ever() -> None:
    heap = Heap()
    late = LateWork(heap, 0.001)
    late.start(asyncio.get_running_loop())
    heap.left = 10**9
    late.ask()
    await until(lambda: heap.seen, "the first share")
    shares = list[int]()
    for _ in range(36):
        late.ask()
        before = heap.left
        await asyncio.sleep(0)
        shares.append(before - heap.left)
    assert sum(shares) == 4
    assert [at for at, share in enumerate(shares) if share][1:] == [
        at + 9 for at, share in enumerate(shares) if share
    ][:-1]
    heap.left = 5
    await until(lambda: heap.left == 0, "the rest, without news")
    assert not late.due


async def test_a_stop_leaves_nothing() -> None:
    heap = Heap()
    late = LateWork(heap, 3600)
    late.start(asyncio.get_running_loop())
    heap.left = 2
    late.ask()
    late.stop()
    assert (heap.left, late.due) == (0, False)
