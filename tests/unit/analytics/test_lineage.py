"""The story of an offset, step by step, on the hand-made cases."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from failback.analytics.analysis.lineage import COMMIT, Lineage, lineage, queues_named
from failback.analytics.lake.lake import open_lake
from failback.analytics.run.folder_reading import read_run_folder
from failback.analytics.run.history import GroupQueue
from failback.analytics.run.history_reading import read_history
from failback.client.admin.queue_offsets import ANSWER
from tests.support.analytics.cases import CASES
from tests.support.analytics.run_builder import MS, RunBuilder

QUEUE = GroupQueue("g", "broker-a", "T", 0)
END = 10_000 * MS

START = datetime.fromtimestamp(0)
"""Of a process whose begin is 1 ms after 1970."""


def story(b: RunBuilder, folder: Path, until: int = END) -> Lineage:
    run = read_run_folder(b.write(folder / "r"))
    lake = open_lake(run.lake, run.run_id)
    history = read_history(run, lake)
    assert queues_named(history, "g", "T", 0) == [QUEUE]
    return lineage(history, lake, QUEUE, until)


def chain(found: Lineage) -> list[tuple[str, int | None, int]]:
    return [(step.place, step.offset, step.fell) for step in found.steps]


STORIES = {
    "c2": (
        [("answer", 0, 0), ("commit", 2, 0), ("commit", 5, 0), ("broker", None, 0),
         ("broker", None, 0), ("answer", 2, 3)],
        "started again from a file that is older",
        5,
    ),
    "c3": (
        [("answer", 0, 0), ("commit", 1, 0), ("commit", 4, 0), ("answer", 1, 3)],
        "only the slave had been told",
        4,
    ),
    "c10": (
        [("answer", 0, 0), ("commit", 4, 0), ("answer", 4, 0), ("commit", 2, 0),
         ("answer", 2, 2)],
        "this very process had been told more",
        4,
    ),
    "c19": (None, "started again from a file that is older", 5),
    "c20": (None, "this very process had been told more", 4),
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
def test_the_story_of_a_case(name: str, tmp_path: Path) -> None:
    steps, why, safe = STORIES[name]
    builder, _ = CASES[name]()
    found = story(builder, tmp_path)
    if steps is not None:
        assert chain(found) == steps
    assert found.fell_at is not None
    assert found.fell_at.place == ANSWER
    assert why in found.fell_at.what
    assert found.safe_offset == safe
    rows = {
        f"{table}/{row['proc_no']}/{row['seq']}"
        for table in ("commit", "assign")
        for row in builder.rows[table]
    }
    assert {step.row for step in found.steps if step.place in (COMMIT, ANSWER)} <= rows


def test_only_what_had_happened_by_then(tmp_path: Path) -> None:
    builder, _ = CASES["c2"]()
    found = story(builder, tmp_path, 50 * MS)
    assert chain(found) == [("answer", 0, 0), ("commit", 2, 0)]
    assert found.fell_at is None
    assert found.unseen == ("master table", "master file", "slave table")


def test_tables_and_files_show_restart_and_overwrite(tmp_path: Path) -> None:
    b = RunBuilder("tables")
    b.assign(0, 0)
    b.commit(10, 7)
    for t, off, binc in ((20, 7, 1), (21, 7, 1), (40, 3, 2), (60, 2, 2)):
        b.sample(t, off, binc=binc)
    b.sample(30, 3, source="file")
    b.sample(20, 7, bid=1, binc=9)
    b.sample(70, 2, bid=1, binc=9)
    found = story(b, tmp_path)
    assert [(s.place, s.offset, s.fell, s.what.rpartition(": ")[2]) for s in found.steps[2:]] == [
        ("master table", 7, 0, f"the master, started {START} held 7"),
        ("slave table", 7, 0, f"slave 1, started {START} held 7"),
        ("master file", 3, 0, f"the master, started {START} held 3"),
        ("master table", 3, 4, "it had started again"),
        ("master table", 2, 1, "it was overwritten"),
        ("slave table", 2, 5, "it was overwritten"),
    ]
    assert found.fell_at is found.steps[-1]
    assert found.safe_offset == 7
    assert found.unseen == ()


def test_a_reset_is_no_fall(tmp_path: Path) -> None:
    b = RunBuilder("reset")
    b.assign(0, 0, end=(50, "RESET"))
    b.commit(10, 7)
    b.commit(60, 2, kind="ADMIN_RESET", proc=5)
    b.assign(70, 2, proc=2)
    found = story(b, tmp_path)
    assert chain(found)[-2:] == [("reset", 2, 0), ("answer", 2, 0)]
    assert found.safe_offset == 2


def test_a_commit_that_did_not_leave_is_told_but_counts_for_nothing(tmp_path: Path) -> None:
    b = RunBuilder("lost")
    b.assign(0, 0)
    b.commit(10, 3)
    b.commit(20, 9, sent=False)
    b.assign(30, 3, proc=2)
    found = story(b, tmp_path)
    assert chain(found) == [("answer", 0, 0), ("commit", 3, 0), ("commit", None, 0),
                            ("answer", 3, 0)]  # fmt: skip
    assert "did not reach" in found.steps[2].what
    assert found.safe_offset == 3
