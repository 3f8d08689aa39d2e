"""A slave that lacks the master's last messages: modes 10, 12 and 16 of the failure modes' page."""

from __future__ import annotations

from failback.protocol.codes import ResponseCode
from tests.faults.modes.mode_evidence import PATIENT_SECONDS, Bound, again, until_in_file
from tests.faults.modes.mode_lab import ModeLab
from tests.support.common.polling import until

COPIED, TAIL = 10, 5
AHEAD, BEHIND, UNKNOWN = "ahead", "behind", "unknown"


async def test_a_tail_that_no_slave_has_waits_for_its_master(lab: ModeLab) -> None:
    """*ahead* has consumed the tail, *behind* nothing, and of *unknown* the slave never heard."""
    master = lab.node()
    slave = lab.slave_of(master)
    await lab.start(master, slave)
    topic = await lab.new_topic(master)
    copied = await lab.send(master, topic, COPIED)
    await lab.commit(master, BEHIND, topic, 1)
    await lab.ends(slave, topic, COPIED)
    await lab.topic_is_at(slave, topic)
    await lab.offset_is(slave, BEHIND, topic, 1)
    slave.kill()

    tail = await lab.send(master, topic, TAIL)  # acknowledged: ASYNC_MASTER waits for nobody
    ahead = await lab.consume(AHEAD, topic, pull_timeout_ms=500)
    unknown = await lab.consume(UNKNOWN, topic)
    for member in (ahead, unknown):
        await member.gets(copied + tail)
    for group in (AHEAD, UNKNOWN):
        await until_in_file(master, group, topic, COPIED + TAIL)
    await unknown.stop()
    # The slave is in the route again, and copies neither log nor offsets before the kill.
    slave.settings |= {"haMasterAddress": "127.0.0.1:1", "failbackTimeScale": 2}
    await lab.start(slave)
    master.kill()

    # Mode 12: what was not copied cannot be consumed; mode 10: an offset that was not, is zero.
    behind = await lab.consume(BEHIND, topic, pull_timeout_ms=500)
    unknown_again = await lab.consume(UNKNOWN, topic, pull_timeout_ms=500)
    await behind.gets(copied[1:])
    await unknown_again.gets(copied)
    assert unknown_again.start.offset == 0
    assert again(unknown, unknown_again) == COPIED
    Bound(10, "all messages that the slave has", COPIED).holds(again(unknown, unknown_again))

    # Mode 16: the one that is ahead asks again and again and keeps its offset ...
    behind_pulls = ahead.consumer.pull_service
    await until(lambda: behind_pulls.slave_behind > 3, "pulls in vain", PATIENT_SECONDS)
    vain = ahead.hook.of("pull", broker_id=1, code=ResponseCode.PULL_RETRY_IMMEDIATELY)
    assert {row.record.next_offset for row in vain if row.queue.topic == topic} == {COPIED + TAIL}
    assert again(ahead) == 0
    # ... until the slave is told to correct offsets: then it goes back to the slave's end.
    await lab.admin.update_broker_config(slave.address, {"offsetCheckInSlave": "true"})
    await ahead.begins_at(COPIED)
    assert not set(tail) & set(behind.bodies + unknown_again.bodies)

    await lab.start(master)
    for member in (behind, unknown_again):
        await member.gets(tail, "the tail, from the disk of the returned master")
    await until(lambda: again(ahead) == TAIL, "the tail again", PATIENT_SECONDS)
    Bound(16, "P · lag of the slave", TAIL).holds(again(ahead))
    assert again(behind) == 0
    Bound(12, "P · lag of the slave, if the disk is lost; 0 if it comes back", 0).holds(
        len(set(copied[1:] + tail) - set(behind.bodies))
    )
