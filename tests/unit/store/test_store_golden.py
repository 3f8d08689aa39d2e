"""Bytes on the disk, byte for byte as Java 4.9.8 reads and writes them.

Origin: a record decoded and CRC-checked by the decoder of apache/rocketmq 4.9.8, the queue
entry, the pre-blank entry, the blank header and the checkpoint as its classes lay them out.
"""

from __future__ import annotations

import struct
from pathlib import Path

from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import Clock, make_store, open_store, put, put_all

GIB = 1 << 30
RECORD = bytes.fromhex(
    "000000c9daa320a769c865ed00000003"
    "00000000000000000000002a00000000"
    "40000000000000000000018bcfe56800"
    "c0a8010a0000c3500000018bcfe5687b"
    "c0a8011400002a9f0000000000000000"
    "000000000000000e48656c6c6f20526f"
    "636b65744d5109546f70696354657374"
    "0057544147530154616741024b455953"
    "016f726465722d3102554e49515f4b45"
    "59014330413830313041303030313030"
    "30303030303030303030303030303030"
    "324102434c5553544552014465666175"
    "6c74436c7573746572"
)
PROPERTIES = (
    b"TAGS\x01TagA\x02KEYS\x01order-1\x02UNIQ_KEY\x01C0A8010A00010000000000000000002A"
    b"\x02CLUSTER\x01DefaultCluster"
)


def test_our_record_entry_and_blank_record_are_java_s(tmp_path: Path) -> None:
    """Message 42 of its queue becomes the first record of the second file of 1 GiB."""
    _prepare_a_store_that_is_full_to_the_second_file(tmp_path)
    store = open_store(
        tmp_path,
        clock=Clock(1_700_000_000_123),
        mapped_file_bytes=GIB,
        consume_queue_file_bytes=6_000_000,
    )
    appended = put(store, b"Hello RocketMQ", queue_id=3, tag="TagA", properties=PROPERTIES)
    store.commit_pending()
    store.close()

    assert appended == (GIB, 42, GIB + 201, 1_700_000_000_123)
    with (tmp_path / "commitlog" / "00000000001073741824").open("rb") as log:
        assert log.read(210) == RECORD + bytes(9)
    queue_file = tmp_path / "consumequeue/TopicTest/3/00000000000000000000"
    assert queue_file.stat().st_size == 6_000_000
    entry = queue_file.read_bytes()[840:880]
    assert entry == bytes.fromhex("0000000040000000 000000c9 000000000027a807") + bytes(20)


def _prepare_a_store_that_is_full_to_the_second_file(root: Path) -> None:
    log = root / "commitlog"
    log.mkdir()
    for start, begins_with in ((0, struct.pack(">iI", GIB, 0xCBD43194)), (GIB, b"")):
        with (log / f"{start:020d}").open("wb") as file:
            file.write(begins_with)
            file.truncate(GIB)
    queue = root / "consumequeue/TopicTest/3"
    queue.mkdir(parents=True)
    with (queue / f"{0:020d}").open("wb") as file:
        file.write(struct.pack(">qiq", 0, GIB, 0) * 42)
        file.truncate(6_000_000)


def test_a_slave_that_begins_in_mid_log_fills_its_queue_up() -> None:
    """The exchange of an empty slave with a master whose last file begins at 1 GiB."""
    files = CrashingFiles()
    store = make_store(Path("/s"), files, broker_role="SLAVE", consume_queue_file_bytes=6_000_000)
    store.load()
    store.append_raw(GIB, RECORD)

    assert store.max_physical_offset == GIB + 201
    assert Path("/s/commitlog/00000000001073741824") in files.content
    queue = bytes(files.content[Path("/s/consumequeue/TopicTest/3/00000000000000000000")])
    pre_blank = bytes.fromhex("0000000000000000 7fffffff 0000000000000000")
    entry = bytes.fromhex("0000000040000000 000000c9 000000000027a807")
    assert queue == (pre_blank * 42 + entry).ljust(6_000_000, b"\0")
    assert store.min_queue_offset("TopicTest", 3) == 42
    assert store.max_queue_offset("TopicTest", 3) == 43


def test_the_rest_of_a_file_is_a_blank_record() -> None:
    files = CrashingFiles()
    store = open_store(Path("/s"), files)
    put_all(store, bytes(1024 - 300 - 100), bytes(300))  # a record has 100 bytes beside its body
    log = bytes(files.content[Path("/s/commitlog/00000000000000000000")])
    assert log[724:] == bytes.fromhex("0000012c cbd43194") + bytes(292)
    assert store.max_physical_offset == 1024 + 400


def test_the_checkpoint_holds_three_times_in_a_page() -> None:
    files, clock = CrashingFiles(), Clock(1_700_000_000_000)
    store = open_store(Path("/s"), files, clock)
    put_all(store, b"a")
    store.flush()
    clock.now += 7
    put_all(store, b"b")
    store.flush_queues()
    page = bytes(files.content[Path("/s/checkpoint")])
    assert page == struct.pack(">qqq", 1_700_000_000_000, 1_700_000_000_007, 0).ljust(4096, b"\0")


def test_the_root_holds_what_java_expects(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put_all(store, b"a", topic="%RETRY%group")
    names = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {
        "abort",
        "checkpoint",
        "lock",
        "reserve",  # nothing that a Java broker looks at
        "commitlog/00000000000000000000",
        "consumequeue/%RETRY%group/0/00000000000000000000",
    }
    assert (tmp_path / "lock").read_bytes() == b"lock"
    store.close()
    for gone in ("abort", "reserve"):
        assert not (tmp_path / gone).exists()
