"""Tables of an observed run: what returns cost, what was seen, what was not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from failback.analytics.analysis.causes.labels import cause_words
from failback.analytics.live.facts import is_canary
from failback.analytics.observe.observation import at_risk
from failback.analytics.report.page.tables.registry import (
    Report,
    Row,
    Table,
    alike,
    both,
    files,
    page,
)
from failback.analytics.report.wording import number
from failback.common.times import of_day

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
        page("down since", lambda row: row["since"]),
        both("broker", "broker"),
        *files("gone_from_s:f gone_until_s:f back_from_s:f back_until_s:f"),
        page("down (s)", _down),
        both("group", "group", text=_group),
        both("topic", "topic"),
        both("lo:i", "re-consumed, at least"),
        both("hi:i", "at most"),
        both("exact:b", "exact"),
        page("at risk", lambda row: row["at_risk"], "i"),
        both("causes", "because", text=lambda row: " or ".join(map(cause_words, row["named"]))),
        both("owner_changed:b", "new member"),
        both("basis", "seen by", text=lambda row: ", ".join(EVIDENCE[e] for e in row["seen_by"])),
    ]
    rows = list(_return_rows(report))
    empty = "No master went and came back."
    return Table("returns", columns, rows, empty, lambda row: (-row["hi"], -row["at_risk"]))


def came_again(report: Report) -> Table:
    """Only on the page: the user's groups of which something was re-consumed, or may be."""
    found = returns(report)
    rows = [row for row in found.rows if _may_repeat(row) and not is_canary(row["group"])]
    return replace(found, name="came_again", rows=rows, empty="No group re-consumed anything.")


def others(report: Report) -> Table:
    """Only on the page: groups of which nothing was re-consumed, and an idle canary's."""
    found = returns(report)
    return replace(found, name="others", rows=[row for row in found.rows if not _may_repeat(row)])


def canaries(report: Report) -> Table:
    """Only on the page: what the canary's own groups re-consumed."""
    found = returns(report)
    rows = [row for row in found.rows if _may_repeat(row) and is_canary(row["group"])]
    return replace(found, name="canaries", rows=rows)


def _may_repeat(row: Row) -> bool:
    return bool(row["hi"] or row["at_risk"])


def _group(row: Row) -> str:
    """A canary's group by what its member does: its name is long and says no more."""
    name = str(row["group"])
    return f"canary, its member {name.rpartition('-')[2]}" if is_canary(name) else name


def clock(report: Report, second: float) -> str:
    """``14:10:28 (61.2 s)``: the time of day, and seconds after run zero."""
    return f"{of_day(zero_of(report) + second)} ({second:,.1f} s)"


def zero_of(report: Report) -> float:
    """Run zero, seconds since 1970."""
    return int(report["window"]["zero_wall_ns"]) / 1e9


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
                "since": clock(report, back["gone_until"]),
                "at_risk": at_risk(group),
            }  # fmt: skip


def recovery(report: Report) -> Table:
    columns = [
        both("broker", "broker"),
        both("produce_s:f", "send outage (s)"),
        both("consume_s:f", "receive outage (s)"),
    ]
    rows = [
        {"broker": back["broker"], **back["recovery"]}
        for back in (report.get("observation") or {}).get("returns", [])
        if back["recovery"]
    ]
    return Table("recovery", columns, rows, "There was no canary, or its log ends before.")


def _down(row: Row) -> str:
    least = max(0.0, row["back_from_s"] - row["gone_until_s"])
    most = max(0.0, row["back_until_s"] - row["gone_from_s"])
    return f"{number(round(least))} to {number(round(most))}"


def safe_offsets(report: Report) -> Table:
    columns = [
        *alike("group topic broker"),
        both("qid:i", "queue"),
        *alike("safe_offset:i"),
    ]
    rows = [
        {**group, "broker": back["broker"], "qid": int(queue), "safe_offset": offset}
        for back in (report.get("observation") or {}).get("returns", [])
        for group in back["groups"]
        for queue, offset in group["safe_offsets"].items()
        if any(each["now"] < offset for each in group["queues"] if each["qid"] == int(queue))
    ]
    return Table("safe_offsets", columns, rows, "No offset needs to be reset.")


def seen(report: Report) -> Table:
    columns = [
        page("time", lambda row: clock(report, row["until"])),
        page("not before (s)", lambda row: row["from"], "f"),
        *files("from_s:f until_s:f"),
        both("kind", "what"),
        both("broker", "broker"),
        *files("member"),
        both("detail", "detail"),
    ]
    rows = [
        {**event, "from_s": event["from"], "until_s": event["until"]}
        for event in (report.get("observation") or {}).get("events", [])
    ]
    return Table("seen", columns, rows, "Nothing happened.")


def unseen(report: Report) -> Table:
    columns = [
        page("from", lambda row: clock(report, row["from"])),
        page("until", lambda row: clock(report, row["until"])),
        *files("from_s:f until_s:f"),
        both("what", "what"),
    ]
    rows = [
        {**gap, "from_s": gap["from"], "until_s": gap["until"]}
        for gap in (report.get("observation") or {}).get("gaps", [])
    ]
    return Table("unseen", columns, rows, "No gaps in the observation.")
