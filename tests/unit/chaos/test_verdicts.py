"""Verdicts never pass by lack of data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.chaos.run.verdict import (
    Check,
    FaultProof,
    Observations,
    ReasonCode,
    Verdict,
    judge,
    merge,
)

GOOD = Observations(
    steady=True,
    steady_why="",
    faults=(FaultProof("f1", proved=True),),
    expected_faults=1,
    recovered=True,
    recovered_why="",
    drained=True,
    drain_why="",
    scanned=True,
    gaps=(),
    aborted="",
    deliveries={"billing": 10},
)


@given(st.lists(st.sampled_from(Verdict), max_size=6))
def test_fail_wins_over_inconclusive_over_pass(verdicts: list[Verdict]) -> None:
    merged = merge([Check("x", verdict) for verdict in verdicts])
    if Verdict.FAIL in verdicts:
        assert merged is Verdict.FAIL
    elif Verdict.INCONCLUSIVE in verdicts or not verdicts:
        assert merged is Verdict.INCONCLUSIVE
    else:
        assert merged is Verdict.PASS


def test_a_run_with_everything_proved_passes() -> None:
    assert merge(judge(GOOD)) is Verdict.PASS


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"steady": None}, ReasonCode.STEADY_STATE),
        ({"steady": False, "steady_why": "slow"}, ReasonCode.STEADY_STATE),
        ({"faults": (FaultProof("f1", False, "exit 0"),)}, ReasonCode.FAULT_NOT_PROVED),
        ({"faults": ()}, ReasonCode.FAULT_NOT_PROVED),
        ({"gaps": ("hole",)}, ReasonCode.RECORDER_GAP),
        ({"drained": False, "drain_why": "queue 3"}, ReasonCode.NO_DRAIN),
        ({"drained": None}, ReasonCode.NO_DRAIN),
        ({"scanned": False}, ReasonCode.NO_DRAIN),
        ({"recovered": None}, ReasonCode.ABORTED),
        ({"aborted": "Ctrl-C"}, ReasonCode.ABORTED),
        ({"clock_steps": 1}, ReasonCode.CLOCK),
        ({"deliveries": {"billing": 0}}, ReasonCode.NO_TRAFFIC),
    ],
)
def test_what_is_not_known_is_inconclusive(change: dict[str, Any], code: ReasonCode) -> None:
    checks = judge(replace(GOOD, **change))
    assert merge(checks) is Verdict.INCONCLUSIVE
    assert code in [check.code for check in checks]


def test_a_broker_that_does_not_come_back_fails_the_run() -> None:
    checks = judge(replace(GOOD, recovered=False, recovered_why="f1 (pair-0) is not healed"))
    assert merge(checks) is Verdict.FAIL
    assert "pair-0" in next(check.detail for check in checks if check.verdict is Verdict.FAIL)
