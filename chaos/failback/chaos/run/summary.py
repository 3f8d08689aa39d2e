"""The one object that the container of a run leaves at its end, for the operator to show. Pure.

Times are seconds after run zero. Names are those of a ChaosExperiment's status.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from failback.chaos.run.progress import targets_of

MAX_REASON: Final = 240
TRIMMABLE: Final = ("reasons", "targets", "faults")
"""Lists that may lose their last entries where there is no room for all."""


def summarize(
    outcome: Mapping[str, Any],
    evidence: Iterable[Mapping[str, Any]],
    *,
    exit_code: int,
    verdict: str,
    reasons: Sequence[str],
    report_uri: str = "",
) -> dict[str, Any]:
    """Put a run's outcome, its faults and the verdict of its report together.

    Args:
        outcome: ``outcome.json`` of the run.
        evidence: Lines of ``evidence.jsonl``; the last one of a fault counts.
        verdict, reasons: Of the report, or of the harness when there is none.
    """
    last: dict[str, Mapping[str, Any]] = {}
    for line in evidence:
        last[str(line["fid"])] = line
    targets: list[dict[str, Any]] = []
    for line in last.values():
        targets += [each for each in targets_of(list(line["victims"])) if each not in targets]
    checks = {each["name"]: each["verdict"] for each in outcome.get("checks", ())}
    return {
        "exit": exit_code,
        "verdict": verdict,
        "reasons": [reason[:MAX_REASON] for reason in reasons],
        "recovered": checks.get("recovered") == "Pass",
        "targets": targets,
        "faults": [_fault(fid, line) for fid, line in last.items()],
        "run": outcome.get("run", ""),
        "runSha256": outcome.get("manifest_sha256", ""),
        "reportUri": report_uri,
        "truncated": False,
    }


def refused(exit_code: int, line: str) -> dict[str, Any]:
    """The object of a run that did not begin."""
    found = summarize({}, (), exit_code=exit_code, verdict="Inconclusive", reasons=[line])
    return {**found, "recovered": True}


def reasons_of(outcome: Mapping[str, Any]) -> list[str]:
    """Why the harness does not say Pass: its checks that are not, as ``CODE: detail``."""
    return [
        f"{each['code'] or each['name']}: {each['detail']}"
        for each in outcome.get("checks", ())
        if each["verdict"] != "Pass"
    ]


def _fault(fid: str, line: Mapping[str, Any]) -> dict[str, Any]:
    observed = line.get("observed") or {}
    issued = line.get("issued_ns") or ()
    return {
        "id": fid,
        "fault": line["fault"],
        "proved": line.get("proved") is True,
        "issued": _seconds(issued[0] if issued else None),
        "effect": _seconds(observed.get("gone_ns") or observed.get("effect_ns")),
        "heal": _seconds(observed.get("healed_ns")),
    }


def _seconds(value: int | None) -> float | None:
    return None if value is None else round(value / 1e9, 3)
