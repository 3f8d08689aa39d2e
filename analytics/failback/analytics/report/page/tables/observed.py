"""Tables of an observed run: what returns cost, what was seen, what was not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from failback.analytics.analysis.causes.labels import cause_words
from failback.analytics.report.page.tables.registry import Report, Row, Table, both, files, page
from failback.analytics.report.wording import number

EVIDENCE: Final = {
    "E1": "routes",
    "E2": "offset tables",
    "E3": "members",
    "E4": "message trace",
    "E5": "canary",
}
"""What conclusions rest on, by its name in ``basis``."""


def returns(report: Report) -> Table:
    columns = [
        both("broker", "broker"),
        *files("gone_from_s:f gone_until_s:f back_from_s:f back_until_s:f"),
        page("away (s)", _away),
        both("group", "group"),
        both("topic", "topic"),
        both("lo:i", "consumed again, at least"),
        both("hi:i", "at most"),
        *files("exact:b"),
        both("causes", "because", text=lambda row: " or ".join(map(cause_words, row["named"]))),
        both("owner_changed:b", "new member"),
        both("basis", "seen by", text=lambda row: ", ".join(EVIDENCE[e] for e in row["seen_by"])),
    ]
    return Table("returns", columns, list(_return_rows(report)), "No master went and came back.")


def _return_rows(report: Report) -> Iterator[Row]:
    for back in (report.get("observation") or {}).get("returns", []):
        for group in back["groups"]:
            yield {
                "broker": back["broker"],
                **{f"{name}_s": back[name] for name in
                   ("gone_from", "gone_until", "back_from", "back_until")},
                **{name: group[name] for name in
                   ("group", "topic", "lo", "hi", "exact", "owner_changed")},
                "causes": " ".join(group["causes"]),
                "named": group["causes"],
                "basis": " ".join(group["basis"]),
                "seen_by": group["basis"],
            }  # fmt: skip


def recovery(report: Report) -> Table:
    columns = [
        both("broker", "broker"),
        both("produce_s:f", "no send (s)"),
        both("consume_s:f", "no pull (s)"),
    ]
    rows = [
        {"broker": back["broker"], **back["recovery"]}
        for back in (report.get("observation") or {}).get("returns", [])
        if back["recovery"]
    ]
    return Table("recovery", columns, rows, "There was no canary, or its log ends before.")


def _away(row: Row) -> str:
    least = max(0.0, row["back_from_s"] - row["gone_until_s"])
    most = max(0.0, row["back_until_s"] - row["gone_from_s"])
    return f"{number(round(least))} to {number(round(most))}"


def safe_offsets(report: Report) -> Table:
    columns = [
        both("group", "group"),
        both("topic", "topic"),
        both("broker", "broker"),
        both("qid:i", "queue"),
        both("safe_offset:i", "safe offset"),
    ]
    rows = [
        {
            "group": group["group"],
            "topic": group["topic"],
            "broker": back["broker"],
            "qid": int(queue),
            "safe_offset": offset,
        }
        for back in (report.get("observation") or {}).get("returns", [])
        for group in back["groups"]
        for queue, offset in group["safe_offsets"].items()
    ]
    return Table("safe_offsets", columns, rows, "No queue was left behind.")


def seen(report: Report) -> Table:
    columns = [
        both("from_s:f", "not before (s)"),
        both("until_s:f", "seen (s)"),
        both("kind", "what"),
        both("broker", "broker"),
        both("member", "member"),
        both("detail", "detail"),
    ]
    rows = [
        {**event, "from_s": event["from"], "until_s": event["until"]}
        for event in (report.get("observation") or {}).get("events", [])
    ]
    return Table("seen", columns, rows, "Nothing happened.")


def unseen(report: Report) -> Table:
    columns = [both("from_s:f", "from (s)"), both("until_s:f", "until (s)"), both("what", "what")]
    rows = [
        {**gap, "from_s": gap["from"], "until_s": gap["until"]}
        for gap in (report.get("observation") or {}).get("gaps", [])
    ]
    return Table("unseen", columns, rows, "The observer saw all the time.")
