"""The report of a run as blocks for its page: the figures and tables of ``report.html``. Pure.

Figures are named here and drawn one by one when the page asks for them, so that a large report's
page does not wait for what is not yet looked at.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import plotly.graph_objects as go

from failback.analytics.report.measures.point_rows import Point
from failback.analytics.report.page import html_rows
from failback.analytics.report.page.figure_data import outcomes, repeats, time_series
from failback.analytics.report.page.figure_types import NS_PER_SECOND
from failback.analytics.report.page.figures import bars, over_time
from failback.analytics.report.page.figures.theme import DARK, LIGHT, Theme

Json = dict[str, Any]
Draw = Callable[[Theme], go.Figure]
THEMES: Final[Mapping[str, Theme]] = {"light": LIGHT, "dark": DARK}


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table: ``empty`` is said when it has no rows."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    empty: str
    links: Sequence[str] = ()
    """One address per row, for its first cell."""

    @property
    def numeric(self) -> frozenset[int]:
        return html_rows.numeric_columns(self.rows)


@dataclass(frozen=True, slots=True)
class Block:
    """One part of the page."""

    anchor: str
    title: str
    note: str = ""
    figures: Sequence[tuple[str, str]] = ()
    """Names and labels."""
    tables: Sequence[TableBlock] = field(default=())
    folded: bool = False


def figure_makers(report: Json, points: Sequence[Point]) -> dict[str, tuple[str, Draw]]:
    """Every figure of a report: name to (label, function of a theme)."""
    made: dict[str, tuple[str, Draw]] = {
        "timeline": (
            "Rates, send latency and faults over time",
            lambda theme: over_time.timeline(time_series.timeline_data(report, points), theme),
        )
    }
    for number, stairs in enumerate(time_series.staircases(report, points)):
        label = f"Offsets of {stairs.queue}, group {stairs.group}"
        made[f"staircase-{number}"] = (label, partial(over_time.offset_staircase, stairs))
    causes = repeats.cause_data(report)
    if causes.rows:
        made["causes"] = (
            "Duplicates by cause",
            lambda theme: bars.dup_by_cause(causes, theme),
        )
    intervals = repeats.interval_data(report)
    if intervals.windows:
        made["intervals"] = (
            "Re-consumed intervals per queue",
            lambda theme: bars.interval_map(intervals, theme),
        )
    for number, waterfall in enumerate(outcomes.waterfalls(report)):
        if waterfall.phases:
            made[f"rto-{number}"] = (waterfall.title, partial(bars.rto_waterfall, waterfall))
    bounds = outcomes.bound_data(report)
    if bounds.rows:
        made["bounds"] = (
            "Observed re-consumption against its bound",
            lambda theme: bars.bound_vs_observed(bounds, theme),
        )
    return made


def figure_json(draw: Draw, theme: str) -> bytes:
    """A figure as Plotly takes it, without the template that doubles its size."""
    plain = json.loads(draw(THEMES[theme]).to_json())
    plain["layout"].pop("template", None)
    return json.dumps(plain, separators=(",", ":")).encode()


def blocks_of(report: Json, drawn: Mapping[str, tuple[str, Draw]], base: str) -> list[Block]:
    """The blocks of a report.

    Args:
        report: ``report.json``.
        drawn: From :func:`figure_makers`.
        base: Address of the run's page.
    """

    def named(prefix: str) -> list[tuple[str, str]]:
        return [
            (name, label)
            for name, (label, _) in drawn.items()
            if name == prefix or name.startswith(f"{prefix}-")
        ]

    def table(title: str, head: Sequence[str], rows: Sequence[Any], empty: str) -> TableBlock:
        return TableBlock(title, head, [tuple(row) for row in rows], empty)

    queues = report.get("queues", [])[: html_rows.MAX_TABLE_ROWS]
    links = [f"{base}/queues/{number}" for number in range(len(queues))]
    staircases = named("staircase")
    return [
        Block(
            "why", "Why messages came again",
            "The queue with most repeats. A consumer that keeps running resumes from its own"
            " memory. A new one asks a broker: each downward step of the master's line is progress"
            " that its answer has lost.",
            [*staircases[:1], *named("causes")],
            [table("Causes", ("cause", "report group", "after a success", "before any success",
                              "order unknown"),
                   repeats.cause_data(report).rows, "No message was consumed again.")],
        ),
        Block("change", "What to change", tables=[table(
            "Settings that would have helped, one at a time",
            ("setting", "from", "to", "saves, mean", "saves, worst case", "cost"),
            html_rows.knob_rows(report),
            "There is nothing to advise: no stop of a master was predicted.")]),
        Block("queues", "Queues and groups", tables=[
            TableBlock("Queues", ("queue", "group", "re-consumed", "master has", "slave has",
                                  "safe offset", "to continue there"),
                       html_rows.queue_rows(report), "No queue was consumed.", links),
            table("Harm by group", ("group", "work done twice (s)",
                                    "most deliveries of one message",
                                    "repeat age, median (s)", "repeat age, worst (s)"),
                  html_rows.harm_rows(report), "No group consumed anything.")]),
        Block(
            "timeline", "Timeline",
            "The band is what a witness observed, from the broker's death until it accepted again;"
            " the dotted line is when the schedule intended the kill.",
            named("timeline"),
            [table("Faults", ("fault", "kind", "intended (s)", "effect seen (s)", "healed (s)",
                              "away (s)", "proved", "peers saw"),
                   html_rows.fault_rows(report), "No fault was injected.")],
        ),
        Block("rto", "Recovery time", figures=named("rto"), tables=[table(
            "Recovery", ("fault", "sends back after (ms)", "deliveries back after, median (ms)",
                         "worst (ms)", "first repeat after the kill (ms)"),
            html_rows.rto_rows(report), "No master was killed, so there is no recovery time.")]),
        *_folded(report, named, table, staircases[1:]),
    ]  # fmt: skip


def _folded(
    report: Json,
    named: Callable[[str], list[tuple[str, str]]],
    table: Callable[[str, Sequence[str], Sequence[Any], str], TableBlock],
    staircases: Sequence[tuple[str, str]],
) -> list[Block]:
    """What few look at: further queues, evidence, and how the run was made."""
    fates = ((report.get("loss") or {}).get("fates") or {}).items()
    blocks = [
        Block("staircase", "Offsets of the other queues", figures=staircases),
        Block("intervals", "Which offsets came again", figures=named("intervals"), tables=[table(
            "Intervals", ("queue", "from", "to", "messages", "cause", "at (s)"),
            [(queue, lo, hi, size, cause, at / NS_PER_SECOND)
             for queue, lo, hi, size, cause, _, at
             in repeats.interval_data(report).windows[: html_rows.MAX_TABLE_ROWS]],
            "No interval was consumed again.")]),
        Block("rollbacks", "Where consumers resumed", tables=[table(
            "Resume points", ("queue", "at (s)", "resumed at", "answered by broker id",
                              "committed before", "processed before", "lost progress",
                              "delivered again"),
            html_rows.rollback_rows(report),
            "No assignment resumed below what had been committed or processed.")]),
        Block("bounds", "Worst case against observed", figures=named("bounds"), tables=[table(
            "Bounds", ("fault", "group", "mechanism", "formula", "bound", "observed", "exceeded"),
            html_rows.bound_rows(report), "No bound applies to this run.")]),
        Block("loss", "Loss and order", tables=[
            table("Fates", ("fate", "messages"), sorted(fates),
                  "Loss is not decidable: the run did not drain or was not scanned."),
            table("Order", ("group", "topic", "first deliveries out of order",
                            "repeats out of order"),
                  [(row["group"], row["topic"], row["ooo_first"], row["ooo_replay"])
                   for row in report.get("order", [])], "No ordered topic took part.")]),
        Block("checks", "Checks", tables=[table(
            "Checks of this run", ("check", "result", "expected", "observed"),
            html_rows.check_rows(report), "No check was made.")]),
        Block("evidence", "Evidence", tables=[table(
            "Files and rows", ("what", "value"), html_rows.evidence_rows(report),
            "There is no manifest.")]),
        Block("run-card", "Run card", tables=[table(
            "What ran", ("what", "value"), html_rows.card_rows(report), "run.json was missing.")]),
    ]  # fmt: skip
    return [replace(each, folded=True) for each in blocks if each.figures or each.tables]


def queue_of(report: Json, number: int) -> Json | None:
    """One queue of a report by its place there."""
    queues = report.get("queues", [])
    return queues[number] if 0 <= number < len(queues) else None


def staircase_of(
    drawn: Mapping[str, tuple[str, Draw]], queue: Mapping[str, Any]
) -> tuple[str, str] | None:
    """The staircase figure of a queue, if it is among those that are drawn."""
    text = f"{queue['topic']} {queue['broker']}/{queue['qid']}"
    label = f"Offsets of {text}, group {queue['group']}"
    return next(((name, said) for name, (said, _) in drawn.items() if said == label), None)
