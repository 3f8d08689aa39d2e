"""Queue locks of ordered consumers."""

from __future__ import annotations

from failback.broker.processors.consumers.queue_locks import QueueLocks
from failback.protocol.body import MessageQueue

Q0, Q1 = (MessageQueue("T", "broker-a", queue_id) for queue_id in (0, 1))


def test_the_first_client_holds_and_the_second_does_not() -> None:
    locks = QueueLocks()
    assert locks.lock("CG", "a", [Q0, Q1], 0) == [Q0, Q1]
    assert locks.lock("CG", "b", [Q0, Q1], 1) == []


def test_groups_do_not_disturb_each_other() -> None:
    locks = QueueLocks()
    locks.lock("CG", "a", [Q0], 0)
    assert locks.lock("DG", "b", [Q0], 0) == [Q0]


def test_a_lock_not_renewed_for_a_minute_is_free() -> None:
    locks = QueueLocks()
    locks.lock("CG", "a", [Q0], 0)
    assert locks.lock("CG", "b", [Q0], 60_000) == []
    assert locks.lock("CG", "b", [Q0], 60_001) == [Q0]


def test_locking_again_renews() -> None:
    locks = QueueLocks()
    locks.lock("CG", "a", [Q0], 0)
    assert locks.lock("CG", "a", [Q0], 50_000) == [Q0]
    assert locks.lock("CG", "b", [Q0], 100_000) == []


def test_only_the_holder_unlocks() -> None:
    locks = QueueLocks()
    locks.lock("CG", "a", [Q0], 0)
    locks.unlock("CG", "b", [Q0])
    assert locks.lock("CG", "b", [Q0], 1) == []
    locks.unlock("CG", "a", [Q0])
    assert locks.lock("CG", "b", [Q0], 2) == [Q0]
