"""The table at the end of a run or a demo: one row per report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

from failback.cli.shared.output import print_table, say
from failback.common import numbers
from failback.common.files import read_object

HEADERS: Final = (
    "ARM",
    "DELIVERED",
    "DISTINCT",
    "DUPLICATES",
    "DUPLICATES/DISTINCT",
    "CAUSES",
    "BOUND",
    "LOST",
    "SEND OUTAGE",
    "RECEIVE OUTAGE",
    "EVIDENCE",
    "OUTCOME",
)

_MEDIANS: Final = (
    ("re-consumed", "dup_ratio", numbers.percent),
    ("send outage", "produce_rto_ms", numbers.milliseconds),
    ("receive outage", "consume_rto_ms", numbers.milliseconds),
)


def row_of(report_file: Path) -> dict[str, Any]:
    """Return the figures of one ``report.json`` that the table shows; ``None`` = not measured."""
    from failback.analytics.report.outcome import (
        NO_LIMIT,
        evidence_badge,
        outcome_badge,
        rows_missing,
    )

    report = read_object(report_file)
    evidence, outcome = evidence_badge(report), outcome_badge(report)
    totals = report["totals"]
    causes: Counter[str] = Counter()
    for group in report["groups"]:
        causes.update(group["causes"])
    bounds = [each["bound"] for each in report["bounds"]]
    known = [bound for bound in bounds if bound is not None]
    produce = [each["produce_ms"] for each in report["rto"] if each["produce_ms"] is not None]
    consume = [(each["consume_ms"] or {}).get("max") for each in report["rto"]]
    measured = [each for each in consume if each is not None]
    return {
        "run": report["run"],
        "arm": report["arm"],
        "delivered": totals["delivered"],
        "distinct": totals["distinct"],
        "duplicates": totals["dup"],
        "dup_ratio": totals["dup_ratio"],
        "causes": dict(causes.most_common()),
        "bound": sum(known) if bounds and len(known) == len(bounds) else None,
        "lost": totals["lost"],
        "produce_rto_ms": max(produce, default=None),
        "consume_rto_ms": max(measured, default=None),
        "rows_missing": rows_missing(report),
        "evidence": evidence.text,
        "evidence_why": evidence.why,
        "outcome": report.get("outcome") or dict(NO_LIMIT),
        "outcome_words": outcome.text,
        "observed": "observation" in report,
        "verdict": report["verdict"]["value"],
        "sentence": report["verdict"]["sentence"],
        "reasons": report["verdict"]["reasons"],
    }


def print_verdicts(rows: Sequence[dict[str, Any]]) -> None:
    """Print the table: a line for each run, or a card where a terminal has no room for lines.

    Of an arm with several runs the median and the range follow.
    """
    print_table(HEADERS, [_cells(row) for row in rows])
    for arm in dict.fromkeys(map(_name, rows)):
        mine = [row for row in rows if _name(row) == arm]
        if len(mine) > 1:
            said = "; ".join(f"{what} {_range(mine, key, show)}" for what, key, show in _MEDIANS)
            say(f"{arm}, {len(mine)} runs, median (least to most): {said}")


def _range(rows: Sequence[dict[str, Any]], key: str, show: Callable[[Any], str]) -> str:
    """The median and the range of what was measured in every run."""
    shown = [None if key == "dup_ratio" and row["rows_missing"] else row[key] for row in rows]
    values = [each for each in shown if each is not None]
    if len(values) < len(rows):
        return show(None)
    return f"{show(median(values))} ({show(min(values))} to {show(max(values))})"


def say_answers(row: dict[str, Any]) -> None:
    """Print what happened to one run, its two answers, and what went wrong."""
    say(f"{_name(row)}: {row['sentence']}")
    say(f"{_name(row)}: {row['evidence']}. {row['outcome_words']}.")
    say_reasons(row)


def _name(row: dict[str, Any]) -> str:
    return str(row["arm"] or row["run"])  # rows of a lake alone, and what was observed, have no arm


def say_reasons(row: dict[str, Any]) -> None:
    """Print why a run's verdict is what it is."""
    for reason in row["reasons"]:
        say(f"{_name(row)}: {row['verdict']}, {reason['code']}: {reason['detail']}")


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        _name(row),
        numbers.count(row["delivered"]),
        numbers.count(row["distinct"]),
        numbers.count(row["duplicates"]),
        numbers.percent(None if row["rows_missing"] else row["dup_ratio"]),
        ", ".join(f"{name} {numbers.count(number)}" for name, number in row["causes"].items()),
        numbers.count(row["bound"]),
        numbers.count(row["lost"]),
        numbers.milliseconds(row["produce_rto_ms"]),
        numbers.milliseconds(row["consume_rto_ms"]),
        row["evidence"].partition(": ")[2],
        row["outcome_words"].rpartition(": ")[2],
    ]
