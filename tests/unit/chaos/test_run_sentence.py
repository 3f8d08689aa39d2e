"""The one sentence that ends a run: what went wrong, in the order in which it matters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from failback.chaos.run.repetition import _sentence
from failback.chaos.run.verdict import FaultProof, Observations, judge

FINE = Observations(
    steady=True,
    steady_why="",
    faults=(FaultProof("f1", True),),
    expected_faults=1,
    recovered=True,
    recovered_why="",
    drained=True,
    drain_why="",
    scanned=True,
    gaps=(),
    aborted="",
    deliveries={"billing": 5},
)
IN_WARM_UP = replace(
    FINE, steady=None, faults=(), recovered=None, drained=None, scanned=None, aborted=""
)


@pytest.mark.parametrize(
    ("seen", "left", "told"),
    [
        (FINE, [], ""),
        (
            replace(IN_WARM_UP, aborted="stopped by SIGTERM"),
            [],
            "stopped by SIGTERM; healed: all that was done is undone",
        ),
        (
            replace(IN_WARM_UP, aborted="stopped by SIGINT"),
            ["release pod-0"],
            "not healed: release pod-0; run: failback experiment heal r",
        ),
        (
            replace(FINE, steady=False, steady_why="no traffic"),
            [],
            "Inconclusive (STEADY_STATE) steady_before: no traffic",
        ),
    ],
)
def test_a_run_ends_with_what_a_person_has_to_know(
    seen: Observations, left: list[str], told: str
) -> None:
    assert _sentence(judge(seen), left, Path("r")) == told
