"""A crash after any write loses nothing that was promised, and leaves a store that opens."""

from __future__ import annotations

from pathlib import Path
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from failback.broker.store.message_store import MessageStore
from tests.support.common.counts import examples
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import (
    Clock,
    assert_queues_agree_with_log,
    kill,
    log_messages,
    open_store,
    put,
)

ROOT = Path("/store")

Step = tuple[str, int, int]
PUTS = st.tuples(st.just("put"), st.integers(0, 1), st.integers(0, 300))
OTHERS = st.sampled_from(
    ["commit", "commit", "commit", "tick", "flush", "flush_queues", "kill", "stop"]
)
STEPS = st.lists(
    st.one_of(PUTS, st.tuples(OTHERS, st.just(0), st.just(0))), min_size=4, max_size=40
)


class Luck:
    """Which unsynced writes a power loss leaves on the disk: the first ones, or any."""

    def __init__(self, until: int, share: float, seed: int) -> None:
        random = Random(seed)
        self.kept = {step for step in range(2000) if step < until or random.random() < share}

    def __call__(self, step: int) -> bool:
        return step in self.kept


class Scenario:
    """Runs steps on a journalled store; notes what was committed and flushed after each.

    A note is (bodies committed so far, how many of them are known to be on disk).
    """

    def __init__(self, files: CrashingFiles, clock: Clock) -> None:
        self.files = files
        self.clock = clock
        self.start = len(files.journal)
        self.store = open_store(ROOT, files, clock)
        self.bodies = [message.body for message in log_messages(self.store)]
        self.ends = [
            message.physical_offset + message.store_size for message in log_messages(self.store)
        ]
        self.pending: list[tuple[bytes, int]] = []
        self.note()

    def note(self) -> None:
        flushed = sum(end <= self.store.flushed_offset for end in self.ends)
        self.files.note((tuple(self.bodies), flushed))

    def run(self, steps: list[Step]) -> None:
        for kind, queue_id, size in steps:
            getattr(self, kind)(queue_id, size)
            self.note()

    def put(self, queue_id: int, size: int) -> None:
        number = len(self.bodies) + len(self.pending)
        body = number.to_bytes(4, "big") + b"x" * size
        appended = put(self.store, body, queue_id=queue_id, tag="A")
        self.pending.append((body, appended.end_offset))

    def commit(self, *_: int) -> None:
        self.store.commit_pending()
        self.bodies += [body for body, _ in self.pending]
        self.ends += [end for _, end in self.pending]
        self.pending = []

    def tick(self, *_: int) -> None:
        self.clock.now += 2000

    def flush(self, *_: int) -> None:
        self.store.flush()

    def flush_queues(self, *_: int) -> None:
        self.store.flush_queues()

    def kill(self, *_: int) -> None:
        self.pending = []
        kill(self.store)
        self.store = open_store(ROOT, self.files, self.clock)

    def stop(self, *_: int) -> None:
        self.commit()
        self.store.close()
        self.note()
        self.store = open_store(ROOT, self.files, self.clock)


def reopen(files: CrashingFiles) -> MessageStore:
    store = open_store(ROOT, files)
    assert_queues_agree_with_log(store)
    # No CRC covers the properties: a torn record can't be told by its body alone.
    assert all(message.tags in ("A", None) for message in log_messages(store))
    return store


def assert_usable(files: CrashingFiles) -> None:
    """After the fault the store is used again, and then stopped and started in order."""
    store = open_store(ROOT, files)
    before = log_bodies(store)
    for queue_id in (0, 1):
        put(store, b"new", queue_id=queue_id)
    store.commit_pending()
    store.close()
    assert log_bodies(reopen(files)) == (*before, b"new", b"new")


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_a_killed_process_loses_nothing_it_committed(data: st.DataObject) -> None:
    files, clock = CrashingFiles(), Clock()
    for _ in range(data.draw(st.integers(1, 3))):
        scenario = Scenario(files, clock)
        scenario.run(data.draw(STEPS))
        point = data.draw(st.integers(scenario.start, len(files.journal)))
        committed, _ = files.last_note(point) or ((), 0)
        files = files.after_kill(point, data.draw(st.integers(0, 400)))
        assert log_bodies(reopen(files))[: len(committed)] == committed
    assert_usable(files)


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_a_power_loss_loses_nothing_flushed(data: st.DataObject) -> None:
    """Of what was not synced, the disk keeps the first writes, or any."""
    files, clock = CrashingFiles(), Clock()
    for _ in range(data.draw(st.integers(1, 3))):
        scenario = Scenario(files, clock)
        scenario.run(data.draw(STEPS))
        point = data.draw(st.integers(scenario.start, len(files.journal)))
        committed, flushed = files.last_note(point) or ((), 0)
        until = data.draw(st.integers(0, point))
        share = data.draw(st.sampled_from([0, 0.5, 0.9]))
        files = files.after_power_loss(point, Luck(until, share, data.draw(st.integers(0, 999))))
        assert log_bodies(reopen(files))[:flushed] == committed[:flushed]
    assert_usable(files)


def log_bodies(store: MessageStore) -> tuple[bytes, ...]:
    return tuple(message.body for message in log_messages(store))
