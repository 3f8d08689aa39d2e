"""A store written by one engine is opened by the other, after a clean stop and after SIGKILL."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.broker.offsets.consumer_offset_manager import decode_offset_table
from failback.client.admin import AdminClient
from failback.protocol.errors import ProtocolError
from tests.support.apache import Broker, Engine, got_by, sent_by
from tests.support.java_lab import Lab
from tests.support.polling import wait_until

pytestmark = pytest.mark.java

TOPIC = "StoreTopic"
BIG, SMALL = 3000, 1500
"""3,000 messages of 6 kB fill one log file of 16 MiB; the small ones are in the second."""


async def offsets_of(broker: Broker) -> dict[int, tuple[int, int, int | None]]:
    """Return min offset, max offset and the offset of group ``half`` per queue."""
    async with AdminClient([]) as admin:
        return {
            queue_id: (
                await admin.min_offset(broker.address, TOPIC, queue_id),
                await admin.max_offset(broker.address, TOPIC, queue_id),
                await admin.query_offset(broker.address, "half", TOPIC, queue_id),
            )
            for queue_id in range(4)
        }


def persisted(offset_file: Path) -> dict[int, int]:
    """What the file holds of group ``half``; nothing while it is being replaced."""
    try:
        return decode_offset_table(offset_file.read_text()).get(f"{TOPIC}@half", {})
    except (OSError, ProtocolError):
        return {}


@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.parametrize(("writer", "reader"), [("failback", "apache"), ("apache", "failback")])
async def test_one_engine_goes_on_with_the_others_store(
    lab: Lab, writer: Engine, reader: Engine, ending: str
) -> None:
    ns = lab.namesrv()
    broker = lab.broker(writer, ns)
    broker.start()
    big = lab.program("Producer", ns, topic=TOPIC, size=6000, count=BIG, tags="Big")
    big.wait_for("done")
    half = lab.program("PushConsumer", ns, topic=TOPIC, group="half")
    wait_until(lambda: len(got_by(half)) == BIG, "the first half")
    half.end_input()
    small = lab.program("Producer", ns, topic=TOPIC, first=BIG, count=SMALL, tags="Small")
    small.wait_for("done")
    before = await offsets_of(broker)
    assert sum(end for _, end, _ in before.values()) == BIG + SMALL
    assert sum(stored or 0 for *_, stored in before.values()) == BIG
    offset_file = broker.store / "config" / "consumerOffset.json"
    stored = {queue_id: offset for queue_id, (*_, offset) in before.items()}
    wait_until(lambda: persisted(offset_file) == stored, "the offsets to be persisted")
    if ending == "stopped":
        broker.stop()
        assert not (broker.store / "abort").exists()
    else:
        broker.kill()
        assert (broker.store / "abort").exists()

    broker.engine = reader
    broker.start()
    assert await offsets_of(broker) == before
    rest = lab.program("PushConsumer", ns, topic=TOPIC, group="half")
    wait_until(lambda: len(got_by(rest)) == SMALL, "the second half")
    everything = lab.program("PushConsumer", ns, topic=TOPIC, group="fresh")
    wait_until(lambda: len(got_by(everything)) == BIG + SMALL, "all of it", seconds=60)
    more = lab.program("Producer", ns, topic=TOPIC, first=BIG + SMALL, count=100)
    more.wait_for("done")
    wait_until(lambda: len(got_by(everything)) == BIG + SMALL + 100, "what came later")
    rest.end_input()
    everything.end_input()

    sent = [one for each in (big, small, more) for one in sent_by(each)]
    places = {(one.queue_id, one.queue_offset): one.number for one in got_by(everything)}
    assert {(one.queue_id, one.queue_offset): one.number for one in sent} == places
    assert {one.number for one in got_by(rest)} == set(range(BIG, BIG + SMALL + 100))
