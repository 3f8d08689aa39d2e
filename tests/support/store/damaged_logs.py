"""Logs with all kinds of records, whole and damaged, for what reads records by a kernel."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from typing import Any

from failback.protocol.codes import SCHEDULE_TOPIC
from failback.protocol.message import pack_host
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import BORN_HOST, Clock, open_store, put

ROOT = Path("/s")
V6 = pack_host("2001:db8::1", 5000)
SIZES: dict[str, Any] = {"mapped_file_bytes": 1 << 14, "max_index_num": 1000}
TOPICS = ["Topic", "T", "%RETRY%group", "Thema-\u00e4\U0001f600", SCHEDULE_TOPIC]
PROPERTIES = [
    b"",
    b"UNIQ_KEY\x01C0A8010A00002A9F0000000000000001\x02TAGS\x01TagA\x02CLUSTER\x01c",
    b"KEYS\x01order-1  customer-7 \x02UNIQ_KEY\x01C0A8010A00002A9F00000000000002\x02TAGS\x01b\x02",
    b"TAGS\x01a\x02TAGS\x01\x02KEYS\x01\x02UNIQ_KEY\x01",
    b"TAGS\x01" + "Gr\u00fc\u00dfe\U0001f600".encode() + b"\x02KEYS\x01schl\xc3\xbcssel \xff\xc3",
    b"TAGS\x01\xff\xfe\xed\xa0\x80",
    b"XTAGS\x01c\x02MY_KEYS\x01k\x02NO_UNIQ_KEY\x01u",
    b"DELAY\x012\x02TAGS\x01a",
    b"\x02\x02TAGS\x01x\x02\x02",
]


def some_log(random: Random, count: int) -> bytes:
    """Return what a master stored: mostly plain records, all kinds of others among them."""
    clock = Clock()
    master = open_store(ROOT, CrashingFiles(), clock, **SIZES)
    for _ in range(count):
        clock.now += random.choice([0, 1, 700])
        is_odd = random.random() < 0.15
        put(
            master,
            random.randbytes(random.choice([0, 1, 40, 200])),
            topic=random.choice(TOPICS if is_odd else TOPICS[:2]),
            queue_id=random.randrange(3),
            properties=random.choice(PROPERTIES if is_odd else PROPERTIES[:3]),
            sys_flag=random.choice([4, 8, 12]) if is_odd else 0,
            born_host=V6 if is_odd and random.random() < 0.3 else BORN_HOST,
        )
        if random.random() < 0.5:
            master.commit_pending()
    master.commit_pending()
    size = SIZES["mapped_file_bytes"]
    files = range(0, master.max_physical_offset, size)
    return b"".join(bytes(master.read_raw(at, size)) for at in files)


def mutated(random: Random, log: bytes) -> bytes:
    """Return ``log`` with some bytes of it changed, most of them in heads."""
    data = bytearray(log)
    magic = bytes.fromhex("DAA320A7")
    heads = [at - 4 for at in range(4, len(data)) if data[at : at + 4] == magic]
    for _ in range(random.randrange(4)):
        head = random.choice(heads)
        kind = random.randrange(6)
        if kind == 0:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        elif kind == 1:
            data[min(head + random.randrange(91), len(data) - 1)] ^= 1 << random.randrange(8)
        elif kind == 2:  # the size
            struct.pack_into(">I", data, head, random.choice([0, 88, 91, 2**31 - 1, 2**32 - 1]))
        elif kind == 3:  # the body's length
            body = random.choice([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 80])
            data[head + 84 : head + 88] = struct.pack(">I", body)
        elif kind == 4:  # queue id, queue offset
            data[head + 12 : head + 16] = random.choice([b"\xff" * 4, b"\0\0\0\1", b"\x7f" * 4])
        else:
            offset = random.choice([0, 1, 7, 2**63 - 1, 2**63, 2**64 - 1])
            data[head + 20 : head + 28] = struct.pack(">Q", offset)
    return bytes(data)
