"""The catalogue of a lake: lines that crashes cut, gaps, and how it is made again."""

from pathlib import Path
from typing import Any

import pytest

from failback.analytics.collector import segment_store as store_module
from failback.analytics.collector.segment_store import Store
from failback.analytics.collector.settings import CollectorSettings
from failback.analytics.lake.catalogue import (
    CHANGED,
    CLOSED,
    Catalogue,
    Entry,
    RunState,
)
from failback.analytics.lake.fsck import check_run
from failback.analytics.lake.segment_ids import SegmentId
from failback.analytics.lake.store import LakeStore, open_store
from failback.cli.measure.lake import main
from failback.client.consumelog.reader import missing_ranges
from failback.client.consumelog.upload.sealing import Shipper
from failback.common.files import append_line
from tests.support.analytics.collector_lab import write_log


def sealed(folder: Path) -> tuple[LakeStore, Catalogue]:
    """A lake that was written without a collector: it has no catalogue."""
    write_log(folder / "hot", deliveries=40)
    Shipper(folder / "hot", folder / "lake").seal_all(final=True)
    return open_store(folder / "lake"), Catalogue(folder / "lake")


def test_the_catalogue_is_made_again_from_the_files(tmp_path: Path) -> None:
    lake, catalogue = sealed(tmp_path)
    found = check_run(lake, catalogue, "lab", 5)
    assert (len(found.added), found.segments, found.vanished) == (
        found.segments,
        found.segments,
        (),
    )
    state = catalogue.load("lab")
    assert state.segments == found.segments
    assert state.procs[1].records == state.procs[1].last_seq > 80
    assert catalogue.missing("lab", {1: state.procs[1].last_seq}) == []
    again = check_run(lake, catalogue, "lab", 9)
    assert (again.added, again.vanished) == ((), ())
    assert {entry.stored_ms for entry in catalogue.entries("lab")} == {5}


def test_a_line_that_was_cut_costs_nobody_else(tmp_path: Path) -> None:
    lake, catalogue = sealed(tmp_path)
    check_run(lake, catalogue, "lab", 5)
    whole = list(catalogue.entries("lab"))
    file = catalogue.file("lab")
    file.write_bytes(file.read_bytes()[:-20])
    append_line(file, b'{"id":"nothing of ours"}')
    assert list(catalogue.entries("lab")) == whole[:-1]
    found = check_run(lake, catalogue, "lab", 6)
    assert found.added == (whole[-1].path,)
    assert sorted(e.id for e in catalogue.entries("lab")) == sorted(e.id for e in whole)


def test_a_file_that_is_gone_is_named_and_its_records_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake, catalogue = sealed(tmp_path)
    check_run(lake, catalogue, "lab", 5)
    victim = next(entry for entry in catalogue.entries("lab") if entry.table == "deliver")
    (tmp_path / "lake" / victim.path).unlink()
    other = next(entry for entry in catalogue.entries("lab") if entry.table == "life")
    (tmp_path / "lake" / other.path).write_bytes(b"damaged")
    assert main(["fsck", str(tmp_path / "lake")]) == 1
    assert victim.path in capsys.readouterr().out
    last = catalogue.load("lab").procs[1].last_seq
    (*_, hole) = catalogue.missing("lab", {1: last})
    assert hole["proc_no"] == 1
    assert main(["fsck", str(tmp_path / "lake")]) == 0


@pytest.mark.foreign
@pytest.mark.parametrize("command", ["fsck", "compact"])
def test_a_folder_that_is_no_lake_is_said(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", f"{tmp_path} holds no run: is it a lake?\n")


@pytest.mark.foreign
@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("show", []),
        ("query", ["FROM runs"]),
    ],
)
def test_what_reads_a_lake_refuses_another_folder(
    command: str, more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes").mkdir()
    assert main([command, str(tmp_path), *more]) == 2
    told = capsys.readouterr()
    assert told.err == f"error: {tmp_path} is no lake: it has no folder table=TABLE\n"
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_a_run_and_the_mark_of_another_have_different_names(tmp_path: Path) -> None:
    catalogue = Catalogue(tmp_path)
    catalogue.mark_changed("a", "a/b/0/life", "00", None)
    catalogue.replace("a.changed", [])
    assert catalogue.mark("a", CHANGED) != catalogue.file("a.changed")
    assert catalogue.runs() == ["a.changed"]
    assert catalogue.load("a").changed == 1


@pytest.mark.parametrize(
    ("last", "records", "ranges", "holes"),
    [
        (10, 10, [(1, 10)], []),
        (10, 7, [(1, 3), (7, 10)], [(4, 6)]),
        (10, 6, [(1, 3), (7, 9)], [(4, 6), (10, 10)]),
        (10, 0, [], [(1, 10)]),
        (10, 8, [(1, 5), (6, 10)], [(1, 10)]),
        (0, 0, [], []),
        (4, 9, [(1, 9)], []),
    ],
)
def test_missing_ranges(
    last: int, records: int, ranges: list[tuple[int, int]], holes: list[tuple[int, int]]
) -> None:
    assert missing_ranges(last, records, ranges) == holes


def test_what_is_kept_of_a_process_is_what_its_lines_say(tmp_path: Path) -> None:
    lake, catalogue = sealed(tmp_path)
    check_run(lake, catalogue, "lab", 5)
    entries = list(catalogue.entries("lab"))
    catalogue.mark_changed("lab", entries[0].id, "ab", None)
    append_line(catalogue.mark("lab", CHANGED), b'{"id": "cut')
    state = catalogue.load("lab")
    (proc,) = state.procs.values()
    assert (proc.host, proc.role, proc.heard_ms) == ("h", "consumer", 5)
    assert (proc.segments, proc.bytes) == (len(entries), sum(each.bytes for each in entries))
    assert (proc.deliveries, proc.missing) == (40, 0)
    assert (proc.quarantined, state.changed) == (1, 2)


def test_lines_of_an_older_collector_are_read(tmp_path: Path) -> None:
    lake, catalogue = sealed(tmp_path)
    check_run(lake, catalogue, "lab", 5)
    file = catalogue.file("lab")
    file.write_text(file.read_text().replace(',"host":"h","role":"consumer"', ""))
    assert '"host"' not in file.read_text()
    (proc,) = catalogue.load("lab").procs.values()
    assert (proc.host, proc.deliveries) == ("", 40)


def many_runs(folder: Path, count: int) -> Store:
    """A store with as many runs, one row of a catalogue each."""
    (folder / "tokens").touch()
    store = Store(CollectorSettings(folder, folder / "tokens"), lambda: 7)
    for number in range(count):
        entry = Entry(
            id=f"r{number}/p-1/0/life", sha256=None, path="x", bytes=9, proc="p-1", proc_no=1,
            index=0, table="life", seq_lo=1, seq_hi=1, rows=1, records=1, stored_ms=5,
        )  # fmt: skip
        store.catalogue.append(f"r{number}", entry)
    return store


def listed(store: Store) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    cursor: str | None = ""
    while cursor is not None:
        page = store.listing.page(cursor, 3)
        found |= {each.run: each.model_dump() for each in page.runs}
        cursor = page.next
    return found


def test_a_list_of_many_runs_reads_each_once_and_keeps_those_that_are_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "_RUNS_IN_MEMORY", 2)
    store = many_runs(tmp_path, 7)
    store.note_backlog(SegmentId("r0", "p-1", 1, "life"), 4_000)
    read: list[str] = []
    load = store.catalogue.load

    def noted(run: str) -> RunState:
        read.append(run)
        return load(run)

    monkeypatch.setattr(store.catalogue, "load", noted)
    for _ in range(3):
        found = listed(store)
        assert len(found) == 7
        assert found["r0"]["backlog_bytes"] == 4_000, "what its shipper said is not forgotten"
    assert sorted(read) == [f"r{number}" for number in range(1, 7)]


def test_a_run_that_changes_while_nobody_holds_it_is_read_again(tmp_path: Path) -> None:
    store = many_runs(tmp_path, 2)
    before = listed(store)["r1"]
    store.catalogue.mark_changed("r1", "r1/p-1/0/life", "ab", None)
    assert listed(store)["r1"] == before | {"quarantined": 1, "evidence_changed": True}
    store.catalogue.mark("r1", CLOSED).touch()
    assert listed(store)["r1"]["closed"] is True
    store.catalogue.file("r1").unlink()
    assert list(listed(store)) == ["r0"]
