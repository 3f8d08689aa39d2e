"""SIGKILL of brokers, name server, consumers and runtime at seeded random instants.

Whatever is killed and whenever: no acknowledged message is lost, every handler call has its begin
row, no group skips a message, and ``failback down`` leaves no process behind. A failure names the
seed; ``FAILBACK_KILL_SEED`` plays one again.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.cluster.kill_evidence import ProcessLog, acknowledged, read_logs, read_notes, scan
from tests.faults.cluster.kill_lab import QUEUES, TOPIC, KillLab, draw_schedule
from tests.support.processes.leftovers import processes_of

HANDLERS_AT_ONCE = 20


def check_consumer(lab: KillLab, number: int, log: ProcessLog) -> Counter[tuple[str, int, int]]:
    """Compare one consumer's log with the notes of its handler; return what it handled to the end.

    A killed one may have stored a begin row whose handler had no time for a note, and may have
    noted the end of a call whose end row was not stored: one per handler under way.
    """
    noted_begun, noted_ended = read_notes(lab.notes(number))
    begun, ended = log.begun(), log.ended()
    under_way = 0 if number in lab.stopped_cleanly else HANDLERS_AT_ONCE
    assert not noted_begun - begun, f"consumer {number}: handler calls without a begin row"
    assert not ended - noted_ended, f"consumer {number}: end rows of calls that did not end"
    assert (begun - noted_begun).total() <= under_way, f"consumer {number}"
    assert (noted_ended - ended).total() <= under_way, f"consumer {number}"
    return noted_ended


def kill_at_random(folder: Path, flush: str, seed: int, rounds: int) -> int:
    """Play a schedule and check everything; return how many processes were killed."""
    with KillLab(folder, flush, seed) as lab:
        lab.play(draw_schedule(seed, rounds))
        lab.wait_ready()
        lab.stop_producer()
        lab.wait_drained()
        lab.stop_consumers()
        with lab.master() as connection:
            stored = scan(connection, TOPIC)
            committed = connection.all_offsets()[f"{TOPIC}@billing"]
        if seed % 2:
            lab.kill_runtime_for_good()
        lab.down()
        assert lab.living() == []
        assert processes_of(lab.root) == []

        logs = read_logs(lab.hot)
        for log in logs.values():
            assert log.holes() == [], f"process {log.number}"
            assert log.torn <= 1, f"process {log.number}"

        kept = acknowledged(logs)
        assert len(kept) > 100, "hardly anything was acknowledged"
        assert kept <= set(stored.values()), "acknowledged messages are lost"

        handled: Counter[tuple[str, int, int]] = Counter()
        for number in lab.consumer_numbers():
            handled += check_consumer(lab, number, logs.get(number, ProcessLog(number)))
        assert set(handled) >= set(stored), "messages that no handler saw to the end"
        assert len(committed) == QUEUES
        skipped = [
            (TOPIC, queue, offset)
            for queue, end in committed.items()
            for offset in range(end)
            if (TOPIC, queue, offset) not in handled
        ]
        assert skipped == [], "committed but never handled to the end"
        return len(lab.kills)


def seed_of(default: int) -> int:
    return int(os.environ.get("FAILBACK_KILL_SEED", default))


@pytest.mark.few(1, 1)
@pytest.mark.parametrize(("flush", "seed"), [("SYNC_FLUSH", 20261), ("ASYNC_FLUSH", 20262)])
def test_nothing_acknowledged_is_lost_over_random_kills(
    tmp_path: Path, flush: str, seed: int
) -> None:
    seed = seed_of(seed)
    print(f"seed {seed}")  # pytest shows it when the test fails
    assert kill_at_random(tmp_path, flush, seed, rounds=1) >= 12


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_nothing_acknowledged_is_lost_over_many_random_kills(
    tmp_path: Path, flush: str, seed: int
) -> None:
    seed = seed_of(seed)
    print(f"seed {seed}")
    assert kill_at_random(tmp_path, flush, seed, rounds=4) >= 40
