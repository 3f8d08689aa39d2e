"""The page on versions: what a report must hold to be in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tools.versions import HEAD, PAGE, ROOT, NotExact, page, read

HANDOVER: dict[str, Any] = {
    "arm": "handover",
    "system": {"engine": "apache", "version": "V5_3_3", "rules": "compat"},
    "verdict": {"value": "Pass", "reasons": []},
    "totals": {"delivered": 128, "distinct": 100, "dup": 28, "lost": 0},
    "groups": [{"causes": {"ROLLBACK_SLAVE_ONLY_PROGRESS": 20, "ROLLBACK_RESTART": 8}}],
    "rto": [{"produce_ms": 60_000.0, "consume_ms": {"max": 11_000.0}}],
    "handover": [
        {"qid": 1, "consumed": 50, "loaded": 40, "observed": 10},
        {"qid": 0, "consumed": 60, "loaded": 42, "observed": 18},
    ],
}  # fmt: skip


def test_a_report_that_adds_up_is_a_row_and_a_row_for_each_queue() -> None:
    text = page([read(HANDOVER)])
    row = "| Apache 5.3.3 | handover | 128 | 28 (28.0 %) | 20 | 8 | 0 | 60.0 s | 11.0 s |"
    assert row.replace("%) |", "%) | not run |") in text
    assert "| Apache 5.3.3 | 0 | 60 | 42 | 18 |\n| Apache 5.3.3 | 1 | 50 | 40 | 10 |" in text


def test_what_came_again_with_carry_stands_beside_the_handover_it_is_compared_with() -> None:
    carried = deepcopy(HANDOVER) | {"arm": "carried", "groups": [{"causes": {}}]}
    carried["totals"] = {"delivered": 1_200, "distinct": 1_200, "dup": 0, "lost": 0}
    carried["handover"] = [{"qid": 0, "consumed": 60, "loaded": 60, "observed": 0}]
    stay = HANDOVER | {"arm": "stay"}
    text = page([read(each) for each in (stay, HANDOVER, carried)])
    rows = [line.split(" | ")[1:5] for line in text.splitlines() if line.startswith("| Apache")]
    assert rows[:2] == [
        ["stay", "128", "28 (28.0 %)", "–"],
        ["handover", "128", "28 (28.0 %)", "0 of 1,200"],
    ]
    assert "| carried |" not in text
    carried["handover"] = []
    with pytest.raises(NotExact, match="carried: no queue was taken again"):
        read(carried)


def test_the_page_is_one_that_the_command_prints() -> None:
    assert PAGE.read_text().startswith(HEAD)


def less_again(report: dict[str, Any]) -> None:
    report["handover"][0]["observed"] = 9


def other_cause(report: dict[str, Any]) -> None:
    report["groups"][0]["causes"] = {"ROLLBACK_RESTART": 27, "SEND_TIMEOUT_DUP": 1}


def other_sum(report: dict[str, Any]) -> None:
    report["totals"]["dup"] = 31


def failed(report: dict[str, Any]) -> None:
    detail = "totals.lost == 0 was missed: 3"
    report["verdict"] = {"value": "Fail", "reasons": [{"detail": detail}]}


def nobody_came(report: dict[str, Any]) -> None:
    report["handover"] = []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (less_again, "Apache 5.3.3, handover: queue 1: 9 were re-consumed, not 10"),
        (other_cause, "28 messages were re-consumed, of these causes: .*'SEND_TIMEOUT_DUP': 1"),
        (other_sum, "31 messages were re-consumed, not 28 as by its queues"),
        (failed, "Apache 5.3.3, handover: the verdict is Fail; totals.lost == 0 was missed: 3"),
        (nobody_came, "no queue was taken again from the returned master"),
    ],
)
def test_a_report_that_does_not_add_up_makes_no_page(
    change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    report = deepcopy(HANDOVER)
    change(report)
    with pytest.raises(NotExact, match=problem):
        read(report)


def test_every_row_that_is_wrong_is_named(tmp_path: Path) -> None:
    for change in (less_again, failed):
        report = deepcopy(HANDOVER)
        change(report)
        folder = tmp_path / change.__name__ / "report"
        folder.mkdir(parents=True)
        (folder / "report.json").write_text(json.dumps(report))
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "versions.py", "--runs", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Apache 5.3.3, handover: queue 1: 9 were re-consumed, not 10\n" in done.stderr
    assert "Apache 5.3.3, handover: the verdict is Fail; totals.lost" in done.stderr
    assert "Failback, guarded, stay: no good report\n" in done.stderr
    assert f"no page; the runs are in {tmp_path}" in done.stderr
