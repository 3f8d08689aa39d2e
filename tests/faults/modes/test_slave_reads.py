"""An outage in which a slave serves: modes 5 to 8 and 17 of the failure modes' page.

One outage is lived per engine, with three groups: *moving* is restarted while only the slave is
there, *leaving* consumes from the slave alone and is started again on the returned master, and
*staying* runs through. Each test looks at what became of one of them.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import pytest

from failback.protocol.codes import SCHEDULE_TOPIC, RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from tests.faults.modes.mode_evidence import (
    NEVER_MS,
    PATIENT_SECONDS,
    Bound,
    Member,
    again,
    commit_seconds,
    in_file,
    most_within,
    until_in_file,
)
from tests.faults.modes.mode_lab import ENGINES_SLOW, ModeLab
from tests.support.brokers.broker_lab import send_header
from tests.support.common.polling import until
from tests.support.java.apache import Broker, Engine, server_home

MOVING, LEAVING, STAYING = "moving", "leaving", "staying"
EARLY, COMMITTED_EARLY = 10, 5
"""What was sent, and where *leaving* stood, long before the kill."""
DELAY: dict[Engine, tuple[int, float]] = {"failback": (5, 3.0), "apache": (3, 10.0)}
"""A delay level that is due within the outage, and its seconds as the engine counts them."""


@dataclass
class Outage:
    """What was seen.

    Attributes:
        slave_end: Where the slave's queue ended during the outage.
        moving_at_slave: Offset of *moving* at the slave when the master was killed.
        unknown_seconds: How far that was behind what had been handled.
        moving, leaving: The member before the restart and the one after it.
        leaving_kept: Offset of *leaving* in the returned master's file.
        leaving_at_slave: And at the slave, before the master came back and after.
        broker_ids: Which brokers the route named during the outage.
        send_code: The slave's answer to a message.
        is_late_delivered: Whether the slave delivered the delayed message when it was due.
        staying_committed: Offset of *staying* at the returned master, and its queue's end.
    """

    slave_end: int
    moving_at_slave: int
    unknown_seconds: float
    moving: tuple[Member, Member]
    leaving: tuple[Member, Member]
    leaving_kept: int
    leaving_at_slave: tuple[int, int]
    staying: Member
    broker_ids: set[int]
    send_code: int
    late: bytes
    is_late_delivered: bool
    staying_committed: tuple[int, int]


@pytest.fixture(scope="module", params=ENGINES_SLOW)
def outage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outage:
    """Live through one outage of a master."""
    engine: Engine = request.param
    if engine == "apache":
        server_home()
    shared = request.getfixturevalue("name_server") if engine == "failback" else None
    return asyncio.run(live(ModeLab(tmp_path_factory.mktemp(engine), engine, shared)))


async def live(lab: ModeLab) -> Outage:
    async with lab:
        master = lab.node()
        slave = lab.slave_of(master)
        await lab.start(master, slave)
        topic = await lab.new_topic(master)
        sent = await lab.send(master, topic, EARLY)
        await lab.commit(master, LEAVING, topic, COMMITTED_EARLY)
        staying = await lab.consume(STAYING, topic)
        moving = await lab.consume(MOVING, topic, poll_name_server_interval_ms=NEVER_MS)
        await lab.topic_is_at(slave, topic)
        await until_in_file(master, LEAVING, topic, COMMITTED_EARLY)
        await lab.offset_is(slave, LEAVING, topic, COMMITTED_EARLY)

        load = lab.load(master, topic)
        watch = lab.watch(slave, MOVING, topic)
        await progress_beyond(lab, slave, topic, moving)
        level, delay = DELAY[lab.engine]
        (late,) = await lab.send(master, topic, 1, properties=f"DELAY\x01{level}")
        due = time.monotonic() + delay
        await lab.ends(slave, SCHEDULE_TOPIC, 1, level - 1)
        await progress_beyond(lab, slave, topic, moving)
        master.kill()
        killed, commits = time.monotonic(), commit_seconds(lab.periods, moving)
        await load.stop()
        await moving.stop()  # it knew no slave: its last commit reached nobody

        moving_at_slave = await lab.offset(slave, MOVING, topic)
        await watch.stop()
        slave_end = await lab.admin.max_offset(slave.address, topic, 0)
        route = await lab.admin.route(topic)
        send_code = await code_of_send(lab, slave, topic)
        moved = await lab.consume(MOVING, topic)
        left = await lab.consume(LEAVING, topic)
        for member in (moved, left):
            await member.reaches(slave_end)
        await lab.offset_is(slave, LEAVING, topic, slave_end)
        await left.stop()
        before = await lab.offset(slave, LEAVING, topic)
        await until(lambda: time.monotonic() > due + 0.5, "the delay's end", PATIENT_SECONDS)
        is_late_delivered = await lab.admin.max_offset(slave.address, topic, 0) > slave_end

        kept = in_file(master, LEAVING, topic)
        await lab.start(master)
        returned_at = time.monotonic()
        await lab.offset_is(slave, LEAVING, topic, kept)
        print(f"slave overwritten {time.monotonic() - returned_at:.1f} s after the return")
        after = await lab.offset(slave, LEAVING, topic)
        returned = await lab.consume(LEAVING, topic)
        sent += load.sent + await lab.send(master, topic, EARLY) + [late]
        await staying.gets(sent, "every message, by the one that stayed")
        await moved.gets(sent[-EARLY - 1 :])
        await returned.gets(sent[COMMITTED_EARLY:])
        end = await lab.admin.max_offset(master.address, topic, 0)
        await lab.offset_is(master, STAYING, topic, end)
        return Outage(
            slave_end=slave_end,
            moving_at_slave=moving_at_slave,
            unknown_seconds=max(lab.periods.synchronise, killed - watch.changed_at) + commits,
            moving=(moving, moved),
            leaving=(left, returned),
            leaving_kept=kept,
            leaving_at_slave=(before, after),
            staying=staying,
            broker_ids={number for data in route.broker_datas for number in data.broker_addrs},
            send_code=send_code,
            late=late,
            is_late_delivered=is_late_delivered,
            staying_committed=(await lab.offset(master, STAYING, topic), end),
        )


async def progress_beyond(lab: ModeLab, slave: Broker, topic: str, member: Member) -> None:
    """Return when a member has handled messages that the slave's table does not know of."""

    async def is_ahead() -> bool:
        known = await lab.offset(slave, MOVING, topic)
        return EARLY < known <= len(member.got) - 10

    await lab.comes(is_ahead, True, "progress that the slave does not know of")


async def code_of_send(lab: ModeLab, broker: Broker, topic: str) -> int:
    request = RemotingCommand.request(
        RequestCode.SEND_MESSAGE_V2, send_header(topic=topic), b"refused"
    )
    return (await lab.client.invoke(broker.address, request, 10_000)).code


def test_a_consumer_started_in_the_outage_repeats_what_the_slave_had_not_copied(
    outage: Outage,
) -> None:
    before, after = outage.moving
    start = after.assignments[0].start
    assert (start.offset, start.broker_id) == (outage.moving_at_slave, 1)
    repeated = again(before, after)
    assert repeated == len(before.got) - outage.moving_at_slave > 0
    formula = "R · (slave synchronisation + persistConsumerOffsetInterval)"
    Bound(5, formula, most_within(before.times, outage.unknown_seconds)).holds(repeated)


def test_what_was_consumed_from_the_slave_comes_again_from_the_returned_master(
    outage: Outage,
) -> None:
    before, after = outage.leaving
    start = after.assignments[0].start
    assert (start.offset, start.broker_id) == (outage.leaving_kept, 0)
    assert outage.leaving_kept == COMMITTED_EARLY
    repeated = again(before, after)
    assert repeated == len(before.got) == outage.slave_end - outage.leaving_kept > EARLY
    Bound(6, "all that was consumed since the master's last persist", outage.slave_end).holds(
        repeated
    )


def test_the_returned_master_overwrites_what_its_slave_knows_better(outage: Outage) -> None:
    before, after = outage.leaving_at_slave
    assert before == outage.slave_end
    assert after == outage.leaving_kept < before


def test_a_consumer_that_runs_through_repeats_nothing(outage: Outage) -> None:
    assert again(outage.staying) == 0
    assert len(outage.staying.assignments) == 1
    committed, end = outage.staying_committed
    assert committed == end


@pytest.mark.sample
def test_a_slave_serves_reads_and_nothing_else(outage: Outage) -> None:
    left, _ = outage.leaving
    found = left.hook.of("pull", result="FOUND", broker_id=1)
    assert sum(row.record.count for row in found if row.queue.topic == left.topic) == len(left.got)
    assert outage.broker_ids == {1}, "ordered consumers lock at broker 0 only"
    assert outage.send_code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert not outage.is_late_delivered
    assert outage.staying.bodies.count(outage.late) == 1
