"""A store written by one engine is opened by the other, after a clean stop and after SIGKILL."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from failback.broker.store.config import StoreConfig
from failback.broker.store.message_store import MessageStore
from failback.client.admin.admin import AdminClient
from failback.protocol.codes import TRANSACTION_COMMIT
from failback.protocol.errors import ProtocolError
from failback.protocol.message import UNIQ_KEY, MessageExt, pack_host
from failback.protocol.route import parse_offset_table
from tests.java import mixed_load as mixed
from tests.java.mixed_load import Acked, Done, MixedLoad
from tests.support.common.polling import SCALE, until, wait_until
from tests.support.java.apache import Broker, Engine, got_by, sent_by
from tests.support.java.java_lab import Lab

_Result = TypeVar("_Result")

TOPIC = "StoreTopic"
BIG, SMALL = 3000, 1500
"""3,000 messages of 6 kB fill one log file of 16 MiB; the small ones are in the second."""
SMALL_INDEX: dict[str, object] = {"maxHashSlotNum": 500, "maxIndexNum": 4000}
"""Index files of 3,999 entries: 9,000 keys fill two and begin a third."""


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


async def offsets_when_dispatched(
    broker: Broker, messages: int
) -> dict[int, tuple[int, int, int | None]]:
    """The same, once the queues have so many entries: a send is answered before its dispatch."""
    deadline = time.monotonic() + 60 * SCALE
    while True:
        offsets = await offsets_of(broker)
        if sum(end for _, end, _ in offsets.values()) == messages:
            return offsets
        assert time.monotonic() < deadline, f"not {messages} messages: {offsets}"
        await asyncio.sleep(0.05)


def persisted(offset_file: Path, topic: str = TOPIC, group: str = "half") -> dict[int, int]:
    """What the file holds of a group; nothing while it is being replaced."""
    try:
        return parse_offset_table(offset_file.read_text()).get(f"{topic}@{group}", {})
    except (OSError, ProtocolError):
        return {}


async def found_numbers(broker: Broker, numbers: Iterable[int]) -> set[int]:
    """Return which numbers of the Java producer are found by their key."""
    async with AdminClient([]) as admin:
        return {
            int(message.body)
            for number in numbers
            for message in await admin.query_message(broker.address, TOPIC, f"key-{number}")
        }


@pytest.mark.parametrize(
    ("writer", "reader", "ending"),
    [
        ("failback", "apache", "killed"),
        pytest.param("apache", "failback", "killed", marks=pytest.mark.soak),
        pytest.param("failback", "apache", "stopped", marks=pytest.mark.soak),
        pytest.param("apache", "failback", "stopped", marks=pytest.mark.soak),
    ],
)
async def test_one_engine_goes_on_with_the_others_store(
    lab: Lab, writer: Engine, reader: Engine, ending: str
) -> None:
    ns = lab.namesrv()
    # A killed broker's index is made again; this key lets 4.9 do that from the first file on.
    broker = lab.broker(writer, ns, settings=SMALL_INDEX | {"messageIndexSafe": "true"})
    broker.start()
    big = lab.program("Producer", ns, topic=TOPIC, size=6000, count=BIG, tags="Big")
    big.wait_for("done")
    half = lab.program("PushConsumer", ns, topic=TOPIC, group="half")
    wait_until(lambda: len(got_by(half)) == BIG, "the first half")
    half.end_input()
    small = lab.program("Producer", ns, topic=TOPIC, first=BIG, count=SMALL, tags="Small")
    small.wait_for("done")
    before = await offsets_when_dispatched(broker, BIG + SMALL)
    assert sum(stored or 0 for *_, stored in before.values()) == BIG
    offset_file = broker.store / "config" / "consumerOffset.json"
    stored = {queue_id: offset for queue_id, (*_, offset) in before.items()}
    wait_until(lambda: persisted(offset_file) == stored, "the offsets to be persisted")
    if ending == "stopped":
        broker.stop()
        assert not (broker.store / "abort").exists()
        written = index_files(broker)
        assert len(written) == 3
        assert index_made_again(broker) == list(written.values())
        # What is found now, is found in the other engine's files: a clean start makes no index,
        # and ours is not allowed to.
        broker.settings |= {"messageIndexEnable": "false"}
    else:
        broker.kill()
        assert (broker.store / "abort").exists()

    broker.engine = reader
    broker.start()
    assert await offsets_when_dispatched(broker, BIG + SMALL) == before
    some = random.Random(1).sample(range(BIG + SMALL), 200)
    assert await found_numbers(broker, some) == set(some)
    rest = lab.program("PushConsumer", ns, topic=TOPIC, group="half")
    wait_until(lambda: len(got_by(rest)) == SMALL, "the second half")
    everything = lab.program("PushConsumer", ns, topic=TOPIC, group="fresh")
    wait_until(lambda: len(got_by(everything)) == BIG + SMALL, "all of it", seconds=60)
    more = lab.program("Producer", ns, topic=TOPIC, first=BIG + SMALL, count=100)
    more.wait_for("done")
    wait_until(lambda: len(got_by(everything)) == BIG + SMALL + 100, "what came later")
    wait_until(lambda: len(got_by(rest)) == SMALL + 100, "what came later, in the other group")
    rest.end_input()
    everything.end_input()

    sent = [one for each in (big, small, more) for one in sent_by(each)]
    places = {(one.queue_id, one.queue_offset): one.number for one in got_by(everything)}
    assert {(one.queue_id, one.queue_offset): one.number for one in sent} == places
    assert {one.number for one in got_by(rest)} == set(range(BIG, BIG + SMALL + 100))
    if ending == "killed":
        later = range(BIG + SMALL, BIG + SMALL + 100)
        assert await found_numbers(broker, later) == set(later)


def index_files(broker: Broker) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((broker.store / "index").iterdir())}


def index_made_again(broker: Broker) -> list[bytes]:
    """Return the index files that our code makes of the broker's log, wherever it came from."""
    (broker.store / "index").rename(broker.folder / "index")
    try:
        config = StoreConfig(broker.store, pack_host(broker.ip, broker.port))
        config.mapped_file_bytes = 16 << 20
        config.max_hash_slot_num, config.max_index_num = 500, 4000
        store = MessageStore(config)
        store.load()
        store.close()
        return list(index_files(broker).values())
    finally:
        for path in (broker.store / "index").iterdir():
            path.unlink()
        (broker.store / "index").rmdir()
        (broker.folder / "index").rename(broker.store / "index")


# --- every kind of record, killed under load -------------------------------------------------

LOG_FILE = 4 << 20
LEAST_FILES = 5
LANES = 8
EVERY_KIND: dict[str, object] = {
    "mappedFileSizeCommitLog": LOG_FILE,
    "messageDelayLevel": mixed.LEVELS,
    "flushConsumerOffsetInterval": 1000,
    "messageIndexSafe": "true",
    **SMALL_INDEX,
}
PROGRESS = {0: 3, 1: 0, 2: 7, 3: 1}
"""Consumer offsets by queue."""


@pytest.mark.few(1, 1)
@pytest.mark.parametrize(("writer", "reader"), [("failback", "apache"), ("apache", "failback")])
async def test_every_kind_of_record_survives_a_kill_and_the_change_of_engine(
    lab: Lab, writer: Engine, reader: Engine
) -> None:
    seed = int(os.environ.get("FAILBACK_TEST_SEED", "0")) or random.SystemRandom().getrandbits(31)
    print(f"seed {seed}: FAILBACK_TEST_SEED={seed} draws the same")
    rng = random.Random(seed)
    ns = lab.namesrv()
    broker = lab.broker(writer, ns, settings=EVERY_KIND)
    broker.start()
    async with mixed.mixed_load(broker.address, seed) as load:
        await load.prepare()
        await load.run(LANES, until_bytes=2 << 20)
        for queue_id, offset in PROGRESS.items():
            await load.admin.update_offset(
                broker.address, mixed.GROUP, mixed.TOPIC, queue_id, offset
            )
        file = broker.store / "config" / "consumerOffset.json"
        await until(
            lambda: persisted(file, mixed.TOPIC, mixed.GROUP) == PROGRESS, "the offsets", 60
        )
        lanes = load.start(LANES)
        enough = LEAST_FILES * LOG_FILE + rng.randrange(LOG_FILE)
        await until(lambda: load.done.bytes > enough, "five files of the log", 120)
        await asyncio.to_thread(broker.kill)
        await asyncio.gather(*lanes)
    assert (broker.store / "abort").exists()
    assert len(list((broker.store / "commitlog").iterdir())) > LEAST_FILES

    broker.engine = reader
    broker.start()
    done = load.done
    async with mixed.mixed_load(broker.address, seed) as again:
        await wait_until_it_answers(again)
        await check_every_message_is_there(again, done)
        most = 2 if reader == "apache" else 1
        await check_keys(again, done.messages, most)
        for queue_id, offset in PROGRESS.items():
            place = (broker.address, mixed.GROUP, mixed.TOPIC, queue_id)
            assert await again.admin.query_offset(*place) == offset
        await check_what_waited_comes(again, done)
        await again.run(LANES, until_bytes=1 << 20)
        await check_keys(again, again.done.messages, most)


async def wait_until_it_answers(load: MixedLoad) -> None:
    """Wait until the broker serves the topic's first queue to its end."""
    deadline = asyncio.get_running_loop().time() + 60 * SCALE
    while True:
        try:
            await load.admin.max_offset(load.address, mixed.TOPIC, 0)
            return
        except Exception:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.2)


async def check_every_message_is_there(load: MixedLoad, done: Done) -> None:
    """All of them at their place in the log, and those of the topic in their queues too."""
    stored = await all_of(
        [load.admin.view_message(load.address, each.physical_offset) for each in done.messages]
    )
    for acked, message in zip(done.messages, stored, strict=True):
        # The answer to what waits elsewhere names the queue it was sent to.
        assert message.topic == acked.topic, acked.kind
        assert message.queue_offset == acked.queue_offset, acked.kind
        assert message.body == acked.body
        assert unique_of(message) == acked.unique
    queues = {
        (message.queue_id, message.queue_offset): unique_of(message)
        for message in await load.read_topic(mixed.TOPIC, mixed.QUEUES)
    }
    direct = done.of("plain", "bare", "batch")
    assert len(direct) > 500
    assert {
        (acked.queue_id, acked.queue_offset): acked.unique for acked in direct
    }.items() <= queues.items()


async def check_keys(load: MixedLoad, messages: Sequence[Acked], most: int) -> None:
    """Each is found by its id, and by its own key: once, or ``most`` times."""
    by_id = await all_of(
        [
            load.admin.query_message(load.address, acked.topic, acked.unique, unique=True)
            for acked in messages
        ]
    )
    with_keys = [acked for acked in messages if acked.keys]
    by_key = await all_of(
        [load.admin.query_message(load.address, acked.topic, acked.keys[0]) for acked in with_keys]
    )
    for acked, found in [*zip(messages, by_id, strict=True), *zip(with_keys, by_key, strict=True)]:
        places = [message.physical_offset for message in found]
        # 4.9 enters the last record of a full file again when it makes the index again.
        assert 1 <= places.count(acked.physical_offset) <= most, (acked.kind, acked.unique, places)


async def check_what_waited_comes(load: MixedLoad, done: Done) -> None:
    """Delayed messages fall due, failed ones are re-consumed, open transactions can be ended."""
    for half in done.open:
        await load.end_transaction(half, TRANSACTION_COMMIT)
    due = {acked.unique for acked in done.of("soon")}
    committed = {*done.committed, *(half.unique for half in done.open)}
    never = {acked.unique for acked in done.of("never")}
    back, dead = set(done.sent_back), set(done.dead)
    assert min(map(len, (due, committed, never, back, dead, done.rolled_back, done.open))) > 5
    deadline = asyncio.get_running_loop().time() + 90 * SCALE
    while True:
        topic = uniques(await load.read_topic(mixed.TOPIC, mixed.QUEUES))
        again = uniques(await load.read_topic(mixed.RETRY_TOPIC))
        if due | committed <= topic and back <= again:
            break
        missing = len(due - topic), len(committed - topic), len(back - again)
        assert asyncio.get_running_loop().time() < deadline, missing
        await asyncio.sleep(0.5)
    assert not topic & (never | set(done.rolled_back))
    assert dead <= uniques(await load.read_topic(mixed.DLQ_TOPIC))
    assert not dead & again


async def all_of(calls: Sequence[Awaitable[_Result]]) -> list[_Result]:
    """Await them some at a time, so that no broker has too much to do at once."""
    results: list[_Result] = []
    for start in range(0, len(calls), 32):
        results += await asyncio.gather(*calls[start : start + 32])
    return results


def unique_of(message: MessageExt) -> str:
    return message.properties[UNIQ_KEY]


def uniques(messages: Iterable[MessageExt]) -> set[str]:
    return {unique_of(message) for message in messages}
