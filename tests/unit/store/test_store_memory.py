"""What a store touches and holds: a large one opens by its end, and maps a few files at a time."""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from failback.broker.store.log.files import OsFileHandle, OsFiles
from failback.broker.store.log.results import GetStatus
from failback.broker.store.message_store import MessageStore
from failback.broker.store.queues.consume_queue import _valid_bytes
from tests.support.store.crashing_files import CrashingFiles
from tests.support.store.store_kit import (
    Clock,
    assert_queues_agree_with_log,
    kill,
    log_messages,
    make_store,
    open_store,
    put_all,
)

ENTRY = struct.Struct(">qiq")
PER_FILE = 5  # messages of a log file of 1024 bytes


class WatchedFiles(OsFiles):
    """Counts which files are opened, mapped and synced, by their path from the store's root."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.opened: Counter[str] = Counter()
        self.mapped: Counter[str] = Counter()
        self.synced: Counter[str] = Counter()

    def open(self, path: Path) -> OsFileHandle:
        self.opened[str(path.relative_to(self.root))] += 1
        return WatchedHandle(path, self)

    def of(self, counter: Counter[str], folder: str) -> set[str]:
        return {name for name in counter if name.startswith(folder)}


class WatchedHandle(OsFileHandle):
    def __init__(self, path: Path, files: WatchedFiles) -> None:
        super().__init__(path)
        self._name, self._files = str(path.relative_to(files.root)), files

    def view(self) -> memoryview:
        self._files.mapped[self._name] += 1
        return super().view()

    def sync(self) -> None:
        self._files.synced[self._name] += 1
        super().sync()

    def duplicate(self) -> OsFileHandle:
        return WatchedHandle(self._path, self._files)


def fill(store: MessageStore, clock: Clock, files: int, queues: int = 2) -> None:
    """Append ``files`` log files full of messages, one second apart."""
    for number in range(files * PER_FILE):
        clock.now += 1000
        put_all(store, bytes([number % 256]) * 100, queue_id=number % queues)


def opened_again(root: Path, clock: Clock) -> tuple[WatchedFiles, MessageStore]:
    files = WatchedFiles(root)
    return files, open_store(root, files, clock)


# --- opening --------------------------------------------------------------------------------


def test_a_hundred_files_are_opened_without_reading_them_all(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock=clock)
    fill(store, clock, 100)
    store.close()
    assert len(list((tmp_path / "commitlog").iterdir())) == 100
    assert len(list((tmp_path / "consumequeue/TopicTest/0").iterdir())) == 25

    files, store = opened_again(tmp_path, clock)
    last_three = {f"commitlog/{number * 1024:020d}" for number in (97, 98, 99)}
    assert files.of(files.opened, "commitlog") == last_three
    # The last three, and the first for where the queue begins.
    for queue in (0, 1):
        starts = [0, 22 * 200, 23 * 200, 24 * 200]
        names = {f"consumequeue/TopicTest/{queue}/{start:020d}" for start in starts}
        assert files.of(files.opened, f"consumequeue/TopicTest/{queue}") == names
    assert not files.of(files.synced, "commitlog")
    store.close()


def test_after_a_kill_only_what_was_not_flushed_is_read_and_synced(tmp_path: Path) -> None:
    """Twice the same load after the last checkpoint, behind 10 files and behind 100."""
    touched = []
    for count in (10, 100):
        clock, root = Clock(), tmp_path / str(count)
        store = open_store(root, clock=clock)
        fill(store, clock, count)
        store.flush()
        store.flush_queues()
        fill(store, clock, 4)
        kill(store)
        files = WatchedFiles(root)
        store = make_store(root, files, clock)
        report = store.load()
        assert report.end_offset == store.max_physical_offset
        touched.append(
            (
                report.scanned_bytes,
                report.records,
                len(files.of(files.mapped, "commitlog")),
                len(files.of(files.synced, "commitlog")),
                len(files.of(files.mapped, "consumequeue")),
                len(files.of(files.synced, "consumequeue")),
            )
        )
        assert_queues_agree_with_log(store)
        store.close()
    assert touched[0] == touched[1]
    assert touched[0][0] <= 6 * 1024


def test_without_a_checkpoint_everything_is_read(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock=clock)
    fill(store, clock, 10)
    kill(store)
    files, store = opened_again(tmp_path, clock)
    assert len(files.of(files.mapped, "commitlog")) == 10
    assert len(files.of(files.synced, "commitlog")) == 10
    assert len(log_messages(store)) == 50
    store.close()


def test_what_a_start_after_a_kill_did_not_sync_again_is_on_the_disk() -> None:
    root, files, clock = Path("/s"), CrashingFiles(), Clock()
    store = open_store(root, files, clock)
    fill(store, clock, 10)
    store.flush()
    store.flush_queues()
    fill(store, clock, 3)
    kill(store)
    began = len(files.journal)
    open_store(root, files, clock)
    synced = {change.path for change in files.journal[began:] if change.kind == "sync"}
    log = [root / "commitlog" / f"{number * 1024:020d}" for number in range(13)]
    assert [path in synced for path in log] == [False] * 9 + [True] * 4
    rebooted = files.after_power_loss(len(files.journal), lambda step: False)
    store = open_store(root, rebooted, clock)
    assert len(log_messages(store)) == 13 * PER_FILE
    assert_queues_agree_with_log(store)


ENTRIES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 91, 2**40, -1]),
        st.sampled_from([91, 256, 512, 65536, 0x7FFFFFFF, 0, -1]),
        st.sampled_from([0, -1, 2598919]),
    ),
    max_size=40,
)


@given(entries=ENTRIES)
def test_a_queue_ends_at_the_first_entry_without_place_or_size(
    entries: list[tuple[int, int, int]],
) -> None:
    end = next((n for n, (place, size, _) in enumerate(entries) if place < 0 or size <= 0), None)
    data = b"".join(ENTRY.pack(*entry) for entry in entries)
    assert _valid_bytes(data) == (len(data) if end is None else end * 20)


# --- holding --------------------------------------------------------------------------------


def mapped_files(root: Path) -> Counter[str]:
    """Return the files under ``root`` that this process has mapped, by folder."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in lines if str(root) in line}
    return Counter(Path(path).relative_to(root).parts[0] for path in paths)


def open_descriptors(root: Path) -> int:
    count = 0
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the folder itself
            count += os.readlink(fd).startswith(str(root))
    return count


def test_cold_files_are_unmapped(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock=clock, max_mapped_log_files=3, max_mapped_queue_files=5)
    fill(store, clock, 40, queues=8)
    for _ in range(2):
        assert len(log_messages(store)) == 200
        for queue in range(8):
            for offset in range(25):
                found = store.get_message("g", "TopicTest", queue, offset, 1)
                assert found.status is GetStatus.FOUND
                assert mapped_files(tmp_path)["commitlog"] <= 3
        assert mapped_files(tmp_path)["consumequeue"] <= 5
        assert open_descriptors(tmp_path) <= 2 * (3 + 5) + 1
    del found  # its views keep what they show
    store.close()
    assert not mapped_files(tmp_path)
    assert open_descriptors(tmp_path) == 0


def test_what_is_being_sent_keeps_its_mapping_and_nothing_longer(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock=clock, max_mapped_log_files=1)
    fill(store, clock, 6)
    held = [store.read_raw(number * 1024, 1024) for number in range(5)]
    assert mapped_files(tmp_path)["commitlog"] == 5
    assert all(bytes(view[4:8]) == b"\xda\xa3\x20\xa7" for view in held)
    held.clear()
    assert mapped_files(tmp_path)["commitlog"] == 1
    store.close()


def test_a_deleted_file_is_unmapped(tmp_path: Path) -> None:
    clock = Clock()
    store = open_store(tmp_path, clock=clock)
    fill(store, clock, 3)
    assert len(log_messages(store)) == 15
    store.delete_topic("TopicTest")
    assert mapped_files(tmp_path)["consumequeue"] == 0
    store.close()


# --- the log elsewhere ----------------------------------------------------------------------


def test_the_log_may_lie_on_another_disk(tmp_path: Path) -> None:
    # A file system of its own on any usual Linux; without it the test shows less.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    elsewhere = Path(tempfile.mkdtemp(dir=memory))
    try:
        clock, root = Clock(), tmp_path / "store"
        for log in (elsewhere / "log", elsewhere / "deep" / "log"):
            store = open_store(root, clock=clock, commit_log_path=log)
            fill(store, clock, 5)
            kill(store)
            store = open_store(root, clock=clock, commit_log_path=log)
            assert len(log_messages(store)) == 5 * PER_FILE
            assert_queues_agree_with_log(store)
            store.close()
            # Nothing of it under the root, nothing else beside it: Java would not start.
            names = ["checkpoint", "consumequeue", "failback.folders", "lock"]
            assert sorted(p.name for p in root.iterdir()) == names
            assert [path.name for path in log.parent.iterdir()] == ["log"]
            assert len(list(log.iterdir())) == 5
            shutil.rmtree(root)
            shutil.rmtree(log)
    finally:
        shutil.rmtree(elsewhere)
