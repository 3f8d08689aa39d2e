"""Tables of what the repeats cost, and of losses and order."""

from __future__ import annotations

from collections import Counter

from failback.analytics.report.page.tables.registry import (
    Report,
    Row,
    Table,
    alike,
    both,
    files,
    page,
)
from failback.analytics.report.page.words import FATES, words_of


def harm(report: Report) -> Table:
    """Only on the page: cost by group."""
    columns = [
        both("group", "group"),
        both("wasted_seconds:f", "work done twice (s)"),
        both("handler_seconds:f", "all work (s)"),
        both("max_redelivery:i", "most deliveries of one message"),
        page("age of a repeat, median (s)", lambda row: _age(row, "p50"), "f"),
        page("age of a repeat, worst (s)", lambda row: _age(row, "max"), "f"),
    ]
    groups = report.get("groups", [])
    if any(_age(group, "error") is not None for group in groups):
        columns.append(
            page("ages may be too small by", lambda row: _age(row, "error"), "f", unit="share")
        )
    return Table("harm", columns, groups, "No group consumed anything.")


def _age(row: Report, name: str) -> float | None:
    found: float | None = (row.get("repeat_age_seconds") or {}).get(name)
    return found


def dedupe_by_seconds(report: Report) -> Table:
    columns = [
        both("group", "group"),
        both("window_s:f", "remembered for (s)"),
        both("share:f", "repeats stopped", unit="share"),
    ]
    rows = [
        {"group": group["group"], "window_s": row["window"], "share": row["share"]}
        for group in report.get("groups", [])
        for row in (group.get("dedupe") or {}).get("by_seconds", [])
    ]
    return Table("dedupe_by_seconds", columns, rows)


def dedupe_by_keys(report: Report) -> Table:
    columns = [
        both("group", "group"),
        both("keys:i", "messages remembered"),
        both("share:f", "repeats stopped", unit="share"),
        both("error:f", "error", unit="share"),
    ]
    rows = [
        {"group": group["group"], **row}
        for group in report.get("groups", [])
        for row in (group.get("dedupe") or {}).get("by_keys", [])
    ]
    return Table("dedupe_by_keys", columns, rows)


def repeat_age(report: Report) -> Table:
    columns = [
        both("above_s:f", "older than (s)"),
        both("at_most_s:f", "at most (s)"),
        both("repeats:i", "repeats"),
    ]
    return Table("repeat_age", columns, _age_bins(report))


def _age_bins(report: Report) -> list[Row]:
    """All groups together; bins in which nothing lies at either end are left out."""
    counts: Counter[float] = Counter()
    for group in report.get("groups", []):
        below = 0
        for row in (group.get("repeat_age_seconds") or {}).get("histogram", []):
            counts[row["le"]] += row["count"] - below
            below = row["count"]
    edges = sorted(counts)
    filled = [number for number, edge in enumerate(edges) if counts[edge]]
    return [
        {
            "above_s": edges[number - 1] if number else 0.0,
            "at_most_s": edges[number],
            "repeats": counts[edges[number]],
        }
        for number in (range(filled[0], filled[-1] + 1) if filled else ())
    ]


def redelivery_counts(report: Report) -> Table:
    columns = alike("group deliveries:i messages:i")
    rows = [
        {"group": group["group"], "deliveries": int(times), "messages": number}
        for group in report.get("groups", [])
        for times, number in (group.get("redelivery_counts") or {}).items()
    ]
    return Table("redelivery_counts", columns, rows, "Nothing was delivered.")


def loss(report: Report) -> Table:
    columns = alike("group fate messages:i")
    rows = [
        {"group": group, "fate": fate, "messages": number}
        for group, fates in ((report.get("loss") or {}).get("groups") or {}).items()
        for fate, number in fates.items()
    ]
    return Table("loss", columns, rows)


def fates(report: Report) -> Table:
    """Only on the page: what became of the messages that were sent while the run measured."""
    found: Counter[str] = Counter((report.get("loss") or {}).get("fates") or {})
    columns = [
        both("fate", "messages that were sent", text=lambda row: words_of(FATES, row["fate"])),
        both("messages:i", "messages"),
    ]
    rows = [{"fate": fate, "messages": number} for fate, number in found.items()]
    empty = "Losses cannot be told: the run did not drain or was not scanned."
    return Table("fates", columns, rows, empty)


def order(report: Report) -> Table:
    columns = [
        *alike("group topic"),
        both("ooo_first:i", "first deliveries out of order"),
        both("ooo_replay:i", "repeats out of order"),
        *files("first_key"),
    ]
    return Table("order", columns, report.get("order", []), "No ordered topic took part.")
