"""Cleaning on request: expired queues (306), topics that are gone (316), old files (329)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from failback.broker.store.upkeep.expiry import ORDERED_ROUNDS
from failback.protocol.codes import RequestCode
from failback.protocol.route import TopicConfig
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab

HOUR = 3600
ALL_HOURS = ";".join(map(str, range(24)))


def queue_folders(root: Path) -> list[str]:
    folder = root / "store" / "consumequeue"
    return sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))


def log_files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "store" / "commitlog").iterdir())


def age(root: Path, hours: float) -> None:
    """Let all log files be last written ``hours`` ago."""
    then = time.time() - hours * HOUR
    for path in (root / "store" / "commitlog").iterdir():
        os.utime(path, (then, then))


async def fill(lab: BrokerLab, client: LabClient) -> None:
    """Send to queue 0 at first and to queue 1 in the end, over several log files."""
    lab.controller.topics.update(TopicConfig("TopicTest", 2, 2))
    for number in range(60):
        await client.send(bytes(100), queue_id=0 if number < 20 else 1)


async def test_a_queue_without_readable_messages_goes_and_begins_again(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": 4096, "fileReservedTime": 0, "deleteWhen": ALL_HOURS}
    async with broker_lab(tmp_path, **settings) as lab:
        client, store = lab.connect(), lab.controller.store
        await fill(lab, client)
        clean = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE
        assert (await client.ask(clean)).code == 0
        assert queue_folders(tmp_path) == ["TopicTest/0", "TopicTest/1"], "nothing has expired"
        await store.expire()
        assert store.max_queue_offset("TopicTest", 0) == 20
        assert (await client.ask(clean)).code == 0
        assert not store.has_queue("TopicTest", 0)
        assert store.max_queue_offset("TopicTest", 1) == 40
        store.flush_queues()
        again = await client.send(queue_id=0)
        assert (again.ext_fields or {})["queueOffset"] == "0"
        end = store.max_physical_offset
        offsets = [store.max_queue_offset("TopicTest", queue_id) for queue_id in (0, 1)]
    async with broker_lab(tmp_path, **settings) as lab:
        store = lab.controller.store
        assert store.max_physical_offset == end
        assert [store.max_queue_offset("TopicTest", it) for it in (0, 1)] == offsets == [1, 40]


async def test_queues_of_topics_that_are_gone_go(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client, store = lab.connect(), lab.controller.store
        for topic in ("Kept", "Gone"):
            await client.send(topic=topic)
        await client.send(topic="Kept", properties="DELAY\x013")
        del lab.controller.topics.table["Gone"]
        assert store.has_queue("Gone", 0)
        assert (await client.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        kept = {topic for topic, _ in store.queues()}
    assert kept == {"Kept", "SCHEDULE_TOPIC_XXXX"}


async def test_old_files_go_at_any_hour_after_an_order(tmp_path: Path) -> None:
    # No hour of the day is one at which files go by themselves.
    settings = {
        "mappedFileSizeCommitLog": 4096,
        "fileReservedTime": 2,
        "diskMaxUsedSpaceRatio": 100,
        "cleanFileForciblyEnable": "false",
    }
    async with broker_lab(tmp_path, **settings) as lab:
        client, store = lab.connect(), lab.controller.store
        store.config.delete_when = ""
        await fill(lab, client)
        before = log_files(tmp_path)
        age(tmp_path, 3)
        await store.expire()
        assert log_files(tmp_path) == before
        age(tmp_path, 1)
        assert (await client.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == 0
        await store.expire()
        assert log_files(tmp_path) == before, "too young"
        age(tmp_path, 3)
        await store.expire()
        assert log_files(tmp_path) == before[-1:]
        for _ in range(ORDERED_ROUNDS):
            await store.expire()
        await fill(lab, client)
        age(tmp_path, 3)
        later = log_files(tmp_path)
        await store.expire()
        assert log_files(tmp_path) == later, "the order is over"
        assert len(later) > 1
