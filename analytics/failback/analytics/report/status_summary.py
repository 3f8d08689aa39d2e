"""The figures of one or more reports as the status of a ReconsumptionReport. Pure.

Everything is taken from ``report.json``. Counts of several runs are added, ratios formed at the
end; what cannot be added (largest redelivery, outage times) is the worst of all. ``perGroup`` has
one entry per run and group, so each figure of each report can be found again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from failback.analytics.report.outcome import NO_LIMIT, outcome_state, worst_outage

Report = Mapping[str, Any]

TRIMMABLE: Final = ("reasons", "perPair", "perGroup")
"""Lists that may lose their last entries where there is no room for all."""
MAX_ENTRIES: Final = 64
_MISSED_WORST_FIRST: Final = ("Fail", "Inconclusive")
_WORST_OUTCOME_FIRST: Final = ("limit missed", "limit not judged", "limit met", "no limit set")
_RATIO_DIGITS: Final = 6
_MAX_REASON: Final = 240


def _worst(reports: Sequence[Report]) -> str:
    """The worst verdict. A resource's status has no word for Observed: nothing was missed."""
    found = {each["verdict"]["value"] for each in reports}
    return next((word for word in _MISSED_WORST_FIRST if word in found), "Pass")


def status_of(reports: Sequence[Report], artifact_uri: str) -> dict[str, Any]:
    """Return the summary of ``reports``, of which there is at least one."""
    totals = [report["totals"] for report in reports]
    duplicates, distinct = _sum(totals, "dup"), _sum(totals, "distinct")
    bounds = [each for report in reports for each in report["bounds"]]
    outcomes = {outcome_state(report.get("outcome") or NO_LIMIT) for report in reports}
    return {
        "verdict": _worst(reports),
        "outcome": next(words for words in _WORST_OUTCOME_FIRST if words in outcomes),
        "reasons": _reasons(reports),
        "produced": _sum(totals, "produced"),
        "delivered": _sum(totals, "delivered"),
        "distinct": distinct,
        "duplicates": duplicates,
        "duplicateRatio": ratio_text(duplicates, distinct),
        "maxRedelivery": max((each["max_redelivery"] for each in totals), default=0),
        "lost": _sum(totals, "lost"),
        "outOfOrder": _sum(totals, "ooo_first"),
        "rewoundOffsets": sum(
            max(0, row["d_proc"] or 0) for report in reports for row in report["rollbacks"]
        ),
        "rtoSeconds": _outages(reports),
        "byCause": _by_report_group(reports),
        "bound": _bound(bounds),
        "boundsExceeded": any(each["exceeded"] for each in bounds),
        "perGroup": [_group(report, row) for report in reports for row in report["groups"]][
            :MAX_ENTRIES
        ],
        "perPair": _pairs(reports)[:MAX_ENTRIES],
        "ruleSet": " / ".join(dict.fromkeys(rule_set_of(report) for report in reports)),
        "runSha256": str(reports[0]["evidence"]["run_sha256"] or ""),
        "artifactUri": artifact_uri,
        "truncated": False,
    }


def rule_set_of(report: Report) -> str:
    """Whose rules the brokers followed, as ``4.9.8`` or ``4.9.8, guarded``."""
    release, rules = report["source"]["rule_set"], report["system"].get("rules")
    return f"{release}, {rules}" if rules and rules != "compat" else str(release)


def ratio_text(part: int | None, whole: int | None) -> str | None:
    """A ratio as decimal text, without needless zeros; ``None`` when it cannot be formed."""
    if part is None or not whole:
        return None
    text = f"{part / whole:.{_RATIO_DIGITS}f}".rstrip("0")
    return text + "0" if text.endswith(".") else text


def camel(name: str) -> str:
    """``consumer_end`` as ``consumerEnd``."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _sum(rows: Iterable[Mapping[str, Any]], name: str) -> int | None:
    """Add up; what was not measured in one of them was not measured."""
    values = [row[name] for row in rows]
    return None if any(value is None for value in values) else sum(values)


def _reasons(reports: Sequence[Report]) -> list[str]:
    return [
        f"{report['arm']}-{report['repetition']}: {each['code']}: {each['detail']}"[:_MAX_REASON]
        for report in reports
        for each in report["verdict"]["reasons"]
    ][:32]


def _outages(reports: Sequence[Report]) -> dict[str, float | None]:
    found = {}
    for name in ("produce", "consume"):
        worst = [worst_outage(report, f"{name}_ms") for report in reports]
        known = [value for value in worst if value is not None]
        found[name] = round(max(known) / 1000, 3) if known else None
    return found


def _by_report_group(reports: Sequence[Report]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for report in reports:
        for row in report["groups"]:
            found.update({camel(name): count for name, count in row["report_groups"].items()})
    return dict(sorted(found.items()))


def _bound(bounds: Sequence[Mapping[str, Any]]) -> int | None:
    """All bounds together, if each is known; ``None`` when there is none."""
    values = [each["bound"] for each in bounds]
    return None if not values or None in values else round(sum(values))


def _group(report: Report, row: Mapping[str, Any]) -> dict[str, Any]:
    bounds = [each for each in report["bounds"] if each["group"] == row["group"]]
    return {
        **{name: report[name] for name in ("arm", "repetition")},
        **{name: row[name] for name in ("group", "delivered", "distinct")},
        "duplicates": row["dup"],
        "duplicateRatio": ratio_text(row["dup"], row["distinct"]),
        "lost": row["lost"],
        "causes": dict(sorted(row["causes"].items())),
        "bound": _bound(bounds),
    }


def _pairs(reports: Sequence[Report]) -> list[dict[str, Any]]:
    delivered: Counter[str] = Counter()
    duplicates: Counter[str] = Counter()
    for report in reports:
        for row in report["queues"]:
            delivered[row["broker"]] += row["delivered"]
            duplicates[row["broker"]] += row["dup"]
    return [
        {"pair": name, "delivered": delivered[name], "duplicates": duplicates[name]}
        for name in sorted(delivered)
    ]
