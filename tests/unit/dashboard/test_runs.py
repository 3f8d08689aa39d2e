"""Run folders are found, read again when they change, and never locked."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from failback.analytics.dashboard.sources.runs import RunIndex, chosen, read_points
from failback.analytics.dashboard.views.message_steps import messages_of, story
from failback.analytics.dashboard.views.run_blocks import (
    blocks_of,
    figure_json,
    figure_makers,
    queue_of,
    staircase_of,
)
from failback.analytics.report.measures.point_rows import Point
from failback.analytics.report.measures.points import table_of
from tests.support.analytics.sample_report import sample_points, sample_report
from tests.support.dashboard.dashboard_lab import MESSAGE, OTHER_RUN, RUN, write_run


def test_runs_are_found_with_what_their_reports_say(tmp_path: Path) -> None:
    write_run(tmp_path / "a" / "handover", RUN, "handover", zero_ns=1)
    write_run(tmp_path / "a" / "stay", OTHER_RUN, "stay", zero_ns=2, dup=0)
    (tmp_path / "a" / "roots" / "x").mkdir(parents=True)
    (tmp_path / "a" / "roots" / "x" / "run.json").write_text("{}")
    newest, oldest = RunIndex(tmp_path).scan()
    assert (newest.run, oldest.run) == (OTHER_RUN, RUN)
    assert (oldest.verdict, oldest.dup, oldest.lost, oldest.state) == ("Pass", 40, 0, "reported")
    assert oldest.folder == "a/handover"
    assert oldest.document()["started"] == "1970-01-01T00:00:00Z"


def test_a_folder_goes_from_running_to_orphaned_to_closed(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps({"run": "r", "zero": {"wall_ns": 5}}))
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    index = RunIndex(tmp_path)
    (folder / "lock").write_text(json.dumps({"pid": os.getpid(), "ticks": ticks}))
    assert [each.state for each in index.scan()] == ["running"]
    (folder / "lock").write_text(json.dumps({"pid": os.getpid(), "ticks": ticks + 1}))
    (orphan,) = index.scan()
    assert (orphan.state, orphan.next_step) == ("orphaned", f"failback experiment heal {folder}")
    (folder / "closed.json").write_text("{}")
    (folder / "manifest.json").write_text("{}")
    (closed,) = index.scan()
    assert (closed.state, closed.next_step) == ("closed", f"failback report {folder}")


def test_a_run_of_another_machine_goes_on_while_its_files_change(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    (folder / "hot").mkdir(parents=True)
    (folder / "hot" / "1.fblog").touch()
    (folder / "run.json").write_text(json.dumps({"run": "r", "zero": {"wall_ns": 5}}))
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    note = {"pid": os.getpid(), "ticks": ticks, "space": "another/pid:[1]"}
    (folder / "lock").write_text(json.dumps(note))
    index = RunIndex(tmp_path)
    assert [each.state for each in index.scan()] == ["running"]
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (5, 5))
    assert [each.state for each in index.scan()] == ["orphaned"], "its pid is somebody else's here"
    os.utime(folder / "hot" / "1.fblog")
    assert [each.state for each in index.scan()] == ["running"]


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"run": "../x"}', '{"run": "a", "zero": 1}', "{}",
     '{"run": "a", "zero": {"wall_ns": 1e300}}', '{"run": "a", "zero": {"wall_ns": 1e999}}'],
)  # fmt: skip
def test_a_run_that_cannot_be_read_says_why(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_run(tmp_path / "good", RUN, "handover")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text(text)
    index = RunIndex(tmp_path)
    for _ in range(3):
        found = {each.run: each for each in index.scan()}
        states = {name: each.state for name, each in found.items()}
        assert states == {RUN: "reported", "bad": "unreadable"}
        assert str(tmp_path / "bad") in found["bad"].sentence
    assert len(caplog.records) == 1, "said once, and not with every look"
    (tmp_path / "bad" / "run.json").write_text('{"run": "mended", "zero": {"wall_ns": 7}}')
    os.utime(tmp_path / "bad" / "run.json", ns=(5, 5))
    assert len(index.scan()) == 2


def test_runs_are_chosen_by_experiment_verdict_state_and_text(tmp_path: Path) -> None:
    write_run(tmp_path / "a", RUN, "handover")
    write_run(tmp_path / "b", OTHER_RUN, "stay")
    found = RunIndex(tmp_path).scan()
    assert len(chosen(found, experiment="demo", verdict="Pass")) == 2
    assert [each.arm for each in chosen(found, text="HANDOVER-0")] == ["handover"]
    assert len(chosen(found, verdict="reported")) == 2
    assert chosen(found, verdict="Fail") == []


def test_every_block_has_its_figures_and_they_can_be_drawn() -> None:
    report, points = sample_report(), sample_points()
    drawn = figure_makers(report, points)
    blocks = {block.anchor: block for block in blocks_of(report, points, drawn, "/runs/r")}
    shown = [name for block in blocks.values() for name, _ in block.figures]
    assert sorted(shown) == sorted(drawn)
    assert {"timeline", "staircase-0", "causes", "intervals", "rto-0", "bounds"} <= set(shown)
    for theme in ("light", "dark"):
        for _, draw in drawn.values():
            figure = json.loads(figure_json(draw, theme))
            assert figure["data"]
            assert "template" not in figure["layout"]
    order = list(blocks)
    assert order[:3] == ["why", "change", "queues"], "the answer comes first"
    assert order[-1] == "run-card"
    assert blocks["why"].figures[0][0] == "staircase-0"
    assert not blocks["timeline"].folded
    assert blocks["checks"].folded
    queues = blocks["queues"].tables[0]
    assert queues.links == ["/runs/r/queues/0"]
    queue = queue_of(report, 0)
    assert queue is not None
    assert staircase_of(drawn, queue) == (
        "staircase-0", "Offsets of orders demo-0/0, group billing",
    )  # fmt: skip
    assert queue_of(report, 1) is None


def test_a_messages_story_has_every_step_in_order(tmp_path: Path) -> None:
    write_run(tmp_path, RUN, "handover")
    steps = story(tmp_path / "lake", MESSAGE, 1_000_000_000)
    assert [(each["seconds"], each["kind"]) for each in steps] == [
        (2.0, "sent"), (3.0, "delivered"), (3.0, "handled"),
        (84.0, "delivered again"), (84.0, "handled"),
    ]  # fmt: skip
    assert story(tmp_path / "lake", "00000001-00000000009", 0) == []
    (again,) = messages_of(tmp_path / "lake", "billing", "demo-0", "orders", 0, 10)
    assert again == {"offset": 210, "deliveries": 2, "message": MESSAGE}


def test_points_keep_every_digit_of_an_offset(tmp_path: Path) -> None:
    point = Point("master_file", "billing", "b-0", "orders", 1, 5, 2**53 + 1, None)
    path = tmp_path / "figures-data.parquet"
    pq.write_table(table_of([point]), path)
    assert read_points(path) == [point]
