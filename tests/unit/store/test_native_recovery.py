"""Recovery by a kernel leaves what recovery in Python leaves: log, queues, errors, writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from failback.broker.native import kernels
from failback.broker.store.upkeep.recovery import _good_records
from failback.broker.store.writing.dispatch import Dispatcher
from failback.protocol.errors import CorruptStore
from tests.support.common.counts import each_seed
from tests.support.store.crashing_files import Change, CrashingFiles
from tests.support.store.damaged_logs import ROOT, SIZES, V6, mutated, some_log
from tests.support.store.store_kit import BORN_HOST, Clock, make_store, open_store, put
from tests.support.store.without_kernels import in_python

pytestmark = [
    pytest.mark.skipif(kernels is None, reason="there are no kernels"),
]


def by_kernel(log: bytes, at: int, start: int, last: int, check_crc: bool) -> Any:
    assert kernels is not None
    return kernels.good_records(memoryview(log), at, start, last, check_crc)


@pytest.mark.parametrize("check_crc", [True, False])
@each_seed(60)
def test_good_records_end_where_the_twin_says(seed: int, check_crc: bool) -> None:
    random = Random(seed)
    whole = some_log(random, 60)[: SIZES["mapped_file_bytes"]]
    log = mutated(random, whole) if seed % 3 else whole
    at = 0
    for last in sorted(random.sample(range(len(log) + 1), 3)):
        view, wanted = memoryview(log), (log, at, 0, last, check_crc)
        assert by_kernel(*wanted) == _good_records(view, at, 0, last, check_crc)
        at = by_kernel(*wanted)[0]
    assert by_kernel(log, 0, 7, len(log), check_crc) == (0, 0, 0), "written for another place"


@pytest.mark.parametrize("flag", [0x10, 0x20])
def test_records_with_longer_hosts_are_left_to_the_twin(flag: int) -> None:
    master = open_store(ROOT, CrashingFiles(), **SIZES)
    put(master, b"first")
    put(master, b"second", born_host=V6)
    master.commit_pending()
    log = bytearray(master.read_raw(0, 1 << 14))
    end, count, last = by_kernel(bytes(log), 0, 0, len(log), True)
    assert (count, last) == (1, 0)
    log[39] |= flag
    assert by_kernel(bytes(log), 0, 0, len(log), True) == (0, 0, 0)
    assert end < len(log)


def test_a_body_that_differs_from_its_crc_ends_the_good_ones() -> None:
    master = open_store(ROOT, CrashingFiles(), **SIZES)
    put(master, b"first")
    put(master, b"second")
    master.commit_pending()
    log = bytearray(master.read_raw(0, 1 << 14))
    log[log.index(b"second")] ^= 1
    first = by_kernel(bytes(log), 0, 0, len(log), True)
    assert first[1:] == (1, 0)
    assert by_kernel(bytes(log), 0, 0, len(log), False)[:2] == (len(log), 2)


def test_a_view_that_ends_before_the_beginning_is_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        by_kernel(b"1234", 5, 0, 9, True)
    with pytest.raises(ValueError, match="outside"):
        by_kernel(b"1234", 0, -1, 9, True)


def life(random: Random) -> CrashingFiles:
    """The files of a store with all kinds of records, of which some are synced."""
    files, clock = CrashingFiles(), Clock()
    store = open_store(ROOT, files, clock, **SIZES)
    for _ in range(random.choice([3, 40, 150])):
        clock.now += random.choice([0, 1, 700])
        odd = random.random() < 0.1
        put(
            store,
            random.randbytes(random.choice([0, 40, 200])),
            queue_id=random.randrange(3),
            tag="a",
            sys_flag=random.choice([4, 8, 12]) if odd else 0,
            born_host=V6 if odd and random.random() < 0.3 else BORN_HOST,
        )
        if random.random() < 0.3:
            store.commit_pending()
            random.choice([store.flush, store.flush_queues])()
    store.commit_pending()
    return files


def crashed(files: CrashingFiles, random: Random) -> CrashingFiles:
    """What a crash left, and at times something damaged afterwards."""
    point = random.randrange(len(files.journal) // 2, len(files.journal) + 1)
    if random.random() < 0.5:
        left = files.after_kill(point, random.choice([-1, 0, 7, 100]))
    else:
        left = files.after_torn_power_loss(point, random)
    logs = [path for path in sorted(left.content) if "commitlog" in path.parts]
    if logs and random.random() < 0.4:
        data = left.content[random.choice(logs)]
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return left


def by_file(files: CrashingFiles) -> dict[Path, list[Change]]:
    """Every file's own changes in order; that of queues among each other is nobody's promise."""
    found: dict[Path, list[Change]] = {}
    for change in files.journal:
        found.setdefault(change.path, []).append(replace(change, note=None))
    return found


def recovered(files: CrashingFiles, caplog: Any) -> dict[str, Any]:
    caplog.clear()
    try:
        store = open_store(ROOT, files, Clock(1_800_000_000_000), **SIZES)
    except CorruptStore as error:
        return {"error": str(error), "said": caplog.messages.copy(), "journal": by_file(files)}
    queues = {
        (queue.topic, queue.queue_id): (
            queue.next_offset,
            queue.max_physical_offset,
            queue.misplaced_count,
            [queue.entry(at) for at in range(queue.min_offset, queue.max_offset)],
        )
        for queue in store._queues
    }
    said = [text for text in caplog.messages if "seconds=" not in text]  # how long it took
    return {"queues": queues, "said": said, "tail": store.max_physical_offset} | {
        "journal": by_file(files)
    }


@each_seed(150)
def test_a_store_is_left_with_the_same_after_a_crash(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    files = life(Random(seed))
    by_kernels = recovered(crashed(files, Random(seed)), caplog)
    with in_python():
        assert recovered(crashed(files, Random(seed)), caplog) == by_kernels


def test_kernels_recover_what_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    files = CrashingFiles()
    store = open_store(ROOT, files, **SIZES)
    for number in range(100):
        put(store, b"body", queue_id=number % 3, tag="a")
    store.commit_pending()
    monkeypatch.setattr(Dispatcher, "enter", None)
    monkeypatch.setattr(Dispatcher, "_enter_one_by_one", None)
    again = make_store(ROOT, files.after_kill(len(files.journal)), **SIZES)
    assert again.load().records == 100
    assert [again.max_queue_offset("TopicTest", queue) for queue in range(3)] == [34, 33, 33]
