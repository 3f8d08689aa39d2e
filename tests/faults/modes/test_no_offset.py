"""A group whose offset is missing or beyond the queue: modes 10 and 15 of that page."""

from __future__ import annotations

from pathlib import Path

from failback.broker.metadata.json_config import backup_of
from tests.faults.modes.mode_evidence import (
    PATIENT_SECONDS,
    Bound,
    DiskCopy,
    again,
    offset_file,
    until_in_file,
)
from tests.faults.modes.mode_lab import ModeLab
from tests.support.common.polling import until

GROUP = "billing"


async def test_without_an_offset_a_group_begins_at_zero_or_skips_everything(lab: ModeLab) -> None:
    master = lab.node()
    await lab.start(master)
    topic = await lab.new_topic(master)
    bodies = await lab.send(master, topic, 20)
    first = await lab.consume(GROUP, topic)
    await first.gets(bodies)
    await until_in_file(master, GROUP, topic, 20)
    await first.stop()
    master.kill()
    offset_file(master).unlink()
    backup_of(offset_file(master)).unlink(missing_ok=True)
    await lab.start(master)

    # Consumers ask for the last offset, and the broker says zero: the queue is young.
    second = await lab.consume(GROUP, topic)
    await second.gets(bodies)
    assert (second.start.offset, second.start.branch) == (0, "STORED")
    assert again(first, second) == 20
    Bound(10, "all messages that the queue retains", 20).holds(again(first, second))

    # Once the first message no longer counts as in memory, it says that there is none.
    await lab.admin.update_broker_config(master.address, {"accessMessageInMemoryMaxRatio": "0"})
    skipping = await lab.consume("new", topic)
    await until(skipping.held, "its queue", PATIENT_SECONDS)
    fresh = await lab.send(master, topic, 1)
    await skipping.gets(fresh)
    assert (skipping.assignments[0].start.offset, skipping.assignments[0].start.branch) == (
        20,
        "LAST_MAX",
    )
    assert skipping.bodies == fresh


async def test_an_offset_beyond_a_lost_tail_is_corrected_or_hides_new_messages(
    lab: ModeLab, tmp_path: Path
) -> None:
    kept, lost, new = 10, 5, 8
    far, near = "far", "near"
    master = lab.node(settings={"mappedFileSizeCommitLog": 1 << 20})
    await lab.start(master)
    topic = await lab.new_topic(master)
    bodies = await lab.send(master, topic, kept)
    disk = DiskCopy(master, tmp_path / "disk")
    bodies += await lab.send(master, topic, lost)
    first = await lab.consume(near, topic)
    await first.gets(bodies)
    await lab.commit(master, far, topic, 30)
    await until_in_file(master, near, topic, kept + lost)
    await until_in_file(master, far, topic, 30)
    await first.stop()
    master.kill()
    disk.restore()  # the offsets are younger than the messages now
    await lab.start(master)
    assert await lab.admin.max_offset(master.address, topic, 0) == kept

    # The queue grows beyond the offset before anybody pulls: what lies below it is never seen.
    fresh = await lab.send(master, topic, new)
    second = await lab.consume(near, topic)
    await second.gets(fresh[lost:])
    assert second.start.offset == kept + lost
    assert second.bodies == fresh[lost:]

    # An offset that is still too large is set to the queue's end, and nothing is re-consumed.
    third = await lab.consume(far, topic)
    await third.begins_at(kept + new)
    assert third.assignments[0].start.offset == 30
    last = await lab.send(master, topic, 1)
    await third.gets(last)
    assert third.bodies == last
    Bound(15, "0 since 4.9.4", 0).holds(again(third))
