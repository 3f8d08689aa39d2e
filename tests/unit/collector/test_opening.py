"""A collector and runs that are not open: rows wait, and join the tables whatever dies when."""

from __future__ import annotations

import hashlib
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.collector.segment_store import KNOWN, STORED, Store
from failback.analytics.collector.settings import CollectorSettings
from failback.analytics.lake.catalogue import Catalogue
from failback.analytics.lake.lake import open_lake
from failback.analytics.lake.segment_ids import SegmentId
from failback.analytics.lake.store import LakeStore
from failback.analytics.web.problems import Problem
from failback.client.consumelog.upload.layout import OPENED, mark_name
from failback.client.consumelog.upload.run_days import opened_note
from tests.support.analytics.collector_lab import (
    RUN,
    Upload,
    check_lake,
    files_of,
    uploads_of,
    write_log,
)

ZERO = 1_790_000_000 * 10**9
DAY = "2026-09-21"
SECOND = 1000


class Clock:
    now_ms = 1_790_000_000_000

    def __call__(self) -> int:
        return self.now_ms


def store_at(folder: Path, clock: Clock | None = None) -> Store:
    store = Store(CollectorSettings(folder / "root", folder / "tokens"), clock or Clock())
    store.recover()
    return store


def send(store: Store, upload: Upload) -> str:
    run, proc, index, table = upload.id.split("/")
    named = SegmentId(run, proc, int(index), table)
    sha256 = hashlib.sha256(upload.body).hexdigest()
    return store.commit(named, upload.body, sha256)


@pytest.fixture
def uploads(tmp_path: Path) -> list[Upload]:
    write_log(tmp_path / "hot", deliveries=40)
    return uploads_of(tmp_path / "hot")


def lake_of(folder: Path) -> Path:
    return folder / "root" / "lake"


def waits(folder: Path) -> bool:
    tops = {name.split("/")[0] for name in files_of(lake_of(folder))}
    return "_waiting" in tops


def test_segments_wait_and_join_when_the_run_is_opened(
    tmp_path: Path, uploads: list[Upload]
) -> None:
    store = store_at(tmp_path)
    half = len(uploads) // 2
    assert [send(store, each) for each in uploads[:half]] == [STORED] * half
    assert not list(lake_of(tmp_path).glob("table=*"))
    check_lake(lake_of(tmp_path), uploads[:half])
    assert store.opener.open(RUN, ZERO) == DAY
    assert store.opener.open(RUN, ZERO + 10**15) == DAY, "the first who says it decides"
    assert not waits(tmp_path)
    check_lake(lake_of(tmp_path), uploads[:half])
    assert [send(store, each) for each in uploads] == [KNOWN] * half + [STORED] * (
        len(uploads) - half
    )
    check_lake(lake_of(tmp_path), uploads)
    again = store_at(tmp_path)
    assert [send(again, each) for each in uploads] == [KNOWN] * len(uploads)
    with pytest.raises(Problem, match="no time"):
        again.opener.open("other", 1 << 80)


def test_a_close_opens_a_run_by_its_first_row(tmp_path: Path, uploads: list[Upload]) -> None:
    store = store_at(tmp_path)
    for each in uploads:
        send(store, each)
    state = store.procs_of(RUN, -1, 10)
    assert state is not None
    assert store.close_run(RUN, {1: state.procs[0].last_seq}) == []
    assert not waits(tmp_path)
    check_lake(lake_of(tmp_path), uploads)
    assert [send(store, each) for each in uploads] == [KNOWN] * len(uploads)


def test_a_run_is_opened_by_its_document_or_after_a_while(
    tmp_path: Path, uploads: list[Upload]
) -> None:
    clock = Clock()
    store = store_at(tmp_path, clock)
    send(store, uploads[0])
    assert store.open_due() == []
    clock.now_ms += 599 * SECOND
    assert store.open_due() == []
    clock.now_ms += SECOND
    assert store.open_due() == [RUN]
    assert not waits(tmp_path)
    write_log(tmp_path / "hot2", deliveries=4, run="second")
    (first, *_) = uploads_of(tmp_path / "hot2")
    send(store, first)
    document = f'{{"run": "second", "zero": {{"wall_ns": {ZERO}}}}}'
    store.lake.write("_runs/run=second/run.json", document.encode())
    assert store.open_due() == ["second"]
    assert files_of(lake_of(tmp_path), "second") == {
        f"table={first.id.split('/')[3]}/date={DAY}/run=second/{Path(first.path).name}"
    }


class Killed(BaseException):
    pass


def test_an_opening_that_is_killed_anywhere_is_ended_by_the_next_start(
    tmp_path: Path, uploads: list[Upload], monkeypatch: pytest.MonkeyPatch
) -> None:
    moves = LakeStore.move
    left = 0

    def dies(store: LakeStore, name: str, to: str) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed
        moves(store, name, to)

    some = uploads[:5]
    for at in range(1, len(some) + 2):
        folder = tmp_path / str(at)
        folder.mkdir()
        store = store_at(folder)
        for each in some:
            send(store, each)
        left = at
        monkeypatch.setattr(LakeStore, "move", dies)
        with pytest.raises(Killed) if at <= len(some) else nullcontext():
            store.opener.open(RUN, ZERO)
        monkeypatch.setattr(LakeStore, "move", moves)
        assert sum(open_lake(lake_of(folder), RUN).rows(t) for t in ("deliver", "life")) > 0
        again = store_at(folder)
        assert not waits(folder)
        check_lake(lake_of(folder), some)
        assert [send(again, each) for each in uploads] == [KNOWN] * 5 + [STORED] * (
            len(uploads) - 5
        )
        check_lake(lake_of(folder), uploads)


def test_a_mark_without_its_moves_is_followed(tmp_path: Path, uploads: list[Upload]) -> None:
    store = store_at(tmp_path)
    for each in uploads[:6]:
        send(store, each)
    store.lake.write(mark_name(RUN, OPENED), opened_note(ZERO))  # and killed
    again = store_at(tmp_path)
    assert not waits(tmp_path)
    assert again.catalogue.day(RUN) == DAY
    check_lake(lake_of(tmp_path), uploads[:6])


def test_writers_and_an_opening_at_the_same_time(tmp_path: Path) -> None:
    write_log(tmp_path / "hot", deliveries=200)
    uploads = uploads_of(tmp_path / "hot")
    store = store_at(tmp_path)
    answers: list[Any] = []

    def write(some: list[Upload]) -> None:
        answers.extend(send(store, each) for each in some)

    threads = [threading.Thread(target=write, args=(uploads[n::3] + uploads,)) for n in range(3)]
    for each in threads:
        each.start()
    store.opener.open(RUN, ZERO)
    for each in threads:
        each.join()
    assert answers.count(STORED) == len(uploads)
    assert not waits(tmp_path)
    check_lake(lake_of(tmp_path), uploads)


def test_a_run_that_expired_is_gone_from_everywhere(tmp_path: Path, uploads: list[Upload]) -> None:
    clock = Clock()
    store = store_at(tmp_path, clock)
    for each in uploads[:4]:
        send(store, each)
    store.opener.open(RUN, ZERO)
    write_log(tmp_path / "hot2", deliveries=4, run="second")
    for each in uploads_of(tmp_path / "hot2"):
        send(store, each)
    assert set(store.expire(1 << 62)) == {RUN, "second"}
    assert files_of(lake_of(tmp_path)) == files_of(lake_of(tmp_path), "second") == set()
    assert store.open_due() == []
    assert not Catalogue(lake_of(tmp_path)).mark(RUN, OPENED).exists()
