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
from failback.analytics.report.page import answers, time_series
from failback.analytics.report.page.figures import bars, over_time
from failback.analytics.report.page.figures.theme import DARK, LIGHT, Theme
from failback.analytics.report.page.html import plain_figure
from failback.analytics.report.page.tables import (
    advice,
    costs,
    incidents,
    observed,
    redeliveries,
    run_card,
)
from failback.analytics.report.page.tables.registry import Table

Json = dict[str, Any]
Draw = Callable[[Theme], go.Figure]
THEMES: Final[Mapping[str, Theme]] = {"light": LIGHT, "dark": DARK}


@dataclass(frozen=True, slots=True)
class TableBlock:
    """A table of the report under the title that it has here."""

    title: str
    table: Table
    links: Sequence[str] = ()
    """One address per row, for its first cell."""


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
    made: dict[str, tuple[str, Draw]] = {}
    timeline = time_series.timeline_data(report, points)
    if timeline.has_data:
        label = "Rates, send latency and faults over time"
        made["timeline"] = (label, partial(over_time.timeline, timeline))
    for number, stairs in enumerate(time_series.staircases(report, points)):
        label = f"Offsets of {stairs.queue}, group {stairs.group}"
        made[f"staircase-{number}"] = (label, partial(over_time.offset_staircase, stairs))
    causes, windows = redeliveries.causes(report).rows, redeliveries.windows(report).rows
    if causes:
        made["causes"] = ("Duplicates by cause", partial(bars.dup_by_cause, causes))
    if windows:
        draw = partial(bars.interval_map, windows, redeliveries.left_out(report))
        made["intervals"] = ("Re-consumed intervals per queue", draw)
    for number, (row, phases) in enumerate(incidents.outages(report)):
        if phases:
            title = bars.rto_title(row)
            made[f"rto-{number}"] = (title, partial(bars.rto_waterfall, title, phases))
    bounds = advice.bounds(report).rows
    if bounds:
        made["bounds"] = (
            "Observed re-consumption against its bound",
            partial(bars.bound_vs_observed, bounds),
        )
    return made


def figure_json(draw: Draw, theme: str) -> bytes:
    """A figure as Plotly takes it, without the template that doubles its size."""
    plain = plain_figure(draw(THEMES[theme]).to_json())
    plain["layout"].pop("template", None)
    return json.dumps(plain, separators=(",", ":")).encode()


def blocks_of(
    report: Json, points: Sequence[Point], drawn: Mapping[str, tuple[str, Draw]], base: str
) -> list[Block]:
    """The blocks of a report.

    Args:
        report: ``report.json``.
        points: Those of its plots.
        drawn: From :func:`figure_makers`.
        base: Address of the run's page.
    """

    def named(prefix: str) -> list[tuple[str, str]]:
        return [
            (name, label)
            for name, (label, _) in drawn.items()
            if name == prefix or name.startswith(f"{prefix}-")
        ]

    links = [f"{base}/queues/{number}" for number in range(len(report.get("queues", [])))]
    staircases = named("staircase")
    events = list(time_series.timeline_data(report, points).events)
    if report.get("observation"):
        folded = _folded(report, named, staircases[1:])
        return [
            *_observed(report, staircases[:1]),
            *(
                each
                for each in folded
                if each.figures or any(them.table.rows for them in each.tables)
            ),
        ]
    return [
        Block(
            "why", "Why messages were re-consumed",
            "The queue with most repeats. A consumer that keeps running resumes from its own"
            " memory. A new one asks a broker: each downward step of the master's line is progress"
            " that its answer has lost.",
            [*staircases[:1], *named("causes")],
            [TableBlock("Causes", redeliveries.causes(report))],
        ),
        Block("change", "What to change", answers.carry_advice(report).replace("`", ""), tables=[
            TableBlock("Queues below a safe offset", redeliveries.resets(report)),
            TableBlock("Settings that would have helped, one at a time", advice.knobs(report))]),
        Block("queues", "Queues and groups", tables=[
            TableBlock("Queues", redeliveries.queues(report), links),
            TableBlock("Groups", redeliveries.groups(report))]),
        Block(
            "timeline", "Timeline",
            "The band is what a witness observed, from the broker's death until it accepted again;"
            " the dotted line is when the schedule intended the kill. Numbers are events.",
            named("timeline"),
            [TableBlock("Faults", incidents.faults(report)),
             TableBlock("Events", incidents.events(report, events))],
        ),
        Block("rto", "Recovery time", figures=named("rto"),
              tables=[TableBlock("Recovery", incidents.rto(report))]),
        *_folded(report, named, staircases[1:]),
    ]  # fmt: skip


def _observed(report: Json, worst: Sequence[tuple[str, str]]) -> list[Block]:
    """What stands first in the report of a run that was observed, not made."""
    return [
        Block(
            "why", "What was re-consumed",
            "Nobody injected a fault: this is what was seen from outside. A count is an interval,"
            " as wide as what was not seen.",
            worst,
            [TableBlock("Each group at each return of a master", observed.returns(report))],
        ),
        Block("change", "What to change", tables=[
            TableBlock("Queues below a safe offset", observed.safe_offsets(report))]),
        Block("timeline", "Timeline", tables=[
            TableBlock("What was seen", observed.seen(report)),
            TableBlock("What was not seen", observed.unseen(report))]),
    ]  # fmt: skip


def _folded(
    report: Json,
    named: Callable[[str], list[tuple[str, str]]],
    staircases: Sequence[tuple[str, str]],
) -> list[Block]:
    """What few look at: further queues, evidence, and how the run was made."""
    blocks = [
        Block("staircase", "Offsets of the other queues", figures=staircases),
        Block("intervals", "Which offsets were re-consumed", figures=named("intervals"),
              tables=[TableBlock("Intervals", redeliveries.windows(report))]),
        Block("rollbacks", "Where consumers resumed",
              tables=[TableBlock("Resume points", redeliveries.rollbacks(report))]),
        Block("bounds", "Worst case against observed", figures=named("bounds"),
              tables=[TableBlock("Bounds", advice.bounds(report))]),
        Block("harm", "What the repeats cost", tables=[TableBlock("By group", costs.harm(report))]),
        Block("loss", "Loss and order", tables=[
            TableBlock("Messages that were sent", costs.fates(report)),
            TableBlock("Order", costs.order(report))]),
        Block("checks", "Checks",
              tables=[TableBlock("Checks of this run", incidents.checks(report))]),
        Block("evidence", "Evidence",
              tables=[TableBlock("Files and rows", run_card.evidence(report))]),
        Block("run-card", "Run card", tables=[TableBlock("What ran", run_card.card(report))]),
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
