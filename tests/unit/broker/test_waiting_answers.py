"""Answers that wait for disk and slave: order, verdicts, deadlines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.processors.sending.waiting_answers import WaitingAnswer, WaitingAnswers

OK, FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT = 0, 10, 11, 12


class Inbox:
    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def push(self, data: bytes) -> None:
        name, _, code = data.decode().partition(":")
        assert name not in self.codes, "answered twice"
        self.codes[name] = int(code)


def answer(inbox: Inbox, name: str) -> WaitingAnswer:
    return WaitingAnswer(inbox, lambda code, who: f"{who}:{code}".encode(), (name,))


def test_an_answer_goes_when_the_disk_has_its_end() -> None:
    inbox, waiting = Inbox(), WaitingAnswers()
    waiting.add(answer(inbox, "a"), 100, flush_deadline_ms=5)
    waiting.add(answer(inbox, "b"), 200, flush_deadline_ms=5)
    waiting.flushed(199)
    assert inbox.codes == {"a": OK}
    waiting.flushed(200)
    assert inbox.codes == {"a": OK, "b": OK}
    assert len(waiting) == 0


def test_it_waits_for_the_slave_too() -> None:
    inbox, waiting = Inbox(), WaitingAnswers()
    waiting.add(answer(inbox, "a"), 100, flush_deadline_ms=5, replica_deadline_ms=3)
    waiting.replicated(100)
    assert inbox.codes == {}
    waiting.flushed(100)
    assert inbox.codes == {"a": OK}


def test_deadlines_answer_with_their_own_codes() -> None:
    inbox, waiting = Inbox(), WaitingAnswers()
    waiting.add(answer(inbox, "disk"), 100, flush_deadline_ms=5000)
    waiting.add(answer(inbox, "slave"), 200, replica_deadline_ms=3000)
    assert waiting.first_flush_deadline_ms == 5000
    assert waiting.first_replica_deadline_ms == 3000
    waiting.expire(2999)
    assert inbox.codes == {}
    waiting.expire(3000)
    assert inbox.codes == {"slave": FLUSH_SLAVE_TIMEOUT}
    waiting.expire(5000)
    assert inbox.codes == {"slave": FLUSH_SLAVE_TIMEOUT, "disk": FLUSH_DISK_TIMEOUT}


@pytest.mark.parametrize("flush_ok", [True, False])
@pytest.mark.parametrize("slave", ["acked", "late", "unavailable"])
def test_the_slaves_verdict_overrides_the_disks(flush_ok: bool, slave: str) -> None:
    inbox, waiting = Inbox(), WaitingAnswers()
    one = answer(inbox, "a")
    deadline = None if slave == "unavailable" else 3.0
    if slave == "unavailable":
        one.slave_code = SLAVE_NOT_AVAILABLE
    waiting.add(one, 100, flush_deadline_ms=5, replica_deadline_ms=deadline)
    if slave == "acked":
        waiting.replicated(100)
    elif slave == "late":
        waiting.expire(3)
    assert inbox.codes == {}
    if flush_ok:
        waiting.flushed(100)
    else:
        waiting.flush_failed(100)
    # CommitLog.asyncPutMessage sets the disk's verdict, then the slave's where it is not OK.
    by_disk = OK if flush_ok else FLUSH_DISK_TIMEOUT
    by_slave = {"acked": by_disk, "late": FLUSH_SLAVE_TIMEOUT, "unavailable": SLAVE_NOT_AVAILABLE}
    assert inbox.codes == {"a": by_slave[slave]}


def test_giving_up_answers_everybody_once() -> None:
    inbox, waiting = Inbox(), WaitingAnswers()
    waiting.add(answer(inbox, "a"), 100, flush_deadline_ms=5, replica_deadline_ms=3)
    waiting.add(answer(inbox, "b"), 200, flush_deadline_ms=5)
    waiting.give_up()
    assert inbox.codes == {"a": FLUSH_SLAVE_TIMEOUT, "b": FLUSH_DISK_TIMEOUT}


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=30),
    st.lists(st.tuples(st.sampled_from("fr"), st.integers(0, 2000)), max_size=40),
)
def test_nobody_is_answered_before_what_it_waits_for(
    sizes: list[int], events: list[tuple[str, int]]
) -> None:
    inbox, waiting = Inbox(), WaitingAnswers()
    ends, end = [], 0
    for size in sizes:
        end += size
        ends.append(end)
        waiting.add(answer(inbox, str(end)), end, flush_deadline_ms=1, replica_deadline_ms=1)
    reached = {"f": 0, "r": 0}
    for kind, offset in events:
        reached[kind] = max(reached[kind], offset)
        (waiting.flushed if kind == "f" else waiting.replicated)(offset)
        covered = min(reached.values())
        assert set(inbox.codes) == {str(end) for end in ends if end <= covered}
    assert set(inbox.codes.values()) <= {OK}
