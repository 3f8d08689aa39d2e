"""Batches through the kernels: the same bytes, entries, keys and refusals as in Python.

Each case goes to two stores, one of which takes the batch apart in Python.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failback.broker.native import kernels
from failback.broker.remoting.answers import SendAnswers
from failback.broker.store.log.results import AppendedBatch, MessageIllegal
from failback.broker.store.message_store import MessageStore
from failback.protocol.errors import FailbackError
from failback.protocol.message import BatchElement, decode_batch, encode_batch, pack_host
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import (
    BORN_HOST,
    STORE_HOST,
    Clock,
    assert_queues_agree_with_log,
    log_messages,
    open_store,
    put,
)

pytestmark = [pytest.mark.skipif(kernels is None, reason="no compiled kernels")]

ROOT = Path("/s")
V6 = pack_host("fe80::1", 50000)
LIMIT = 3000
SHARED: dict[str, Any] = {
    "topic": b"TopicTest",
    "queue_id": 3,
    "sys_flag": 0,
    "born_timestamp": 1_700_000_000_123,
    "born_host": BORN_HOST,
    "reconsume_times": 0,
    "batch_properties": b"CLUSTER\x01c\x02WAIT\x01true",
}
QUEUE_STATE = (
    "topic",
    "queue_id",
    "pending",
    "pending_codes",
    "next_offset",
    "max_physical_offset",
)
Appended = AppendedBatch | tuple[type[Exception], str]


def in_python(store: MessageStore, body: bytes, **shared: Any) -> AppendedBatch:
    elements = decode_batch(body)
    if not elements:
        raise MessageIllegal("the batch holds no message")
    return store.append_batch(elements=elements, **shared)


def outcome(append: Callable[..., AppendedBatch], *args: Any, **shared: Any) -> Appended:
    try:
        return append(*args, **shared)
    except FailbackError as error:
        return type(error), str(error)


def pending(store: MessageStore) -> list[object]:
    """Return everything that appending has changed, as far as it has to be equal."""
    log, appender = store._log, store._appender
    runs = [(offset, b"".join(pieces)) for offset, pieces in log._full]
    queues = [
        {name: getattr(queue, name) for name in QUEUE_STATE} | {"new": queue in appender.touched}
        for queue in store._queues
    ]
    places = [log.pending_tail, log.room_end, log._pieces_offset, appender.store_timestamp]
    return [*places, runs, b"".join(log.pieces), appender.keyed, queues]


class Pair:
    """A store that uses the kernels beside one that does not."""

    def __init__(self, **settings: Any) -> None:
        sizes = {"mapped_file_bytes": 1 << 16, "max_message_bytes": LIMIT}
        self.files = CrashingFiles(), CrashingFiles()
        self.compiled, self.pure = (
            open_store(ROOT, files, Clock(1_700_000_000_456), **(sizes | settings))
            for files in self.files
        )
        for store in self.stores:
            put(store, b"before", queue_id=SHARED["queue_id"])

    @property
    def stores(self) -> tuple[MessageStore, MessageStore]:
        return self.compiled, self.pure

    def send(self, body: bytes | memoryview, **shared: Any) -> Appended:
        """Give both the same batch; return what became of it."""
        fields = SHARED | shared
        got = outcome(self.compiled.append_encoded_batch, body=body, **fields)
        assert got == outcome(in_python, self.pure, body, **fields)
        assert pending(self.compiled) == pending(self.pure)
        return got

    def finish(self) -> None:
        """Write everything; index and queues included, the disks are equal."""
        for store in self.stores:
            store.commit_pending()
            assert_queues_agree_with_log(store)
            store.close()
        compiled, pure = (
            {path: data for path, data in files.content.items() if path.name != "checkpoint"}
            for files in self.files
        )
        assert compiled == pure


def is_plain(body: bytes, batch_properties: bytes = SHARED["batch_properties"]) -> bool:
    assert kernels is not None
    return kernels.measure_batch(body, batch_properties, LIMIT) is not None


def raw(flag: int, body: bytes, properties: bytes, *, size: int = 0, body_bytes: int = 0) -> bytes:
    """Return an element whose lengths are off by ``size`` and ``body_bytes``."""
    true_size = 22 + len(body) + len(properties)
    head = struct.pack(">iIIii", true_size + size, 0, 0, flag, len(body) + body_bytes)
    return head + body + struct.pack(">H", len(properties)) + properties


GOOD = encode_batch(
    [
        BatchElement(-3, b"one", b"UNIQ_KEY\x01ABCDEF0123456789\x02TAGS\x01TagA\x02"),
        BatchElement(0x7FFFFFFF, bytes(range(256)) * 4, b"KEYS\x01k1 k2"),
        BatchElement(0, b"", b""),
    ]
)


# --- what is stored -------------------------------------------------------------------------


def test_a_plain_batch_is_one_piece_of_the_run() -> None:
    pair = Pair()
    before = len(pair.compiled._log.pieces)
    assert isinstance(pair.send(GOOD), AppendedBatch)
    assert len(pair.compiled._log.pieces) == before + 1
    pair.finish()


@pytest.mark.parametrize("born", [BORN_HOST, V6])
@pytest.mark.parametrize("own", [STORE_HOST, V6])
@pytest.mark.parametrize("sys_flag", [0, 0x30, 3, 0x200])
def test_hosts_and_flags(born: bytes, own: bytes, sys_flag: int) -> None:
    pair = Pair()
    for store in pair.stores:
        store.config.store_host = own
    got = pair.send(GOOD, born_host=born, sys_flag=sys_flag, reconsume_times=7)
    assert isinstance(got, AppendedBatch)
    pair.finish()


OWN_PROPERTIES = [
    b"",
    b"\x02",
    b"TAGS\x01a",
    b"TAGS\x01a\x02",
    b"TAGS\x01a\x02TAGS\x01b",
    b"TAGS\x01a\x02TAGS\x01",
    b"TAGS\x01\x02KEYS\x01k",
    b"TAGS\x01",
    b"TAGS",
    b"XTAGS\x01a",
    b"KEYS\x01TAGS\x01a",
    b"TAGS\x01a\x01b\x02\x02",
    b"TAGS\x01a || b",
    b"TAGS\x01\xc3\xa4\xf0\x9f\x98\x80",  # U+00E4 and a pair of surrogates
    b"TAGS\x01cut \xf0\x9f",  # no UTF-8
    b"TAGS\x01" + b"long " * 40,
    b"\x02\x02TAGS\x01a",
]


@pytest.mark.parametrize("batch", [*OWN_PROPERTIES, b"CLUSTER\x01c", b"CLUSTER\x01c\x02"], ids=repr)
def test_tags_and_joined_properties(batch: bytes) -> None:
    pair = Pair()
    for own in OWN_PROPERTIES:
        body = encode_batch([BatchElement(0, b"x", own), BatchElement(0, b"y", b"TAGS\x01z")])
        assert is_plain(body, batch)
        assert isinstance(pair.send(body, batch_properties=batch), AppendedBatch)
    pair.finish()


def test_batches_follow_each_other_over_the_ends_of_files() -> None:
    pair = Pair(mapped_file_bytes=4096)
    for number in range(40):
        assert isinstance(pair.send(GOOD, queue_id=number % 3), AppendedBatch)
        if number % 5 == 4:
            for store in pair.stores:
                store.commit_pending()
    pair.finish()


def test_a_batch_may_lie_at_any_address() -> None:
    pair = Pair()
    for shift in range(8):
        view = memoryview(bytes(shift) + GOOD)[shift:]
        assert isinstance(pair.send(view), AppendedBatch)
    pair.finish()


def test_entries_of_delayed_messages_are_made_in_python() -> None:
    pair = Pair()
    body = encode_batch([BatchElement(0, b"late", b"DELAY\x013\x02TAGS\x01a")])
    got = pair.send(body, topic=b"SCHEDULE_TOPIC_XXXX", queue_id=2, batch_properties=b"")
    assert isinstance(got, AppendedBatch)
    pair.finish()


# --- what is refused ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        GOOD[:-1],
        GOOD[:19],
        GOOD + b"\0",
        GOOD + bytes(22),
        raw(0, b"a", b"p", size=1),
        raw(0, b"a", b"p", size=-1),
        raw(0, b"a", b"p", size=-24),
        raw(0, b"a", b"p", size=-(1 << 31)),
        raw(0, b"a", b"p", size=(1 << 31) - 25),
        raw(0, b"a", b"p", body_bytes=1),
        raw(0, b"a", b"p", body_bytes=-1),
        raw(0, b"a", b"p", body_bytes=-2),
        raw(0, b"a", b"p", body_bytes=(1 << 31) - 2),
        raw(0, b"a", b"p", size=2, body_bytes=2) + b"\0\0",
        raw(0, b"", b"", size=-(1 << 31), body_bytes=-(1 << 31)),
        raw(0, b"a", b"", size=-2)[:-2],
        b"\xff" * 100,
        b"\x7f" * 100,
    ],
    ids=lambda body: body[-30:].hex() or "empty",
)
def test_a_body_that_is_no_batch_is_refused_in_the_same_words(bad: bytes) -> None:
    pair = Pair()
    assert not is_plain(bad)
    assert isinstance(pair.send(bad), tuple)
    if bad:
        assert isinstance(pair.send(GOOD + bad), tuple)
    assert isinstance(pair.send(GOOD), AppendedBatch)
    pair.finish()


@pytest.mark.parametrize(
    "unlike",
    [
        {"sys_flag": 4},
        {"sys_flag": 8},
        {"sys_flag": 12},
        {"sys_flag": 1 << 31},
        {"sys_flag": 1 << 70},
        {"queue_id": -1},
        {"queue_id": 1 << 31},
        {"reconsume_times": 1 << 31},
        {"born_timestamp": 1 << 63},
        {"born_timestamp": -(1 << 63) - 1},
        {"born_host": b"short"},
        {"topic": b""},
        {"topic": b"a/b"},
        {"topic": b"t" * 128},
    ],
    ids=str,
)
def test_what_all_messages_share_is_refused_in_the_same_words(unlike: dict[str, Any]) -> None:
    pair = Pair()
    got = pair.send(GOOD, **unlike)
    assert not isinstance(got, AppendedBatch)
    assert got[0] is MessageIllegal
    assert isinstance(pair.send(GOOD), AppendedBatch)
    pair.finish()


@pytest.mark.parametrize(
    ("sizes", "own", "batch", "fits"),
    [
        ([LIMIT], 0, 0, True),
        ([LIMIT + 1], 0, 0, False),
        ([LIMIT - 5, 5], 9, 9, True),
        ([LIMIT - 5, 6], 9, 9, False),
        ([1], 32767, 0, True),
        ([1], 32768, 0, False),
        ([1], 65535, 0, False),
        ([1], 16383, 16383, True),  # and a separator
        ([1], 16383, 16384, False),
        ([1], 0, 32767, True),
        ([1], 0, 32768, False),
        ([1], 0, 70_000, False),
        ([1, 1, 1], 30_000, 0, False),  # together above a file
        ([0] * 700, 0, 0, False),
        ([0] * 600, 0, 0, True),
    ],
)
def test_limits(sizes: list[int], own: int, batch: int, fits: bool) -> None:
    pair = Pair()
    body = b"".join(raw(0, bytes(size), b"p" * own) for size in sizes)
    got = pair.send(body, batch_properties=b"q" * batch)
    assert isinstance(got, AppendedBatch) is fits
    if fits:
        assert is_plain(body, b"q" * batch)
    else:
        assert got[0] is MessageIllegal
    pair.finish()


def test_a_store_that_takes_nothing_looks_at_the_lengths_first() -> None:
    pair = Pair()
    for store in pair.stores:
        store.config.broker_role = "SLAVE"
    results = [pair.send(GOOD), pair.send(GOOD[:-1]), pair.send(b"")]
    names = [result[0].__name__ for result in results if not isinstance(result, AppendedBatch)]
    assert names == ["ServiceNotAvailable", "ProtocolError", "MessageIllegal"]


def test_a_batch_that_fails_half_way_leaves_nothing_behind() -> None:
    body = bytearray(GOOD)

    class Spoiler(Clock):
        """Changes the body between the two passes, which ask for the time in between."""

        def __call__(self) -> int:
            body[-22:-18] = b"\xff" * 4  # the size of the last element
            return self.now

    store = open_store(ROOT, CrashingFiles(), Spoiler(), mapped_file_bytes=1 << 16)
    fields = SHARED | {"queue_id": 0}
    with pytest.raises(ValueError, match="measured"):
        store.append_encoded_batch(body=memoryview(body), **fields)
    assert pending(store)[5:7] == [b"", []]
    put(store, b"after")
    store.commit_pending()
    assert [message.body for message in log_messages(store)] == [b"after"]
    assert_queues_agree_with_log(store)


def laid_out(**unlike: object) -> object:
    """Call the kernel as the store does, but for ``unlike``."""
    assert kernels is not None
    measured = kernels.measure_batch(GOOD, b"b", LIMIT)
    assert measured is not None
    count, payload = measured
    given: dict[str, Any] = {
        "data": GOOD,
        "batch": b"b",
        "head": bytes(88),
        "topic_piece": b"\x01t",
        "timestamp": 5,
        "count": count,
        "total": None,
        "queue_offset": 0,
        "physical_offset": 0,
    }
    given |= unlike
    if given["total"] is None:
        given["total"] = payload + count * (bytes_of(given["head"], given["topic_piece"]) + 2)
    return kernels.lay_out_batch(*given.values())


def bytes_of(*parts: object) -> int:
    return sum(len(part) for part in parts if isinstance(part, bytes))


@pytest.mark.parametrize(
    "wrong",
    [
        {"data": GOOD[:-1]},
        {"data": GOOD + GOOD},
        {"data": b""},
        {"batch": b"bb"},
        {"batch": b"b" * 40_000},
        {"head": bytes(87)},
        {"head": b""},
        {"head": bytes(89)},
        {"head": bytes(100), "total": 1500},
        {"topic_piece": bytes(129)},
        {"count": 2},
        {"count": 4},
        {"count": -1},
        {"count": 1 << 60},
        {"total": 0},
        {"total": -1},
        {"total": -(1 << 62), "physical_offset": 1 << 62},
        {"total": 1000},
        {"total": 2000},
        {"queue_offset": -1},
        {"queue_offset": (1 << 63) - 2},
        {"physical_offset": -1},
        {"physical_offset": (1 << 63) - 100},
    ],
    ids=lambda wrong: str(wrong)[:60],
)
def test_the_kernel_does_not_trust_what_was_measured(wrong: dict[str, object]) -> None:
    assert laid_out()
    with pytest.raises(ValueError, match="measured"):
        laid_out(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"data": "text"}, {"topic_piece": None}, {"timestamp": 1.5}, {"count": None}, {"head": 1}],
    ids=str,
)
def test_the_kernel_refuses_other_types(wrong: dict[str, object]) -> None:
    with pytest.raises(TypeError):
        laid_out(**wrong)


# --- many of them -----------------------------------------------------------------------------


def random_properties(dice: random.Random) -> bytes:
    names = (b"TAGS", b"KEYS", b"UNIQ_KEY", b"WAIT", b"X", b"", b"TAGS\x01")
    values = (b"", b"a", b"TagB", b"0123456789ABCDEF", "ü".encode(), b"\xff\x01", bytes(300))
    pieces = [dice.choice(names) + b"\x01" + dice.choice(values) for _ in range(dice.randrange(5))]
    return b"\x02".join(pieces) + dice.choice((b"", b"\x02"))


def random_batch(dice: random.Random) -> bytes:
    return encode_batch(
        [
            BatchElement(
                dice.randint(-(1 << 31), (1 << 31) - 1),
                dice.randbytes(dice.choice((0, 1, 15, 63, 64, 65, 200, 400))),
                random_properties(dice),
            )
            for _ in range(dice.randint(1, 9))
        ]
    )


def random_damage(dice: random.Random, body: bytes) -> bytes:
    damaged = bytearray(body)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(len(damaged))
        match dice.randrange(4):
            case 0:
                damaged[at] = dice.randrange(256)
            case 1:
                damaged[at] ^= 1 << dice.randrange(8)
            case 2:
                del damaged[at : at + dice.randint(1, 30)]
            case _:
                damaged[at : at + 4] = struct.pack(">i", dice.choice((-1, 0, 1, 22, 1 << 30)))
        if not damaged:
            break
    return bytes(damaged)


@pytest.mark.parametrize("seed", range(8))
def test_random_batches_are_stored_alike(seed: int) -> None:
    dice = random.Random(seed)
    pair = Pair(mapped_file_bytes=1 << 14)
    for _ in range(60):
        got = pair.send(
            random_batch(dice),
            topic=dice.choice((b"TopicTest", b"T", b"t" * 127)),
            queue_id=dice.randrange(3),
            born_host=dice.choice((BORN_HOST, V6)),
            sys_flag=dice.choice((0, 1, 0x30)),
            born_timestamp=dice.randint(-(1 << 63), (1 << 63) - 1),
            batch_properties=random_properties(dice),
        )
        assert isinstance(got, AppendedBatch)
        if dice.random() < 0.2:
            for store in pair.stores:
                store.commit_pending()
    pair.finish()


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(8))
def test_damaged_batches_are_judged_alike(seed: int) -> None:
    dice = random.Random(seed)
    pair = Pair()
    stored = 0
    for number in range(500):
        stored += isinstance(pair.send(random_damage(dice, random_batch(dice))), AppendedBatch)
        if number % 20 == 19:
            for store in pair.stores:
                store.commit_pending()
    assert 0 < stored < 500
    pair.finish()


# --- ids --------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", [STORE_HOST, V6])
@pytest.mark.parametrize("places", [[], [0], [1, 0xABCDEF, (1 << 63) - 1], list(range(0, 9999, 7))])
def test_ids_of_a_batch(host: bytes, places: list[int]) -> None:
    answers = SendAnswers(host, "DefaultRegion", False)
    assert answers.message_ids(places) == b",".join(map(answers.message_id, places))


@pytest.mark.parametrize(
    ("prefix", "places", "error"),
    [
        (b"A", [-1], ValueError),
        (b"A", [1 << 63], OverflowError),
        (b"A", [0, "0"], TypeError),
        (b"A", (0,), TypeError),
        (b"A" * 65, [0], ValueError),
        ("A", [0], TypeError),
    ],
)
def test_places_that_are_none(prefix: bytes, places: Any, error: type[Exception]) -> None:
    assert kernels is not None
    with pytest.raises(error):
        kernels.message_ids(prefix, places)
