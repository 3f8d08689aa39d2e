"""Tables of what happened: checks, faults, recovery, clocks."""

from __future__ import annotations

from typing import Final

from failback.analytics.report.page.tables.registry import (
    Report,
    Row,
    Table,
    alike,
    both,
    files,
    in_seconds,
    page,
    seconds,
)
from failback.analytics.report.page.words import PEERS, PHASES, words_of

_CHECK_ORDER: Final = {"Fail": 0, "Inconclusive": 1}


def checks(report: Report) -> Table:
    columns = [
        *files("id"),
        both("title", "check"),
        both("value", "result"),
        *alike("expected observed"),
        both("unit", "of"),
    ]
    return Table(
        "checks",
        columns,
        report.get("checks", []),
        "No check was made.",
        order=lambda row: _CHECK_ORDER.get(row["value"], 2),
    )


def faults(report: Report) -> Table:
    columns = [
        both("fid", "fault"),
        *files("name"),
        both("kind", "kind", text=lambda row: row.get("kind") or row.get("name")),
        both("intended_s:f", "intended (s)", term="run-zero"),
        *files("intended_end_s:f"),
        both("effect_s:f", "effect seen (s)"),
        both("healed_s:f", "healed (s)"),
        both("away_s:f", "away (s)"),
        both("proved:b", "proved", term="proved"),
        both("peer_saw", "clients saw",
             text=lambda row: words_of(PEERS, row["peer_saw"]) if row.get("peer_saw") else None),
    ]  # fmt: skip
    rows = [
        {
            **fault,
            "intended_s": seconds(fault.get("intended_ns")),
            "intended_end_s": seconds(fault.get("intended_end_ns")),
            "effect_s": seconds(fault.get("effect_ns")),
            "healed_s": seconds(fault.get("heal_ns")),
            "away_s": fault.get("down_seconds"),
        }
        for fault in report.get("faults", [])
    ]
    return Table("faults", columns, rows, "No fault was injected.")


def rto(report: Report) -> Table:
    columns = [
        both("fid", "fault"),
        both("broker", "broker"),
        both("produce_ms:f", "send outage (s)", text=in_seconds("produce_ms"),
             term="rto"),
        both("consume_median_ms:f", "receive outage, median (s)",
             text=in_seconds("consume_median_ms"), term="rto"),
        both("consume_worst_ms:f", "receive outage, worst (s)",
             text=in_seconds("consume_worst_ms")),
        *files("second_stall_ms:f queues_never:i"),
        both("first_repeat_ms:f", "first repeat after (s)", text=in_seconds("first_repeat_ms")),
    ]  # fmt: skip
    rows = [
        {
            **row,
            "consume_median_ms": (row.get("consume_ms") or {}).get("p50"),
            "consume_worst_ms": (row.get("consume_ms") or {}).get("max"),
            "first_repeat_ms": row.get("ttfr_kill_ms"),
        }
        for row in report.get("rto", [])
    ]
    return Table("rto", columns, rows, "No master was killed, so nothing had to recover.")


def outages(report: Report) -> list[tuple[Row, dict[str, int | None]]]:
    """The rows of ``rto``, each with its phases in ns after the kill; ``None`` if not seen."""
    kills = {fault["fid"]: fault.get("effect_ns") for fault in report.get("faults", [])}
    found = []
    for row in report.get("rto", []):
        start = kills.get(row["fid"]) or 0
        phases = (row.get("phases") or {}).items()
        after = {name: None if at is None else max(at - start, 0) for name, at in phases}
        found.append((row, after))
    return found


def phases(report: Report) -> Table:
    """Per kill in order of time; what was never seen comes last on the page."""
    columns = [
        both("fid", "fault"),
        both("phase", "phase", text=lambda row: words_of(PHASES, row["phase"])),
        both("after_the_kill_s:f", "after the kill (s)"),
    ]
    rows = [
        {"fid": row["fid"], "phase": phase, "after_the_kill_s": seconds(at)}
        for row, phases in outages(report)
        for phase, at in phases.items()
    ]
    order = {row["fid"]: place for place, row in enumerate(report.get("rto", []))}
    return Table(
        "phases",
        columns,
        rows,
        "No phase of a recovery was seen.",
        order=lambda row: (
            order.get(row["fid"], 0),
            row["after_the_kill_s"] is None,
            row["after_the_kill_s"] or 0,
        ),
    )


def clock(report: Report) -> Table:
    columns = [
        *alike("host"),
        both("offset_ns:i", "offset (ms)", text=lambda row: row["offset_ns"] / 1e6),
        both("error_ns:i", "known to (ms)", text=lambda row: row["error_ns"] / 1e6),
    ]
    rows = (report.get("clock") or {}).get("hosts", [])
    return Table("clock", columns, rows, "No clock was compared.")


def events(report: Report, found: list[tuple[int, str]]) -> Table:
    columns = [both("at_s:f", "at (s)", term="run-zero"), both("event", "event")]
    rows = [
        {"at_s": seconds(at), "event": text, "mark": str(number)}
        for number, (at, text) in enumerate(found, 1)
    ]
    return Table("events", [page("mark", lambda row: row["mark"]), *columns], rows,
                 "Nothing else happened.")  # fmt: skip
