"""A run that is going on is read a little further with each look."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.dashboard.sources.live_run import LiveRun
from failback.analytics.dashboard.views.lanes import live_data, live_figure, title_of
from failback.analytics.report.page.figures.theme import DARK
from failback.client.consumelog.writer import ConsumeLog
from tests.support.clients.consumelog import begin

SECOND = 1_000_000_000
RUN: dict[str, Any] = {
    "run": "r",
    "zero": {"wall_ns": 100 * SECOND},
    "drawn": {"at_seconds": {"f1": 6.0, "f2": 0.0}},
    "faults": [
        {"id": "f1", "fault": "kill", "target": {"pair": "pair-0", "role": "master"}},
        {"id": "f2", "fault": "kill-consumer", "target": {"group": "billing"},
         "with": {"after": "slave-serving:f1"}},
    ],
}  # fmt: skip


def open_run(folder: Path) -> LiveRun:
    (folder / "hot").mkdir()
    (folder / "logs").mkdir()
    (folder / "run.json").write_text(json.dumps(RUN))
    return LiveRun.open("r", folder)


def note(folder: Path, **row: Any) -> None:
    with (folder / "evidence.jsonl").open("a") as file:
        file.write(json.dumps({"fault": "kill", "victims": [{"pod": "demo-0-0-0"}], **row}) + "\n")


def test_deliveries_are_counted_once_each_and_repeats_by_their_offsets(tmp_path: Path) -> None:
    live = open_run(tmp_path)
    with ConsumeLog(tmp_path / "hot", run="r", proc_no=1, role="consumer", host="h",
                    sync_seconds=0) as log:  # fmt: skip
        for n in range(10):
            log.deliver_end(begin(log, n), "SUCCESS", True, n)
        live.look(101 * SECOND)
        assert (live.counters.delivered, live.counters.handled, live.counters.dup) == (10, 10, 0)
        live.look(102 * SECOND)
        assert live.counters.delivered == 10, "nothing new, nothing counted"
        for n in (5, 6, 6, 11):
            begin(log, n)
        begin(log, 5, grp="other")
        live.look(103 * SECOND)
    assert (live.counters.delivered, live.counters.dup, live.counters.handled) == (15, 3, 10)
    found = live_data(live)
    assert (found.seconds, found.delivered) == ([2.0, 3.0], [0.0, 5.0])
    (tmp_path / "run.json").write_text(json.dumps(RUN | {"zero": {"wall_ns": 102 * SECOND}}))
    live.look(104 * SECOND)
    assert live_data(live).seconds == [0.0, 1.0, 2.0], "run zero was set, and all moved with it"


def test_run_zero_is_when_the_harness_said_so_long_before_run_json_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = open_run(tmp_path)
    live.look(101 * SECOND)
    monkeypatch.setattr("failback.client.consumelog.writer._wall_ns", lambda: 104 * SECOND)
    with ConsumeLog(tmp_path / "hot", run="r", proc_no=0, role="harness", host="h",
                    sync_seconds=0) as log:  # fmt: skip
        log.write("life", state="STARTED")
        live.look(105 * SECOND)
        assert live.zero_ns == 100 * SECOND
        log.write("life", state="RUN_ZERO")
        live.look(106 * SECOND)
    assert live_data(live).seconds == [1.0, 2.0]


def test_faults_go_from_intended_to_seen_to_healed(tmp_path: Path) -> None:
    live = open_run(tmp_path)
    first, second = live.faults.values()
    assert (first.intended_ns, second.intended_ns) == (6 * SECOND, None)
    assert first.victim == "master of pair-0"
    assert title_of(live_data(live)) == "No fault yet"
    note(tmp_path, fid="f1", intended_ns=6 * SECOND, issued_ns=[6 * SECOND + 1, 6 * SECOND + 2],
         observed={"gone_ns": 6 * SECOND + 5}, proved=True)  # fmt: skip
    assert live.look(107 * SECOND) == {"counters", "fault"}
    assert (first.effect_ns, first.heal_ns) == (6 * SECOND + 5, None)
    assert title_of(live_data(live)) == "kill of demo-0-0-0 is in effect"
    note(tmp_path, fid="f1", observed={"gone_ns": 6 * SECOND + 5, "healed_ns": 60 * SECOND})
    live.look(161 * SECOND)
    assert live.faults["f1"].heal_ns == 60 * SECOND
    assert title_of(live_data(live)) == "1 of 2 faults are healed"


def test_each_fault_has_a_lane_hatched_as_intended_and_solid_as_seen(tmp_path: Path) -> None:
    live = open_run(tmp_path)
    note(tmp_path, fid="f1", observed={"gone_ns": 7 * SECOND})
    live.look(110 * SECOND)
    figure = live_figure(live_data(live), DARK)
    bars = [each for each in figure.data if each.type == "bar"]
    assert [(bar.y[0], bar.marker.pattern.shape) for bar in bars] == [
        ("f1 kill", "/"), ("f1 kill", None), ("f2 kill-consumer", None),
    ]  # fmt: skip
    assert (bars[0].base[0], bars[0].x[0]) == (6.0, 1.0)
    assert (bars[1].base[0], bars[1].x[0]) == (7.0, 3.0), "until now"
    assert bars[2].text[0] == "waits for another fault"


def test_phases_are_what_the_harness_says(tmp_path: Path) -> None:
    live = open_run(tmp_path)
    assert live.phase == "starting"
    log = tmp_path / "logs" / "harness.log"
    log.write_text(
        "2026-11-22 18:37:08,284 INFO MainThread failback.chaos.run.repetition warming up\n"
        "2026-11-22 18:37:08,285 INFO MainThread chaostoolkit Probe: no-fault-left\n"
        "2026-11-22 18:37:24,334 INFO MainThread failback.chaos.run.repetition run ze"
    )
    assert live.look(101 * SECOND) == {"counters", "phase"}
    assert live.phase == "warming up"
    with log.open("a") as file:
        file.write("ro\n")
    live.look(102 * SECOND)
    assert live.phase == "run zero", "a line that was half there comes whole"


def test_garbage_harms_nothing(tmp_path: Path) -> None:
    live = open_run(tmp_path)
    (tmp_path / "evidence.jsonl").write_text('{"no": 1}\nnonsense\n[1]\n')
    (tmp_path / "hot" / "x.fblog").write_bytes(b"\x05\x00\x00\x00nonsense and more")
    (tmp_path / "run.json").write_text("{")
    assert live.look(101 * SECOND) == {"counters"}
