"""The page on versions: what a report must hold to be in it."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from tools.versions import NotExact, page, read

HANDOVER: dict[str, Any] = {
    "arm": "handover",
    "system": {"engine": "apache", "version": "V5_3_3", "rules": "compat"},
    "totals": {"delivered": 130, "distinct": 100, "dup": 30, "lost": 0},
    "groups": [{"causes": {"ROLLBACK_SLAVE_ONLY_PROGRESS": 20, "ROLLBACK_RESTART": 8,
                           "SEND_TIMEOUT_DUP": 2}}],
    "rto": [{"produce_ms": 60_000.0, "consume_ms": {"max": 11_000.0}}],
    "handover": [
        {"qid": 1, "consumed": 50, "loaded": 40, "observed": 10},
        {"qid": 0, "consumed": 60, "loaded": 42, "observed": 18},
    ],
}  # fmt: skip


def test_a_report_that_adds_up_is_a_row_and_a_row_for_each_queue() -> None:
    text = page([read(HANDOVER)])
    row = "| Apache 5.3.3 | handover | 130 | 30 (30.0 %) | 20 | 8 | 2 | 0 | 60.0 s | 11.0 s |"
    assert row in text
    assert "| Apache 5.3.3 | 0 | 60 | 42 | 18 |\n| Apache 5.3.3 | 1 | 50 | 40 | 10 |" in text


def less_again(report: dict[str, Any]) -> None:
    report["handover"][0]["observed"] = 9


def other_sum(report: dict[str, Any]) -> None:
    report["groups"][0]["causes"] = {"ROLLBACK_RESTART": 29, "SEND_TIMEOUT_DUP": 1}


def no_cause(report: dict[str, Any]) -> None:
    report["totals"]["dup"] = 31


def nobody_came(report: dict[str, Any]) -> None:
    report["handover"] = []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (less_again, "Apache 5.3.3, handover: queue 1: 9 came again, not 10"),
        (other_sum, "29 messages were rolled back, not the sum of the queues"),
        (no_cause, "31 messages came again, 30 have a cause"),
        (nobody_came, "no queue was taken anew from the returned master"),
    ],
)
def test_a_report_that_does_not_add_up_makes_no_page(
    change: Callable[[dict[str, Any]], None], problem: str
) -> None:
    report = deepcopy(HANDOVER)
    change(report)
    with pytest.raises(NotExact, match=problem):
        read(report)
