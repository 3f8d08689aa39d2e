"""Tables of repeats: groups, queues, causes, intervals, and where consumers resumed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from failback.analytics.analysis.causes.labels import report_group
from failback.analytics.live.queues import reset_command
from failback.analytics.report.page.tables.registry import (
    Report,
    Row,
    Table,
    alike,
    both,
    files,
    named,
    page,
    seconds,
)
from failback.analytics.report.page.words import cause_meaning

UNATTRIBUTED: Final = "UNATTRIBUTED"
"""In place of the cause of what no rule explains."""
_ORDERS: Final = ("after_success", "before_success", "unknown_order")
QUEUE: Final = "group broker topic qid:i"


def queue_text(row: Row) -> str:
    """``orders demo-0/3``."""
    return f"{row['topic']} {row['broker']}/{row['qid']}"


def reset_hint(row: Row) -> str | None:
    """What to type so that the group goes on at the safe offset; nothing when it stands there."""
    safe, held = row.get("safe_offset"), row.get("master_offset")
    if held is None:
        return None
    return reset_command(row["group"], row["topic"], row["broker"], row["qid"], safe, held=held)


def groups(report: Report) -> Table:
    columns = [
        both("group", "group"),
        *files("topic members:i model"),
        both("delivered:i", "delivered", term="delivered"),
        both("distinct:i", "distinct messages", term="distinct"),
        both("dup:i", "duplicates", term="duplicates"),
        page("ratio = duplicates/distinct", lambda row: row.get("dup_ratio"), "f", unit="share",
             term="ratio"),
        both("dup_after_success:i", "repeats after a success", term="after-success"),
        *files("retry:i"),
        both("lost:i", "lost", term="lost"),
        *files("dup_ratio:f"),
        both("wasted_seconds:f", "work done twice (s)"),
        *files("handler_seconds:f max_redelivery:i"),
    ]  # fmt: skip
    return Table("groups", columns, report.get("groups", []), "No group consumed anything.")


def group_figures(report: Report) -> Table:
    """Only in the summary: all groups together, then each where there are several."""
    found = groups(report)
    every = {**report["totals"], "group": "all groups"}
    return replace(
        found, rows=[every, *found.rows] if len(found.rows) > 1 else found.rows or [every]
    )


def queues(report: Report) -> Table:
    columns = [
        page("queue", queue_text),
        both("group", "group"),
        *files("broker topic qid:i epochs:i"),
        both("delivered:i", "delivered", term="delivered"),
        both("distinct:i", "distinct messages", term="distinct"),
        both("dup:i", "duplicates", term="duplicates"),
        both("master_offset:i", "the master has", term="stored-offset"),
        both("slave_offset:i", "the slave has", term="stored-offset"),
        both("safe_offset:i", "safe offset", term="safe-offset"),
    ]
    return Table("queues", columns, report.get("queues", []), "No queue was consumed.")


def resets(report: Report) -> Table:
    """Only on the page: queues whose stored offset lies below the safe one, and what to type."""
    behind = [row for row in report.get("queues", []) if reset_hint(row) is not None]
    columns = [
        page("queue", queue_text),
        both("group", "group"),
        both("master_offset:i", "the master has", term="stored-offset"),
        both("safe_offset:i", "safe offset", term="safe-offset"),
        page("command", reset_hint),
    ]
    return Table("resets", columns, behind, "Every group stands at its safe offset.")


def resumed(report: Report) -> Table:
    """Of another engine: both sides of the equation, by assignment."""
    columns = alike("group qid:i consumed:i start:i expected:i observed:i")
    rows = report.get("foreign", {}).get("resumed", [])
    return Table("resumed", columns, rows, "No queue was taken a second time.")


def causes(report: Report) -> Table:
    columns = [
        both("cause", "cause", term="cause"),
        page("what happened", lambda row: cause_meaning(row["cause"])[0] or "not known"),
        *files("report_group"),
        both("after_success:i", "after a success", term="after-success"),
        both("before_success:i", "before any success"),
        both("unknown_order:i", "order unknown"),
    ]
    rows = _causes(report)
    empty = "No duplicate was delivered, so there is no cause to show."
    return Table("causes", columns, rows, empty)


def _causes(report: Report) -> list[Row]:
    """Sum the causes over the groups; the after-success split where the report has one."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for group in report.get("groups", []):
        split = group.get("causes_split", {})
        for cause, count in group.get("causes", {}).items():
            parts = split.get(cause)
            values = [parts[name] for name in _ORDERS] if parts else [count, 0, 0]
            totals[cause] = [a + b for a, b in zip(totals[cause], values, strict=True)]
        if group.get("unattributed"):
            totals[UNATTRIBUTED][2] += group["unattributed"]
    return [
        {
            "cause": cause,
            "report_group": report_group(None if cause == UNATTRIBUTED else cause),
            **dict(zip(_ORDERS, values, strict=True)),
        }
        for cause, values in sorted(totals.items(), key=lambda item: -sum(item[1]))
        if sum(values)
    ]


def causes_by_group(report: Report) -> Table:
    rows = [
        {"group": group["group"], "cause": cause, "messages": number}
        for group in report.get("groups", [])
        for cause, number in [
            *group.get("causes", {}).items(),
            *([(None, group["unattributed"])] if group.get("unattributed") else []),
        ]
    ]
    return Table("causes_by_group", alike("group cause messages:i"), rows)


def causes_by_broker(report: Report) -> Table:
    found: dict[tuple[str, str, str, str], int] = {}
    for queue in report.get("queues", []):
        for name, number in (queue.get("report_groups") or {}).items():
            key = (queue["group"], queue["broker"], queue["topic"], name)
            found[key] = found.get(key, 0) + number
    columns = alike("group broker topic report_group messages:i")
    rows = named(
        [column.field for column in columns], ((*key, n) for key, n in sorted(found.items()))
    )
    return Table("causes_by_broker", columns, rows)


def windows(report: Report) -> Table:
    columns = [
        page("queue", queue_text),
        *files(QUEUE),
        both("lo:i", "from offset"),
        both("hi:i", "to, before offset"),
        both("size:i", "messages"),
        both("cause", "cause", term="cause"),
        *files("from_proc:i to_proc:i"),
        both("at_s:f", "at (s)", term="run-zero"),
        *files("fid"),
    ]
    rows: list[Mapping[str, Any]] = [
        {**{name: queue[name] for name in ("group", "broker", "topic", "qid")}, **window,
         "at_s": seconds(window.get("t_ns"))}
        for queue in report.get("queues", [])
        for window in queue.get("windows", [])
    ]  # fmt: skip
    return Table("windows", columns, rows, "No interval was re-consumed.")


def left_out(report: Report) -> int:
    """How many smaller intervals the report has no row of."""
    return sum(row.get("windows_left_out", 0) for row in report.get("queues", []))


def rollbacks(report: Report) -> Table:
    columns = [
        page("queue", queue_text),
        *files(QUEUE),
        both("at_s:f", "at (s)", term="run-zero"),
        both("start:i", "resumed at"),
        *files("src"),
        both("src_bid:i", "answered by broker id"),
        both("committed:i", "committed before"),
        *files("confirmed:i"),
        both("processed:i", "handled before"),
        both("d_commit:i", "lost progress"),
        *files("d_proc:i"),
        both("redelivered:i", "re-consumed"),
        *files("age_s:f explained_by fid"),
    ]
    rows = [
        {**row, "at_s": seconds(row["t_ns"]), "age_s": row.get("age_seconds")}
        for row in report.get("rollbacks", [])
    ]
    empty = "No consumer resumed below what had been committed or handled."
    return Table("rollbacks", columns, rows, empty)


_PLACES: Final = {"code43": "memory", "file": "file", "bak": "backup file"}
"""Where a broker's offsets were read, in words; code 43 asks for its memory."""


def offset_drops(report: Report) -> Table:
    columns = [
        both("addr", "broker"), both("bid:i", "broker id"),
        both("source", "where", text=lambda row: _PLACES.get(row["source"], row["source"])),
        *alike("group topic"), both("qid:i", "queue"), *alike("at_s:f from:i to:i"),
        both("label", "what happened", text=lambda row: row["label"].lower().replace("_", " ")),
    ]  # fmt: skip
    rows = [{**row, "at_s": seconds(row["t_ns"])} for row in report.get("offset_drops", [])]
    return Table("offset_drops", columns, rows, "No stored offset went down.")
