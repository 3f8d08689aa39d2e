"""Figures of bars: causes, intervals, bounds, predictions, phases."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Final

import plotly.graph_objects as go

from failback.analytics.report.page.figure_types import (
    NS_PER_SECOND,
    BoundData,
    CauseData,
    IntervalData,
    PredictionData,
    WaterfallData,
)
from failback.analytics.report.page.figures.theme import (
    BAD,
    LIGHT,
    PALE,
    SLATE,
    Theme,
    count,
    finish,
    group_marker,
    short,
)
from failback.analytics.report.wording import percent

MOST_QUEUES: Final = 50
_REVERSED = {"autorange": "reversed"}


def dup_by_cause(data: CauseData, theme: Theme = LIGHT) -> go.Figure:
    """Duplicates by cause; hatched by report group, paler where the work was needed."""
    figure = go.Figure()
    named: set[tuple[str, str]] = set()
    for cause, group, after, before, unknown in data.rows:
        for label, number, opacity in (
            ("after a success", after, 1.0),
            ("before any success", before, 0.6),
            ("order unknown", unknown, 0.35),
        ):
            if not number:
                continue
            figure.add_bar(
                x=[number],
                y=[cause],
                name=f"{group.replace('_', ' ')}: {label}",
                orientation="h",
                marker=group_marker(group, opacity),
                text=[str(number)],
                textposition="outside",
                cliponaxis=False,
                legendgroup=f"{group}: {label}",
                showlegend=(group, label) not in named,
            )
            named.add((group, label))
    figure.update_layout(barmode="stack", yaxis=_REVERSED)
    total = sum(sum(row[2:]) for row in data.rows)
    longest = max((sum(row[2:]) for row in data.rows), default=1)
    figure.update_xaxes(range=[0, 1.3 * longest])  # room for the number behind the bar
    title = "No duplicate was delivered"
    if total:
        first = max(data.rows, key=lambda row: sum(row[2:]))
        share = sum(first[2:]) / total
        title = f"{count(total, 'duplicate')} by cause: {percent(share)} {first[0]}"
    return finish(figure, title, "deliveries", None, theme, height=190 + 50 * len(data.rows))


def interval_map(data: IntervalData, theme: Theme = LIGHT) -> go.Figure:
    """Which offsets of which queue were consumed again; of many queues those with the most."""
    figure = go.Figure()
    sizes: Counter[str] = Counter()
    for queue, _, _, size, *_ in data.windows:
        sizes[queue] += size
    drawn = {queue for queue, _ in sizes.most_common(MOST_QUEUES)}
    # One trace per cause: one per interval takes seconds where there are thousands.
    by_cause: dict[tuple[str, str], list[tuple[str, int, int, str]]] = defaultdict(list)
    for queue, lo, hi, size, cause, group, time_ns in data.windows:
        if queue in drawn:
            said = f"[{lo}, {hi}) {size} messages, {cause}, at {time_ns / NS_PER_SECOND:.1f} s"
            by_cause[cause, group].append((short(queue, 34), lo, hi, said))
    for (cause, group), bars in by_cause.items():
        figure.add_bar(
            x=[hi - lo for _, lo, hi, _ in bars],
            base=[lo for _, lo, _, _ in bars],
            y=[name for name, *_ in bars],
            orientation="h",
            name=cause,
            showlegend=False,
            marker=group_marker(group),
            hovertext=[said for *_, said in bars],
        )
    shown = list(dict.fromkeys(short(each[0], 34) for each in data.windows if each[0] in drawn))
    figure.update_layout(
        barmode="overlay",
        yaxis={**_REVERSED, "categoryorder": "array", "categoryarray": shown},
    )
    title = f"{count(len(data.windows), 're-consumed interval')} in {count(len(sizes), 'queue')}"
    if data.left_out:
        title = f"The largest {title}, of {len(data.windows) + data.left_out}"
    if len(sizes) > len(drawn):
        title += f", the {len(drawn)} with the most"
    return finish(figure, title, "queue offset", None, theme, height=200 + 40 * len(drawn))


def bound_vs_observed(data: BoundData, theme: Theme = LIGHT) -> go.Figure:
    """Observed re-consumption as bars, its bound as a line; an exceeded bound is cross-hatched."""
    figure = go.Figure()
    for label, observed, bound, exceeded in data.rows:
        figure.add_bar(
            x=[observed],
            y=[short(label, 50)],
            orientation="h",
            width=0.5,
            name="observed",
            showlegend=False,
            text=[f"{observed:,.0f}"],
            textposition="outside",
            cliponaxis=False,
            marker={
                "color": theme.of(BAD if exceeded else SLATE),
                "pattern": {"shape": "x" if exceeded else ""},
            },
        )
        if bound is not None:
            figure.add_scatter(
                x=[bound],
                y=[short(label, 50)],
                name="bound",
                showlegend=False,
                mode="markers+text",
                text=[f"bound {bound:,.0f}"],
                textposition="top center",
                cliponaxis=False,
                marker={"symbol": "line-ns-open", "size": 44, "color": theme.text},
            )
    over = [row[0] for row in data.rows if row[3]]
    title = f"Bound exceeded: {', '.join(over)}" if over else _room(data)
    figure.update_layout(yaxis=_REVERSED)
    figure.update_xaxes(rangemode="tozero")
    height = 190 + 70 * len(data.rows)
    return finish(figure, title, "messages consumed again", None, theme, height=height)


def _room(data: BoundData) -> str:
    shares = [observed / bound for _, observed, bound, _ in data.rows if bound]
    if not shares:
        return "No bound applies"
    return f"Within every bound: at most {percent(max(shares))} of one"


def prediction_band(data: PredictionData, theme: Theme = LIGHT) -> go.Figure:
    """The predicted 90 % band per fault and group, its median, and what was observed."""
    figure = go.Figure()
    for number, (label, p5, p50, p95, worst, observed) in enumerate(data.rows):
        name = short(label, 34)
        inside = p5 <= observed <= p95
        figure.add_bar(
            x=[p95 - p5],
            base=[p5],
            y=[name],
            width=0.5,
            orientation="h",
            name="predicted, 90 %",
            showlegend=number == 0,
            marker={"color": theme.of(PALE), "pattern": {"shape": "/"}},
        )
        for at, what, symbol, colour in (
            (p50, "predicted, median", "line-ns-open", theme.text),
            (worst, "worst case", "triangle-left-open", theme.text),
            (observed, "observed", "diamond", theme.text if inside else theme.of(BAD)),
        ):
            figure.add_scatter(
                x=[at],
                y=[name],
                name=what,
                mode="markers",
                legendgroup=what,
                showlegend=number == 0,
                cliponaxis=False,
                marker={"symbol": symbol, "size": 14, "color": colour, "line": {"width": 2}},
            )
    held = sum(row[1] <= row[5] <= row[3] for row in data.rows)
    title = "Nothing was predicted"
    if data.rows:
        known = "" if data.validated else " (the predictor is not validated)"
        title = f"{held} of {len(data.rows)} observed inside the predicted band{known}"
    figure.update_layout(yaxis=_REVERSED)
    figure.update_xaxes(rangemode="tozero")
    height = 200 + 60 * len(data.rows)
    return finish(figure, title, "duplicates", None, theme, height=height)


def rto_waterfall(data: WaterfallData, theme: Theme = LIGHT) -> go.Figure:
    """What happened after a kill, each from its predecessor in time; then what never did."""
    figure = go.Figure()
    previous = 0
    seen = sorted((at_ns, phase) for phase, at_ns in data.phases if at_ns is not None)
    end = max((at_ns for at_ns, _ in seen), default=NS_PER_SECOND) / NS_PER_SECOND
    for at_ns, phase in seen:
        figure.add_bar(
            x=[(at_ns - previous) / NS_PER_SECOND],
            base=[previous / NS_PER_SECOND],
            y=[phase.replace("_", " ")],
            orientation="h",
            showlegend=False,
            text=[f"{at_ns / NS_PER_SECOND:.1f} s"],
            textposition="outside",
            cliponaxis=False,
            marker={"color": theme.of(SLATE)},
        )
        previous = at_ns
    for number, phase in enumerate(phase for phase, at_ns in data.phases if at_ns is None):
        figure.add_bar(
            x=[0],
            y=[phase.replace("_", " ")],
            orientation="h",
            showlegend=False,
            text=["not seen"],
            textposition="outside",
            cliponaxis=False,
            marker={"color": theme.of(PALE), "pattern": {"shape": "/"}},
        )
        row = len(seen) + number
        figure.add_shape(
            type="line",
            x0=end * 0.12,
            x1=end,
            y0=row,
            y1=row,
            line={"dash": "dash", "width": 2, "color": theme.of(PALE)},
        )
    figure.update_layout(yaxis=_REVERSED)
    height = 190 + 36 * len(data.phases)
    return finish(figure, data.title, "seconds after the kill", None, theme, height=height)
