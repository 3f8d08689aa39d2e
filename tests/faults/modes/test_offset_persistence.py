"""What a kill takes from committed offsets: modes 1 to 4 and 25 of the failure modes' page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.broker.metadata.json_config import backup_of
from tests.faults.modes import dying_broker
from tests.faults.modes import stuck_consumer as gated_consumer
from tests.faults.modes.mode_evidence import (
    PATIENT_SECONDS,
    Bound,
    again,
    in_file,
    in_table,
    most_within,
    offset_file,
    unpersisted_seconds,
    until_in_file,
)
from tests.faults.modes.mode_lab import ENGINES, ModeLab, unique
from tests.support.common.polling import until
from tests.support.java.apache import Broker
from tests.support.processes.child_process import ROOT, TestProcess

GROUP = "billing"


@pytest.mark.sample
@pytest.mark.few(1)
@pytest.mark.parametrize("lab", ENGINES, indirect=True)
async def test_commits_since_the_last_persist_come_again(lab: ModeLab) -> None:
    master = lab.node()
    await lab.start(master)
    topic = await lab.new_topic(master)
    first = await lab.consume(GROUP, topic)
    load = lab.load(master, topic)
    await until(lambda: in_file(master, GROUP, topic) > 0, "the first persist", PATIENT_SECONDS)
    await until(
        lambda: len(first.got) >= in_file(master, GROUP, topic) + 10,
        "progress that is not persisted",
        PATIENT_SECONDS,
    )
    master.kill()
    period = unpersisted_seconds(lab.periods, master, first)
    await load.stop()
    await first.stop()  # there is no slave to commit to
    kept, consumed = in_file(master, GROUP, topic), len(first.got)
    assert sorted(got.offset for got in first.got) == list(range(consumed))

    await lab.start(master)
    second = await lab.consume(GROUP, topic)
    await second.gets(first.bodies[kept:], "everything behind the file's offset")
    assert second.start.offset == kept
    assert again(first, second) == consumed - kept > 0
    formula = "R · (flushConsumerOffsetInterval + persistConsumerOffsetInterval)"
    Bound(1, formula, most_within(first.times, period)).holds(again(first, second))


# --- a killed consumer --------------------------------------------------------------------------


@pytest.fixture
def killed_consumer(tmp_path: Path) -> Iterator[list[TestProcess]]:
    """Takes the consumers of a test, which are gone at its end."""
    found: list[TestProcess] = []
    yield found
    for process in found:
        process.dispose()


def gated(
    lab: ModeLab, folder: Path, group: str, topic: str, gate: int, timers: float
) -> tuple[TestProcess, Path]:
    """Return a consumer process, not started, and the file with what it finished."""
    notes = folder / "notes"
    command = [sys.executable, "-m", gated_consumer.__name__, lab.ns.address, group, topic]
    command += [str(notes), str(gate), str(timers)]
    paths = {"PYTHONPATH": ":".join([str(ROOT), *sys.path])}
    return TestProcess("consumer", command, folder, environment=paths), notes


def finished(notes: Path) -> list[int]:
    return (
        [int(line.split()[1]) for line in notes.read_text().splitlines()] if notes.exists() else []
    )


async def test_what_a_killed_consumer_had_not_committed_comes_again(
    lab: ModeLab, standing: Broker, tmp_path: Path, killed_consumer: list[TestProcess]
) -> None:
    group, sent = unique(GROUP), 30
    topic = await lab.new_topic(standing)
    bodies = await lab.send(standing, topic, sent)
    process, notes = gated(lab, tmp_path, group, topic, gate=-1, timers=1.0)
    killed_consumer.append(process)
    process.start()  # one pull brings everything, and its first commit is due in ten seconds
    await until(lambda: len(finished(notes)) == sent, "all handled", PATIENT_SECONDS)
    process.kill()
    committed = max(0, await lab.offset(standing, group, topic))

    second = await lab.consume(group, topic)
    await second.gets(bodies[committed:])
    assert second.start.offset == committed
    assert sorted(second.bodies) == sorted(bodies[committed:])
    assert sent - committed > 0
    Bound(2, "R · persistConsumerOffsetInterval", sent).holds(sent - committed)


async def test_what_was_finished_above_a_slow_message_comes_again(
    lab: ModeLab, standing: Broker, tmp_path: Path, killed_consumer: list[TestProcess]
) -> None:
    group, gate, sent = unique(GROUP), 5, 200
    topic = await lab.new_topic(standing)
    bodies = await lab.send(standing, topic, sent)
    process, notes = gated(lab, tmp_path, group, topic, gate, timers=0.05)
    killed_consumer.append(process)
    process.start()
    await lab.offset_is(standing, group, topic, gate)  # the lowest that is not finished
    await until(lambda: len(finished(notes)) > gate, "messages above it", PATIENT_SECONDS)
    process.kill()
    done = finished(notes)
    above = [offset for offset in done if offset > gate]
    assert sorted(offset for offset in done if offset < gate) == list(range(gate))

    second = await lab.consume(group, topic)
    await second.gets(bodies[gate:])
    assert second.start.offset == gate
    repeated = {got.offset for got in second.got} & set(done)
    assert repeated == set(above) != set()
    most = gated_consumer.SPAN + 32
    Bound(3, "Q · (consumeConcurrentlyMaxSpan + one batch)", most).holds(len(repeated))


# --- the file -----------------------------------------------------------------------------------


async def test_a_kill_within_a_persist_costs_one_more_and_empty_files_cost_everything(
    lab: ModeLab, tmp_path: Path
) -> None:
    dies_at, mark = 30, tmp_path / "died"
    program = [sys.executable, dying_broker.__file__, f"0:{dies_at}", str(mark)]
    master = lab.node(launcher=program)
    await lab.start(master)
    topic = await lab.new_topic(master)
    bodies = await lab.send(master, topic, 20)
    first = await lab.consume(GROUP, topic)
    await first.gets(bodies)
    await until_in_file(master, GROUP, topic, 20)
    bodies += await lab.send(master, topic, dies_at - 20)
    await first.gets(bodies)
    await until(lambda: not master.process.alive, "death within a persist", PATIENT_SECONDS)
    await first.stop()
    master.process.dispose()
    assert not offset_file(master).exists()
    kept = in_table(backup_of(offset_file(master)), GROUP, topic)

    await lab.start(master)
    second = await lab.consume(GROUP, topic)
    await second.gets(bodies[kept:])
    assert second.start.offset == kept
    assert again(first, second) == dies_at - kept > 0
    # What came since 20 was persisted came within the two periods, and nothing else did.
    Bound(4, "R · (2 · flushConsumerOffsetInterval + commits)", dies_at - 20).holds(
        again(first, second)
    )

    # What is left of files that were never synced when the power goes.
    master.kill()
    await second.stop()
    offset_file(master).write_bytes(b"")
    backup_of(offset_file(master)).write_bytes(b"")
    await lab.start(master)
    third = await lab.consume(GROUP, topic)
    await third.gets(bodies)
    assert third.start.offset == 0


async def test_a_second_kill_before_the_first_persist_repeats_that_whole_life(lab: ModeLab) -> None:
    master = lab.node(scale=5.0)  # the first persist is due after 50 s
    await lab.start(master)
    topic = await lab.new_topic(master)
    bodies: list[bytes] = []
    lives = []
    for life in range(3):
        member = await lab.consume(GROUP, topic)
        bodies += await lab.send(master, topic, 10)
        await member.gets(bodies, f"everything, in life {life}")
        await lab.offset_is(master, GROUP, topic, len(bodies))
        master.kill()
        await member.stop()
        assert not offset_file(master).exists()
        assert member.start.offset == 0
        lives.append(member)
        if life < 2:
            await lab.start(master)
    assert again(*lives) == 10 + 20
    most = sum(most_within(member.times, 50.0) for member in lives[:2])
    Bound(25, "R · (first persist + commits) a life", most).holds(again(*lives))
