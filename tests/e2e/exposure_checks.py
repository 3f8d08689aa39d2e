"""Exposure as it was shown before a kill, against the repeats after it and the predictor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from failback.analytics.predict.faults import FaultPlan, Start, Stop
from failback.analytics.predict.prediction import Prediction, predict
from failback.analytics.predict.questions import Asked
from failback.cli.measure.predict_sources import read_questions
from tests.e2e.brute_force import BruteForce, Row
from tests.e2e.exposure_watch import Look

MEMBERS_DIE_TOO: Final = FaultPlan(
    "members-die-too",
    "master and members die together, members start after its return: nothing more is consumed",
    "1+2+3",
    stop=Stop("outage", 0.0, signal="KILL"),
    start=Start(1.0, after_return=True),
)
"""What exposure is about: the progress at the kill that the master's file does not have."""


@dataclass(frozen=True)
class Agreement:
    """One arm: shown before its kill, observed after it, and what was to be expected."""

    shown: Look
    observed: int
    """Repeats of what had been delivered before the kill."""
    expected: Prediction

    def __str__(self) -> str:
        band = f"{self.expected.p5:.0f} to {self.expected.p95:.0f}"
        return (
            f"shown {self.shown.after_return}, observed {self.observed}, predicted"
            f" {self.expected.median:.0f} ({band}, worst {self.expected.worst})"
        )

    def check(self, *, lower: float, upper: float) -> None:
        """Both lie in the band, widened by these factors, and nothing above the worst case."""
        low, high = self.expected.p5 * lower, self.expected.p95 * upper
        assert self.shown.after_return is not None
        assert low <= self.shown.after_return <= high, str(self)
        assert low <= self.observed <= high, str(self)
        assert self.observed <= self.expected.worst, str(self)


def agreement(run_dir: Path, arm: str, looks: Sequence[Look]) -> Agreement:
    """Read it from an ended run and the looks at it."""
    counted = BruteForce(run_dir)
    kill = counted.step("KILL")["observed"]
    before = [
        each for each in looks
        if each.arm == arm and each.master_answers and each.after_return is not None
        and each.at_ns < wall_ns(run_dir, kill)
    ]  # fmt: skip
    assert before, f"no exposure of {arm} was shown before its kill: {looks[:50]}"
    (question,) = read_questions(str(run_dir), Asked({}))
    return Agreement(
        shown=before[-1],
        observed=len(begun_before(counted, kill)),
        expected=predict(question.settings, MEMBERS_DIE_TOO),
    )


def risks_while_away(run_dir: Path, arm: str, looks: Sequence[Look]) -> list[int]:
    """What was shown to be at risk from the kill to the return, in order."""
    counted = BruteForce(run_dir)
    gone, back = (wall_ns(run_dir, counted.step(kind)["observed"]) for kind in ("KILL", "ACCEPT"))
    return [
        each.at_risk for each in looks
        if each.arm == arm and not each.master_answers and each.at_risk is not None
        and gone < each.at_ns < back
    ]  # fmt: skip


def begun_before(counted: BruteForce, instant: int) -> list[Row]:
    """The repeats of messages whose first delivery began before an instant (monotonic ns)."""
    first: dict[tuple[str, int, int], int] = {}
    for row in counted.deliveries:  # by begin
        first.setdefault((row["grp"], row["lane"], row["lseq"]), row["bt"])
    return [
        row for row in counted.duplicates()
        if first[row["grp"], row["lane"], row["lseq"]] < instant
    ]  # fmt: skip


def wall_ns(run_dir: Path, monotonic_ns: int) -> int:
    """An instant of a run's clock as Unix time."""
    zero = json.loads((run_dir / "run.json").read_text())["zero"]
    return int(zero["wall_ns"]) + monotonic_ns - int(zero["mono_ns"])
