"""Which answers of a broker have a source, and which contradict what it had been told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.report import make_report
from failback.analytics.report.make_report import read_report, report
from tests.support.analytics.run_builder import RunBuilder

MASTER = "127.0.0.1:10911"


@pytest.fixture(autouse=True)
def _without_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)


def points(b: RunBuilder, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = read_report(report(b.write(folder), "local").json)["resume_points"]
    return found


def look(
    b: RunBuilder, t: float, off: int | None, *, binc: int = 1, source: str = "code43"
) -> None:
    """A look into the master's table; without an entry of the queue it still has a size."""
    if off is not None:
        b.sample(t, off, binc=binc, source=source)
    b.sample(t, 1, binc=binc, source=source, qid=-1, grp="", ptopic="")


def owner(shown: int | None, *, pulls: int = 6, kind: str = "PULL") -> RunBuilder:
    """An owner from 0 to 6 s whose commits, 10 and up, leave the master's table at ``shown``."""
    b = RunBuilder("owner")
    b.assign(0, 0, at=(0, 1), end=(6000, "SHUTDOWN"), src_addr=MASTER)
    b.run_of(range(20), 10)
    look(b, 900, shown)
    for number in range(pulls):
        b.commit(2000 + 500 * number, 10 + number, kind=kind)
    for t in (5000, 6500, 7500):
        look(b, t, shown)
    return b


def answered(b: RunBuilder, start: int, src: str = "STORE", *, t: float = 7000) -> RunBuilder:
    """The next owner is told where to begin."""
    b.assign(t, start, proc=2, at=(0, 1), src=src, src_addr=MASTER)
    return b


def test_a_table_that_keeps_less_than_it_was_told_explains_nothing(tmp_path: Path) -> None:
    found = points(answered(owner(shown=3), 3), tmp_path / "r")
    assert found["unexplained_count"] == 1
    assert found["unexplained"][0]["start"] == 3
    assert found["unexplained"][0]["legal"] == [10, 11, 12, 13, 14, 15]


def test_no_entry_is_unexplained_where_one_had_been_told(tmp_path: Path) -> None:
    found = points(answered(owner(shown=None), 0, "NO_ENTRY"), tmp_path / "r")
    assert [row["start"] for row in found["unexplained"]] == [0]


def test_an_answer_of_nought_without_an_entry_is_the_same(tmp_path: Path) -> None:
    found = points(answered(owner(shown=None), 0), tmp_path / "r")
    assert [row["start"] for row in found["unexplained"]] == [0]


def lower_commit(b: RunBuilder) -> None:
    b.commit(6200, 3, proc=3)  # somebody else still believed to own the queue


def lower_commit_long_before(b: RunBuilder) -> None:
    b.commit(4900, 3, proc=3)


def lower_reset(b: RunBuilder) -> None:
    b.commit(6200, 3, proc=3, kind="ADMIN_RESET")


def another_life(b: RunBuilder) -> None:
    for row in b.rows["commit"]:
        row["binc"] = 2


def lost_at_the_slave(b: RunBuilder) -> None:
    for row in b.rows["commit"]:
        row["bid"] = 1


@pytest.mark.parametrize(
    "change",
    [lower_commit, lower_commit_long_before, lower_reset, another_life, lost_at_the_slave],
)
def test_what_speaks_for_the_table(change: Callable[[RunBuilder], None], tmp_path: Path) -> None:
    b = owner(shown=3)
    change(b)
    assert points(answered(b, 3), tmp_path / "r")["unexplained"] == []


@pytest.mark.parametrize(
    "b", [owner(shown=3, pulls=4), owner(shown=3, kind="TIMER")], ids=["few", "one-way"]
)
def test_commits_may_be_lost_on_their_way(b: RunBuilder, tmp_path: Path) -> None:
    assert points(answered(b, 3), tmp_path / "r")["unexplained"] == []


def test_an_entry_that_was_seen_before_and_after_was_there(tmp_path: Path) -> None:
    b = answered(owner(shown=15, kind="TIMER"), 0, "NO_ENTRY")
    assert points(b, tmp_path / "r")["unexplained"][0]["legal"] == [15]
    removed = answered(owner(shown=15, kind="TIMER"), 0, "NO_ENTRY", t=8000)
    look(removed, 8100, None)
    assert points(removed, tmp_path / "removed")["unexplained"] == []


def returned(fault: str = "kill", *, bak: int | None = 9) -> RunBuilder:
    """A master is killed whose files have an entry, and answers after its return without one."""
    b = RunBuilder("returned")
    b.assign(0, 0, at=(0, 1), end=(900, "SHUTDOWN"), src_addr=MASTER)
    b.run_of(range(20), 10)
    look(b, 800, 12)
    look(b, 850, 12, source="file")
    look(b, 850, bak, source="bak")
    b.fault("KILL", 1000, detail=f'{{"fault": "{fault}"}}')
    b.fault("ACCEPT", 3000, boot_ms=2)
    b.fault("HEALED", 3500)
    look(b, 3100, None, binc=2)
    b.assign(4000, 0, proc=2, at=(0, 2), src="NO_ENTRY", src_addr=MASTER)
    b.run_of(range(20), 4010, proc=2)
    return b


def test_a_master_that_ignores_its_file_is_found(tmp_path: Path) -> None:
    found = points(returned(), tmp_path / "r")
    assert found["unexplained"][0]["legal"] == [9, 12]


@pytest.mark.parametrize(
    "b", [returned("replace-offset-file"), returned(bak=None)], ids=["replaced", "first-write"]
)
def test_a_master_that_may_have_lost_its_file_is_not(b: RunBuilder, tmp_path: Path) -> None:
    assert points(b, tmp_path / "r")["unexplained"] == []


def test_a_master_that_lost_its_log_may_have_lost_its_file(tmp_path: Path) -> None:
    b = returned()
    b.queue_sample(800, 20)
    b.queue_sample(3100, 0, binc=2)
    assert points(b, tmp_path / "r")["unexplained"] == []
