"""Small stores for tests, and an independent reading of what they wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from failback.broker.store.config import StoreConfig
from failback.broker.store.log.files import Files
from failback.broker.store.log.record import has_queue_entry
from failback.broker.store.log.results import Appended, GetStatus
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import SCHEDULE_TOPIC
from failback.protocol.message import (
    BLANK_MAGIC,
    MessageExt,
    decode_record,
    decode_records,
    pack_host,
    tags_code,
)

STORE_HOST = pack_host("192.168.1.20", 10911)
BORN_HOST = pack_host("192.168.1.10", 50000)


class Clock:
    """A clock in ms that moves when told."""

    def __init__(self, now: int = 1_700_000_000_000) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def make_store(
    root: Path, files: Files | None = None, clock: Clock | None = None, **settings: Any
) -> MessageStore:
    """Return a store, not loaded: small log and index files, queue files of 10 entries."""
    sizes = {"mapped_file_bytes": 1024, "consume_queue_file_bytes": 200}
    sizes |= {"max_hash_slot_num": 16, "max_index_num": 100}
    config = StoreConfig(root, STORE_HOST, **(sizes | settings))
    return MessageStore(config, clock_ms=clock or Clock(), files=files)


def open_store(
    root: Path, files: Files | None = None, clock: Clock | None = None, **settings: Any
) -> MessageStore:
    store = make_store(root, files, clock, **settings)
    store.load()
    return store


def put(
    store: MessageStore,
    body: bytes = b"hello",
    *,
    topic: str = "TopicTest",
    queue_id: int = 0,
    tag: str = "",
    properties: bytes | None = None,
    **fields: Any,
) -> Appended:
    """Append one message without committing it."""
    if properties is None:
        properties = f"TAGS\x01{tag}".encode() if tag else b""
    given: dict[str, Any] = {
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "born_host": BORN_HOST,
        "reconsume_times": 0,
    }
    return store.append(
        topic=topic.encode(),
        queue_id=queue_id,
        body=body,
        properties=properties,
        tags_code=tags_code(tag),
        **(given | fields),
    )


def put_all(store: MessageStore, *bodies: bytes, **fields: Any) -> list[Appended]:
    """Append messages, each in a commit of its own."""
    appended = []
    for body in bodies:
        appended.append(put(store, body, **fields))
        store.commit_pending()
    return appended


def kill(store: MessageStore) -> None:
    """Leave the store as a killed process does: nothing more is written, the lock is free."""
    store._release()


def log_messages(store: MessageStore) -> list[MessageExt]:
    """Decode the whole log with the protocol's codec."""
    messages = []
    position = max(store.min_physical_offset, 0)
    while position < store.max_physical_offset:
        view = store.read_raw(position, 1 << 30)
        at = 0
        while at < len(view):
            if int.from_bytes(view[at + 4 : at + 8], "big") == BLANK_MAGIC:
                at = len(view)
                break
            message, at = decode_record(view, at, decompress=False)
            messages.append(message)
        position += at
    return messages


def queue_messages(
    store: MessageStore, topic: str, queue_id: int, first: int | None = None
) -> list[MessageExt]:
    """Read a queue by pulling, from ``first`` on or whole."""
    messages: list[MessageExt] = []
    offset = store.min_queue_offset(topic, queue_id) if first is None else first
    while offset < store.max_queue_offset(topic, queue_id):
        result = store.get_message("group", topic, queue_id, offset, 32)
        assert result.status is GetStatus.FOUND, (result.status.name, offset)
        messages += decode_records(b"".join(result.chunks), decompress=False)
        offset = result.next_offset
    return messages


def assert_queues_agree_with_log(store: MessageStore) -> None:
    """Every record is in its queue at its offset, and no queue has anything else.

    But for entries of records that expired: those stay until the last of their file did. Entries
    of delayed messages say when they are due. Prepared and rolled back records of the old kind
    have no entry.
    """
    expected: dict[tuple[str, int], list[MessageExt]] = {}
    for message in log_messages(store):
        if has_queue_entry(message.sys_flag):
            expected.setdefault((message.topic, message.queue_id), []).append(message)
    held = {key for key in store.queues() if store.max_queue_offset(*key)}
    assert held >= set(expected)
    for topic, queue_id in held:
        messages = expected.get((topic, queue_id), [])
        low, high = store.min_queue_offset(topic, queue_id), store.max_queue_offset(topic, queue_id)
        offsets = [message.queue_offset for message in messages]
        first = offsets[0] if offsets else high
        assert offsets == list(range(first, high))
        assert low <= first
        for offset in range(low, first):
            assert store.physical_offset_of(topic, queue_id, offset) < store.min_physical_offset
        assert queue_messages(store, topic, queue_id, first) == messages
        if topic == SCHEDULE_TOPIC and messages:
            entries = store.entries(topic, queue_id, first, 800)
            due = [m.store_timestamp + store.delays[queue_id] for m in messages[: len(entries)]]
            assert [code for _, _, code in entries[: len(due)]] == due
