"""The last records of a log that nobody has open."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.broker.store.log.files import OsFiles
from failback.broker.store.log.tail import (
    LogTail,
    log_files,
    read_tail,
    record_bytes,
    record_offsets,
)
from failback.broker.store.message_store import MessageStore
from tests.support.store.store_kit import kill, open_store, put_all


def filled(root: Path, count: int) -> MessageStore:
    """A store of ``count`` messages that was killed; its files hold 1024 bytes each."""
    store = open_store(root, OsFiles())
    put_all(store, *(b"message %03d" % number for number in range(count)))
    kill(store)
    return store


def bodies(tail: LogTail) -> list[int]:
    return [int(record.split(b"message ")[1][:3]) for _, record in tail.records]


@pytest.mark.parametrize(("count", "wanted"), [(3, 64), (3, 2), (40, 5), (40, 64), (8, 8)])
def test_the_last_records_come_back_with_their_places(
    tmp_path: Path, count: int, wanted: int
) -> None:
    store = filled(tmp_path, count)
    tail = read_tail(tmp_path / "commitlog", wanted)
    assert bodies(tail) == list(range(max(0, count - wanted), count))
    assert tail.end == store.max_physical_offset
    for offset, record in tail.records:
        assert store.record_at(offset) == record


def test_a_folder_that_is_not_there_is_an_empty_log(tmp_path: Path) -> None:
    assert read_tail(tmp_path / "nothing", 64) == LogTail(0)


def test_a_log_without_records_is_empty(tmp_path: Path) -> None:
    (tmp_path / "00000000000000000000").write_bytes(bytes(1024))
    assert read_tail(tmp_path, 64) == LogTail(0)


def test_a_torn_last_record_is_not_part_of_the_log(tmp_path: Path) -> None:
    filled(tmp_path, 4)
    log = tmp_path / "commitlog"
    whole = read_tail(log, 64)
    place, record = whole.records[-1]
    file = log / f"{place - place % 1024:020d}"
    data = bytearray(file.read_bytes())
    at = place % 1024 + record.index(b"message 003")
    data[at : at + 3] = bytes(3)  # the body no longer fits its CRC
    file.write_bytes(data)
    assert read_tail(log, 64) == LogTail(place, whole.records[:-1])
    assert read_tail(log, 1).end == place


def test_files_that_are_no_log_files_are_left_out(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    (tmp_path / "commitlog" / ".creating-1-1").write_bytes(b"half")
    assert bodies(read_tail(tmp_path / "commitlog", 64)) == [0, 1]


def test_every_record_of_every_file_is_found_newest_file_first(tmp_path: Path) -> None:
    store = filled(tmp_path, 40)
    files = log_files(tmp_path / "commitlog")
    assert [start for start, _ in files] == sorted((start for start, _ in files), reverse=True)
    found = [
        (offset, record_bytes(path, start, offset))
        for start, path in reversed(files)
        for offset in record_offsets(path, start)
    ]
    assert tuple(found) == read_tail(tmp_path / "commitlog", 64).records
    assert all(store.record_at(offset) == record for offset, record in found)
