"""Sends by the kernel and by Python, its twin: the same bytes on the wire and on the disk.

Two brokers get the same reads, usual ones and such that a client would never send. One of them has
no kernel. After every read their answers, records, queue entries, keys and counters are compared.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from failback.broker.native import kernels
from failback.broker.remoting.answers import SendAnswers
from failback.protocol.message import MAX_PROPERTIES_BYTES, BatchElement, encode_batch
from tests.support.brokers.broker_lab import BrokerLab, LabClient, broker_lab, settled

pytestmark = [
    pytest.mark.skipif(kernels is None, reason="no compiled kernels here: tools/build_native.py"),
]

NOW_MS = 1_700_000_123_456
SETTINGS = {
    "mappedFileSizeCommitLog": 65_536,
    "maxMessageSize": 1500,
    "autoCreateTopicEnable": "true",
}


class Twins:
    """Two brokers under the same load; only the first one uses the kernel."""

    def __init__(self, labs: tuple[BrokerLab, BrokerLab]) -> None:
        self.labs = labs
        self.clients: tuple[LabClient, LabClient] = (labs[0].connect(), labs[1].connect())
        self.taken = 0
        self._random_state = random.Random(1).getstate()
        self._count_taken()
        labs[1].controller.server._runs.clear()
        for lab in labs:
            lab.controller.store.appender._clock_ms = lambda: NOW_MS

    def _count_taken(self) -> None:
        plain = self.labs[0].controller.send._plain
        assert plain is not None
        take = plain._take_sends

        def counting(*arguments: Any) -> Any:
            taken = take(*arguments)
            self.taken += 0 if taken is None else len(taken[4])
            return taken

        plain._take_sends = counting

    async def feed(self, data: bytes) -> None:
        """Give both brokers a read and compare all that it led to."""
        seen = [await self._seen(lab, client, data) for lab, client in self._pairs()]
        for name in seen[1]:
            assert seen[0][name] == seen[1][name], (name, data)
        if self.clients[0].transport.aborted:
            self.reconnect()

    def _pairs(self) -> zip[tuple[BrokerLab, LabClient]]:
        return zip(self.labs, self.clients, strict=True)

    def reconnect(self) -> None:
        self.clients = (self.labs[0].connect(), self.labs[1].connect())

    async def _seen(self, lab: BrokerLab, client: LabClient, data: bytes) -> dict[str, Any]:
        random.setstate(self._random_state)  # queues are drawn for negative ids
        server, appender = lab.controller.server, lab.controller.store.appender
        written = len(client.transport.writes)
        client.feed(data)
        await settled(lab.controller)
        log = lab.controller.store._log
        seen: dict[str, Any] = {
            "records": [*log._full, (log._pieces_offset, b"".join(log.pieces))],
            "full": [(at, b"".join(pieces)) for at, pieces in log._full],
            "keyed": list(appender.keyed),
            "touched": [(queue.topic, queue.queue_id) for queue in appender.touched],
            "queues": {
                (queue.topic, queue.queue_id): (
                    queue.next_offset,
                    queue.max_physical_offset,
                    list(queue.pending),
                    list(queue.pending_codes),
                )
                for queue in lab.controller.store._queues
            },
            "pending": (log.pending_tail, log.room_end, server.uncommitted, server._scheduled),
        }
        seen["records"] = seen["records"][-1]
        for _ in range(2):
            await asyncio.sleep(0)
        statistics = lab.controller.statistics
        targets = lab.controller.admission.targets
        return seen | {
            "answers": b"".join(client.transport.writes[written:]),
            "writes": len(client.transport.writes) - written,
            "waiting": waiting_of(lab),
            "aborted": client.transport.aborted,
            "rest": b"".join(client.connection._chunks),
            "counts": (statistics.put_messages, statistics.put_bytes, statistics.put_failed),
            "by topic": {name: (each.messages_in, each.bytes_in) for name, each in targets.items()},
        }


def waiting_of(lab: BrokerLab) -> list[Any]:
    waiting = lab.controller.gate.waiting
    conditions = [value for value in vars(waiting).values() if hasattr(value, "_entries")]
    assert conditions
    return [
        [(entry.end_offset, entry.answer._make(0, *entry.answer._arguments)) for entry in each]
        for each in (condition._entries for condition in conditions)
    ]


@asynccontextmanager
async def twins(folder: Path, **settings: Any) -> AsyncIterator[Twins]:
    async with (
        broker_lab(folder / "kernel", **SETTINGS | settings) as first,
        broker_lab(folder / "twin", **SETTINGS | settings) as second,
    ):
        both = Twins((first, second))
        await both.feed(b"".join(usual(topic=topic, queue=queue) for topic, queue in PLACES))
        yield both
    files = [files_of(folder / name / "store") for name in ("kernel", "twin")]
    assert files[0] == files[1]


def files_of(root: Path) -> dict[str, bytes]:
    kept = ("commitlog", "consumequeue")
    paths = [path for name in kept for path in sorted((root / name).rglob("*")) if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


# --- what is sent ---------------------------------------------------------------------------

TOPICS = ("TopicTest", "Second", "A-very_long%topic|name-of-which-there-are-some")
PLACES = list(itertools.product(TOPICS, range(3)))
_opaques = itertools.count(1)


def fields_of(**fields: Any) -> dict[str, Any]:
    letters = {
        "group": "a",
        "topic": "b",
        "queue": "e",
        "sys_flag": "f",
        "born": "g",
        "flag": "h",
        "properties": "i",
        "reconsume": "j",
    }
    usual_fields: dict[str, Any] = {
        "a": "PG",
        "b": "TopicTest",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": "UNIQ_KEY\x010A0B0C0D\x02WAIT\x01true\x02TAGS\x01TagA",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    return usual_fields | {letters[name]: _text(value) for name, value in fields.items()}


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) else value


def header_of(fields: Any, **head: Any) -> dict[str, Any]:
    usual_head = {
        "code": 310,
        "extFields": fields,
        "flag": 0,
        "language": "JAVA",
        "opaque": next(_opaques),
        "serializeTypeCurrentRPC": "JSON",
        "version": 409,
    }
    return usual_head | head


def encode(header: Any, *, ascii_only: bool = True) -> bytes:
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=ascii_only)
    return text.encode(errors="surrogatepass")


def framed(header: bytes, body: bytes = b"hello") -> bytes:
    size = len(header)
    return (4 + size + len(body)).to_bytes(4, "big") + size.to_bytes(4, "big") + header + body


def usual(body: bytes = b"hello", **fields: Any) -> bytes:
    return framed(encode(header_of(fields_of(**fields))), body)


NAMES = (
    "TAGS",
    "WAIT",
    "CLUSTER",
    "DELAY",
    "TRAN_MSG",
    "KEYS",
    "UNIQ_KEY",
    "xWAIT",
    "TAGSx",
    "",
    "a",
)
LIKELY = ("TAGS", "WAIT", "KEYS", "UNIQ_KEY", "xWAIT", "TAGSx", "TAG", "AIT", "XTAGS", "CLUSTE")
VALUES = (
    *("true", "false", "TRUE", "tRuE", "true ", "", "TagA", "é", "中文", "\U0001f600", "1", "0"),
    *("a\x01b", "WAIT\x01true", "\x01", "\x00\x1f\x7f", '"\\/\b\f\n\r\t', "TAGS\x01x", "\u2028"),
    *("x" * 300, "\u0130", "\u212a", "tru\u00e9", "\ud7ff\ue000\uffff", "\U0010ffff"),
)


def properties(chance: random.Random) -> str:
    names = NAMES if chance.random() < 0.15 else LIKELY
    pieces = [
        chance.choice(names) + "\x01" * (chance.random() < 0.95) + chance.choice(VALUES)
        for _ in range(chance.randrange(6))
    ]
    ends = chance.choice(("", "", "\x02", "\x02\x02"))
    text = chance.choice(("", "", "", "\x02")) + "\x02".join(pieces) + ends
    if chance.random() < 0.04:
        text += chance.choice(("\ud800", "\udfff", "\udc00\ud800"))
    if chance.random() < 0.02:
        text += "p\x01" + "y" * chance.choice((32_000, 32_600, 32_700, 33_000))
    return text


ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, 2**63),
    *(-(2**63), 10**18, 10**17, 10**30, 1.0, 1e3, -0.0, [], {}, {"a": "b"}, ["x"], "", " ", "-"),
    *("-0", "00", "007", "+5", " 5", "5 ", "5.0", "1e3", "0x10", "٣", "-1", "2147483647"),
    *("2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
    *("true", "false", "True", "FALSE", "1", "0", "yes", "null", "NULL", "é", "\x00", "a\nb", "\\"),
)
ODD_TOPICS = (
    *("%RETRY%PG", "%DLQ%PG", "TBW102", "a b", "", "é", "x" * 127, "x" * 128, "Topic\\Test"),
    *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"),
)
LETTERS = "abcdefghijklmno"


def odd_fields(chance: random.Random) -> Any:
    fields = fields_of(
        topic=chance.choice(TOPICS), queue=chance.randrange(3), properties=properties(chance)
    )
    for _ in range(chance.choice((*[0] * 6, 1, 2))):
        key = chance.choice((*LETTERS, *LETTERS, "n", "aa", "é", "", "Signature", "a\n"))
        fields[key] = chance.choice(ODD_VALUES)
    if chance.random() < 0.15:
        fields["b"] = chance.choice((f"New{chance.randrange(5)}", *ODD_TOPICS))
    if chance.random() < 0.1:
        fields["e"] = str(chance.choice((-1, -5, 3, 4, 100)))
    if chance.random() < 0.1:
        fields["f"] = str(chance.choice((1, 2, 4, 8, 12, 16, 32, 48, 0x300, -1, 1 << 30)))
    if chance.random() < 0.1:
        del fields[chance.choice(sorted(fields))]
    items = list(fields.items())
    if chance.random() < 0.3:
        chance.shuffle(items)
    return dict(items)


def raw_numbers(text: bytes, chance: random.Random) -> bytes:
    """Take the quotes off some numbers and booleans, as clients in other languages send them."""
    return re.sub(
        rb'"(-?\d+|true|false)"',
        lambda found: found[1] if chance.random() < 0.7 else found[0],
        text,
    )


def odd_header(chance: random.Random) -> bytes:
    header = header_of(odd_fields(chance))
    for _ in range(chance.choice((*[0] * 30, 1, 2))):
        key = chance.choice(("flag", "opaque", "version", "language", "remark", "extFields", "new"))
        header[key] = chance.choice(ODD_VALUES)
    if chance.random() < 0.1:
        header["flag"] = chance.choice((1, 2, 3, 4, 6))
    if chance.random() < 0.1:
        del header[chance.choice(("flag", "version", "language"))]
    items = list(header.items())
    if chance.random() < 0.2:
        rest = items[1:]
        chance.shuffle(rest)
        items = items[:1] + rest
    text = encode(dict(items), ascii_only=chance.random() < 0.6)
    if chance.random() < 0.2:
        text = raw_numbers(text, chance)
    if chance.random() < 0.05:
        text = doubled(text, chance)
    return text


def doubled(text: bytes, chance: random.Random) -> bytes:
    """Say one of the fields twice."""
    field = chance.choice(re.findall(rb'"\w+":(?:"[^"\\]*"|\d+)', text) or [b'"code":310'])
    return text.replace(field, field + b"," + chance.choice((field, field.replace(b"1", b"2"))), 1)


def mutated(text: bytes, chance: random.Random) -> bytes:
    data = bytearray(text)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(data))
        what = chance.randrange(5)
        if what == 0:
            data[at] = chance.randrange(256)
        elif what == 1:
            del data[at : at + chance.choice((1, 1, 3))]
        elif what == 2:
            data[at:at] = chance.choice(
                (b" ", b'"', b"\\", b",", b"{", b"}", b"\0", b"\xc3", b"\\u")
            )
        elif what == 3:
            data[at] ^= 1 << chance.randrange(8)
        else:
            del data[at + 1 :]
    return bytes(data)


def read_of(chance: random.Random, frames: int) -> bytes:
    parts = []
    for _ in range(frames):
        header = odd_header(chance) if chance.random() < 0.6 else encode(header_of(fields_of()))
        if chance.random() < 0.4 / frames:
            header = mutated(header, chance)
        size = chance.choice((0, 1, 15, 16, 63, 64, 65, 200, 1023, 1024, 1499, 1500, 1501))
        parts.append(framed(header, chance.randbytes(size)))
    return b"".join(parts)


# --- the tests ------------------------------------------------------------------------------


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(8))
async def test_any_read_comes_to_the_same(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with twins(tmp_path) as both:
        for _ in range(80):
            await both.feed(read_of(chance, chance.choice((1, 2, 8, 30))))
        assert both.taken > 200


@pytest.mark.few(8)
@pytest.mark.parametrize("text", [*NAMES, *LIKELY])
async def test_properties_are_stored_the_same(tmp_path: Path, text: str) -> None:
    async with twins(tmp_path) as both:
        for value, place in itertools.product(VALUES, range(6)):
            piece = f"{text}\x01{value}"
            placed = (
                *(piece, f"{piece}\x02", f"{piece}\x02a\x01b", f"a\x01b\x02{piece}"),
                *(f"a\x01b\x02{piece}\x02c\x01d", f"{piece}\x02{piece}x\x02"),
            )[place]
            await both.feed(usual(properties=placed))


async def test_properties_have_the_same_limit(tmp_path: Path) -> None:
    cluster = len("\x02CLUSTER\x01DefaultCluster")
    async with twins(tmp_path, mappedFileSizeCommitLog=1 << 20) as both:
        for size in range(MAX_PROPERTIES_BYTES - 2, MAX_PROPERTIES_BYTES + 3):
            before = both.taken
            text = "p\x01" + "y" * (size - cluster - 2)
            for waiting in (text, f"WAIT\x01true\x02{text}"):
                await both.feed(usual(properties=waiting))
            assert both.taken - before == (2 if size <= MAX_PROPERTIES_BYTES else 0)


@pytest.mark.few(5)
@pytest.mark.parametrize("letter", "abcdefghijklmn")
async def test_a_field_may_have_any_form(tmp_path: Path, letter: str) -> None:
    async with twins(tmp_path) as both:
        for value in ODD_VALUES:
            text = encode(header_of(fields_of() | {letter: value}))
            await both.feed(framed(text) + usual(queue=1))
            await both.feed(framed(raw_numbers(text, random.Random(1))))
        without = fields_of()
        without.pop(letter, None)
        await both.feed(framed(encode(header_of(without))))


@pytest.mark.parametrize("name", ["code", "opaque", "flag", "version", "language", "new"])
async def test_the_head_may_have_any_form(tmp_path: Path, name: str) -> None:
    async with twins(tmp_path) as both:
        for value in ODD_VALUES:
            await both.feed(framed(encode(header_of(fields_of(), **{name: value}))))
            await both.feed(
                framed(encode(header_of(fields_of()))[:-1] + b',"%s":7}' % name.encode())
            )


async def test_every_cut_of_a_header_comes_to_the_same(tmp_path: Path) -> None:
    header = encode(header_of(fields_of(properties='é"\x01\\\x02TAGS\x01\U0001f600')))
    async with twins(tmp_path) as both:
        for size in range(len(header) + 1):
            await both.feed(framed(header[:size]) + usual())


@pytest.mark.parametrize("tail", [b" ", b"\n", b"x", b"}", b",", b"\0", b"{}", b'"'])
async def test_what_follows_a_header_comes_to_the_same(tmp_path: Path, tail: bytes) -> None:
    async with twins(tmp_path) as both:
        await both.feed(framed(encode(header_of(fields_of())) + tail) + usual())


async def test_what_is_said_twice_comes_to_the_same(tmp_path: Path) -> None:
    text = encode(header_of(fields_of()))
    some, more = b',"extFields":{"a":"PG","e":"1"}', b',"extFields":{"l":"1"}'
    async with twins(tmp_path) as both:
        for again in (
            some,
            more,
            b',"extFields":{}',
            b',"flag":2',
            b',"opaque":7',
            b',"code":310',
            b',"code":"x"',
        ):
            await both.feed(framed(text[:-1] + again + b"}"))
        head = b'{"code":310'
        await both.feed(framed(text.replace(head, head + some)))
        for field in (b'"e":"1"', b'"i":"TAGS\\u0001a"', b'"b":"Second"', b'"m":"true"'):
            await both.feed(framed(text.replace(b'"a":', field + b',"a":')))
            await both.feed(framed(text.replace(b'},"flag"', b"," + field + b'},"flag"')))


async def test_strings_with_every_byte_and_every_escape(tmp_path: Path) -> None:
    async with twins(tmp_path) as both:
        texts = [bytes((byte,)) for byte in range(256)]
        texts += [b"\\" + bytes((byte,)) for byte in range(256)]
        texts += [
            b"\\u" + digits for digits in (b"00e9", b"00E9", b"d83d\\ude00", b"D83D", b"g000")
        ]
        texts += [
            b"\\u00",
            b"\\u/000",
            b"\\u:000",
            b"\\u@000",
            b"\\uffff",
            b"\\uDFFF",
            b"\\ud83d\\u0041",
        ]
        texts += [b"\xc3\xa9", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xc3"]
        texts += [
            b"\xf0\x9f\x98\x80",
            b"\xf0\x80\x80\x80",
            b"\xf4\x90\x80\x80",
            b"\xf8\x88\x80\x80\x80",
        ]
        template = encode(header_of(fields_of(properties="TAGS\x01##")))
        for text in texts:
            await both.feed(framed(template.replace(b"##", text)))
            await both.feed(framed(template.replace(b"PG", text)))


@pytest.mark.parametrize("name", ["length", "header length"])
async def test_a_wrong_frame_ends_both_connections(tmp_path: Path, name: str) -> None:
    at = 0 if name == "length" else 4
    numbers = (0, 1, 4, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x00FFFFFF, 0x01000010, 16 << 20)
    async with twins(tmp_path) as both:
        for number in numbers:
            good, bad = usual(queue=1), bytearray(usual())
            bad[at : at + 4] = number.to_bytes(4, "big")
            await both.feed(good + bytes(bad) + good)
            both.reconnect()  # a frame may have been cut off


async def test_a_read_may_end_anywhere(tmp_path: Path) -> None:
    frames = usual() + usual(queue=1, topic="Second")
    async with twins(tmp_path) as both:
        for cut in range(0, len(frames), 7):
            await both.feed(frames[:cut])
            await both.feed(frames[cut:])


@pytest.mark.parametrize(
    "settings",
    [
        {"flushDiskType": "SYNC_FLUSH"},
        {"brokerRole": "SYNC_MASTER"},
        {"brokerRole": "SYNC_MASTER", "flushDiskType": "SYNC_FLUSH"},
        {"brokerIP1": "::1"},
        {"brokerPermission": "4"},
        {"startAcceptSendRequestTimeStamp": str(1 << 50)},
        {"rejectTransactionMessage": "true"},
        {"regionId": "a%d%016X\\u0001é", "traceOn": "false", "brokerClusterName": "é%s"},
    ],
    ids=str,
)
async def test_every_mode_answers_the_same(tmp_path: Path, settings: dict[str, str]) -> None:
    chance = random.Random(99)
    async with twins(tmp_path, **settings) as both:
        for _ in range(12):
            await both.feed(read_of(chance, 8))


@pytest.mark.parametrize(
    "settings", [{"flushDiskType": "SYNC_FLUSH"}, {"brokerRole": "SYNC_MASTER"}]
)
async def test_only_who_waits_is_answered_later(tmp_path: Path, settings: dict[str, str]) -> None:
    async with twins(tmp_path, **settings) as both:
        before = both.taken
        waits = ("WAIT\x01true", "WAIT\x01false", "a\x01b\x02WAIT\x01", "WAIT\x01TRUE", "a\x01b")
        await both.feed(b"".join(usual(properties=text) for text in waits))
        assert both.taken == before + len(waits)


async def test_messages_from_ipv6_have_longer_records(tmp_path: Path) -> None:
    async with twins(tmp_path) as both:
        both.clients = tuple(lab.connect(("2001:db8::7", 50_001)) for lab in both.labs)  # type: ignore[assignment]
        before = both.taken
        await both.feed(usual() + usual(queue=1))
        assert both.taken == before + 2


async def test_a_slave_and_a_draining_broker_refuse_the_same(tmp_path: Path) -> None:
    async with twins(tmp_path) as both:
        for lab in both.labs:
            lab.controller.store.config.broker_role = "SLAVE"
        await both.feed(usual() + usual())
        for lab in both.labs:
            lab.controller.store.config.broker_role = "ASYNC_MASTER"
            lab.controller.phase.is_draining = True
        await both.feed(usual() + usual())
        for lab in both.labs:
            lab.controller.phase.is_draining = False
            lab.controller.store.appender.refusal = "no"
        await both.feed(usual() + usual())
        for lab in both.labs:
            lab.controller.store.appender.refusal = None
        await both.feed(usual() + usual())


async def test_a_topic_changed_or_deleted_is_looked_up_again(tmp_path: Path) -> None:
    async with twins(tmp_path) as both:
        for lab in both.labs:
            topics = lab.controller.topics
            changed = topics.table["TopicTest"]
            topics.table["TopicTest"] = type(changed)(
                **{name: getattr(changed, name) for name in changed.__struct_fields__}
                | {"write_queue_nums": 2, "read_queue_nums": 1, "topic_filter_type": "MULTI_TAG"}
            )
        for _ in range(2):
            await both.feed(b"".join(usual(queue=queue, sys_flag=48) for queue in range(3)))


async def test_a_kernel_that_fails_leaves_the_messages_to_python(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    async with twins(tmp_path) as both:
        plain = both.labs[0].controller.send._plain
        assert plain is not None
        plain._take_sends = fail
        await both.feed(usual() + usual(queue=1))
    assert "the send kernel failed" in caplog.text


async def test_batches_among_sends_keep_their_place(tmp_path: Path) -> None:
    elements = encode_batch([BatchElement(1, b"one", b"KEYS\x01a"), BatchElement(2, b"two", b"")])
    batch = encode(header_of(fields_of() | {"m": "true"}, code=320))
    as_send = encode(header_of(fields_of() | {"m": "true"}))
    async with twins(tmp_path) as both:
        for _ in range(20):
            await both.feed(
                usual() + framed(batch, elements) + usual() + framed(as_send, elements) + usual()
            )


@pytest.mark.parametrize("over", [-9, -1, 0, 1, 7, 8, 9])
async def test_a_file_ends_the_same(tmp_path: Path, over: int) -> None:
    """The record behind some that fill a file ends ``over`` bytes behind the room in it."""
    async with twins(tmp_path) as both:
        log = both.labs[0].controller.store._log
        before = log.pending_tail
        await both.feed(usual(b""))
        overhead = log.pending_tail - before
        while (room := log.room_end - log.pending_tail - overhead) > 1000:
            await both.feed(usual(bytes(500)))
        before = both.taken
        await both.feed(usual(bytes(room + over)))
        assert both.taken - before == (over <= 0)
        await both.feed(usual(b"next"))


async def test_more_queues_than_a_run_holds(tmp_path: Path) -> None:
    async with twins(tmp_path, defaultTopicQueueNums="8") as both:
        places = itertools.product([f"T{number}" for number in range(9)], range(8))
        fields = [fields_of(topic=topic, queue=queue) | {"d": "8"} for topic, queue in places]
        reads = [framed(encode(header_of(each))) for each in fields]
        for _ in range(3):
            await both.feed(b"".join(reads))
        assert both.taken >= 2 * 72


def test_the_pieces_of_an_answer_are_those_of_its_template() -> None:
    for region in ("R", "a%d", "%016X%%", 'q"uote\\', "é"):
        answers = SendAnswers(b"\x7f\0\0\1\0\0\x2a\x9f", region, True)
        values = (b"%016X" % 4711, b"3", b"99", b"-5", b"")
        parts = zip(answers.pieces, values, strict=True)
        joined = b"".join(itertools.chain.from_iterable(parts))
        assert answers.one(0, -5, 4711, 3, 99)[8:] == joined
