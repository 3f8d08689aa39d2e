"""Pass, Fail or Inconclusive: the lattice of verdicts and the reasons of the harness. Pure.

The harness decides only what it saw itself: was the fault proved, did the recorder record, did the
run recover and drain. The analysis counts the duplicates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Merge order: Fail over Inconclusive over Pass."""

    PASS = "Pass"
    FAIL = "Fail"
    INCONCLUSIVE = "Inconclusive"


class ReasonCode(Enum):
    """Why something is Inconclusive."""

    FAULT_NOT_PROVED = "FAULT_NOT_PROVED"
    RECORDER_GAP = "RECORDER_GAP"
    NO_DRAIN = "NO_DRAIN"
    STEADY_STATE = "STEADY_STATE"
    CLOCK = "CLOCK"
    NO_TRAFFIC = "NO_TRAFFIC"
    ABORTED = "ABORTED"


@dataclass(frozen=True, slots=True)
class Check:
    """One answered question. ``code`` is set for Inconclusive, ``detail`` says why in words."""

    name: str
    verdict: Verdict
    code: ReasonCode | None = None
    detail: str = ""


def passed(name: str, detail: str = "") -> Check:
    return Check(name, Verdict.PASS, None, detail)


def failed(name: str, detail: str) -> Check:
    return Check(name, Verdict.FAIL, None, detail)


def inconclusive(name: str, code: ReasonCode, detail: str) -> Check:
    return Check(name, Verdict.INCONCLUSIVE, code, detail)


_RANK = {Verdict.PASS: 0, Verdict.INCONCLUSIVE: 1, Verdict.FAIL: 2}


def merge(checks: Iterable[Check]) -> Verdict:
    """Merge checks. No check at all is Inconclusive: nothing was looked at."""
    verdicts = [check.verdict for check in checks]
    if not verdicts:
        return Verdict.INCONCLUSIVE
    return max(verdicts, key=_RANK.__getitem__)


@dataclass(frozen=True, slots=True)
class FaultProof:
    """What was proved of one fault."""

    fid: str
    proved: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Observations:
    """Everything that the harness knows at the end of a run. ``None``: never got that far."""

    steady: bool | None
    steady_why: str
    faults: tuple[FaultProof, ...]
    expected_faults: int
    recovered: bool | None
    recovered_why: str
    drained: bool | None
    drain_why: str
    scanned: bool | None
    gaps: tuple[str, ...]
    aborted: str
    """Why the run was stopped early, and by which part; empty when it was not."""
    deliveries: dict[str, int]
    clock_steps: int = 0


def judge(seen: Observations) -> tuple[Check, ...]:
    """Return the harness's own checks, in the order of the phases."""
    checks = [_steady(seen), *_proved(seen), _recovered(seen), _recorder(seen), _drained(seen)]
    checks += _traffic(seen)
    if seen.clock_steps:
        checks.append(
            inconclusive("clock", ReasonCode.CLOCK, f"{seen.clock_steps} wall clock steps")
        )
    if seen.aborted:
        checks.append(inconclusive("finished", ReasonCode.ABORTED, seen.aborted))
    return tuple(checks)


def _steady(seen: Observations) -> Check:
    if seen.steady:
        return passed("steady_before")
    why = seen.steady_why or "the steady state was not reached"
    return inconclusive("steady_before", ReasonCode.STEADY_STATE, why)


def _proved(seen: Observations) -> list[Check]:
    checks = [
        passed(f"fault_proved:{fault.fid}")
        if fault.proved
        else inconclusive(f"fault_proved:{fault.fid}", ReasonCode.FAULT_NOT_PROVED, fault.why)
        for fault in seen.faults
    ]
    missing = seen.expected_faults - len(seen.faults)
    if missing > 0:
        checks.append(
            inconclusive(
                "fault_proved",
                ReasonCode.FAULT_NOT_PROVED,
                f"{missing} of {seen.expected_faults} faults were not injected",
            )
        )
    return checks


def _recovered(seen: Observations) -> Check:
    if seen.recovered:
        return passed("recovered")
    if seen.recovered is False:
        return failed("recovered", seen.recovered_why or "not every fault healed in time")
    return inconclusive("recovered", ReasonCode.ABORTED, "the run ended before recovery")


def _recorder(seen: Observations) -> Check:
    if seen.gaps:
        return inconclusive("recorder_complete", ReasonCode.RECORDER_GAP, "; ".join(seen.gaps[:5]))
    return passed("recorder_complete")


def _drained(seen: Observations) -> Check:
    if seen.drained and seen.scanned:
        return passed("drained")
    why = seen.drain_why or ("the scan did not finish" if seen.drained else "the drain was not run")
    return inconclusive("drained", ReasonCode.NO_DRAIN, why)


def _traffic(seen: Observations) -> list[Check]:
    return [
        inconclusive("traffic", ReasonCode.NO_TRAFFIC, f"group {group} handled no message")
        for group, count in sorted(seen.deliveries.items())
        if count == 0
    ]
