"""The table at the end of a run or a demo: one row per report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from failback.cli.output import print_table

HEADERS: Final = (
    "ARM",
    "DELIVERED",
    "DUPLICATES",
    "RATIO",
    "CAUSES",
    "BOUND",
    "LOST",
    "RTO PRODUCE",
    "RTO CONSUME",
    "VERDICT",
)


def row_of(report_file: Path) -> dict[str, Any]:
    """Return the figures of one ``report.json`` that the table shows; ``None`` = not measured."""
    report = json.loads(report_file.read_text(encoding="utf-8"))
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
        "arm": report["arm"],
        "delivered": totals["delivered"],
        "duplicates": totals["dup"],
        "dup_ratio": totals["dup_ratio"],
        "causes": dict(causes.most_common()),
        "bound": sum(known) if bounds and len(known) == len(bounds) else None,
        "lost": totals["lost"],
        "produce_rto_ms": max(produce, default=None),
        "consume_rto_ms": max(measured, default=None),
        "verdict": report["verdict"]["value"],
        "sentence": report["verdict"]["sentence"],
        "reasons": report["verdict"]["reasons"],
    }


def print_verdicts(rows: Sequence[dict[str, Any]], title: str = "") -> None:
    """Print the table."""
    print_table(HEADERS, [_cells(row) for row in rows], title)


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        row["arm"],
        _count(row["delivered"]),
        _count(row["duplicates"]),
        "-" if row["dup_ratio"] is None else f"{row['dup_ratio']:.1%}",
        ", ".join(f"{name} {_count(number)}" for name, number in row["causes"].items()) or "-",
        _count(row["bound"]),
        _count(row["lost"]),
        _seconds(row["produce_rto_ms"]),
        _seconds(row["consume_rto_ms"]),
        row["verdict"],
    ]


def _count(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def _seconds(milliseconds: float | None) -> str:
    return "-" if milliseconds is None else f"{milliseconds / 1000:.1f} s"
