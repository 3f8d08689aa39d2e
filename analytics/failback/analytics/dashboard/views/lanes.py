"""The live figure of a run: counters over time, and below them one lane per fault. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import plotly.graph_objects as go

from failback.analytics.dashboard.sources.live_run import LiveFault, LiveRun
from failback.analytics.report.measures.numbers import NS
from failback.analytics.report.page.figures.theme import Theme

MOST_LANES: Final = 12
_LANE_PIXELS: Final = 34


@dataclass(frozen=True, slots=True)
class LiveData:
    """Rates by second after run zero, and the faults."""

    seconds: Sequence[float]
    produced: Sequence[float]
    delivered: Sequence[float]
    repeated: Sequence[float]
    faults: Sequence[LiveFault]
    now: float


def live_data(live: LiveRun) -> LiveData:
    """Differences of the counters from one look to the next."""
    history = live.history if live.zero_ns else []
    seconds: list[float] = []
    produced: list[float] = []
    delivered: list[float] = []
    repeated: list[float] = []
    for before, after in itertools.pairwise(history):
        span = (after[0] - before[0]) / NS
        if span <= 0:
            continue
        seconds.append(round((after[0] - live.zero_ns) / NS, 1))
        for values, at in ((produced, 1), (delivered, 2), (repeated, 3)):
            values.append(round((after[at] - before[at]) / span, 2))
    now = round((history[-1][0] - live.zero_ns) / NS, 1) if history else 0.0
    faults = list(live.faults.values())[:MOST_LANES]
    return LiveData(seconds, produced, delivered, repeated, faults, now)


def live_figure(data: LiveData, theme: Theme) -> go.Figure:
    """Rates above; below each fault's intention hatched and what was observed solid."""
    figure = go.Figure()
    for name, values, colour, dash in (
        ("acknowledged sends", data.produced, "#0072B2", "solid"),
        ("deliveries", data.delivered, "#009E73", "dash"),
        ("delivered again", data.repeated, "#D55E00", "solid"),
    ):
        figure.add_scatter(
            x=list(data.seconds), y=list(values), name=name, mode="lines",
            line={"color": colour, "width": 2, "dash": dash},
        )  # fmt: skip
    lanes = [f"{fault.fid} {fault.fault}" for fault in data.faults]
    for lane, fault in zip(lanes, data.faults, strict=True):
        _add_lane(figure, lane, fault, data.now)
    share = min(0.6, 0.12 + 0.08 * len(lanes)) if lanes else 0.0
    figure.update_layout(
        title={"text": title_of(data)},
        height=380 + _LANE_PIXELS * len(lanes),
        barmode="overlay",
        paper_bgcolor=theme.paper,
        plot_bgcolor=theme.paper,
        font={"color": theme.text, "size": 13},
        margin={"l": 70, "r": 20, "t": 60, "b": 90},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        xaxis={"title": {"text": "seconds after run zero"}, "anchor": "y2" if lanes else "y",
               "gridcolor": theme.grid, "zeroline": False, "automargin": True},
        yaxis={"title": {"text": "messages per second"}, "domain": [share + 0.06, 1],
               "rangemode": "tozero", "gridcolor": theme.grid, "automargin": True},
    )  # fmt: skip
    if lanes:
        figure.update_layout(
            yaxis2={"domain": [0, share], "type": "category", "categoryarray": lanes,
                    "autorange": "reversed", "gridcolor": theme.grid, "automargin": True}
        )  # fmt: skip
    return figure


def _add_lane(figure: go.Figure, lane: str, fault: LiveFault, now: float) -> None:
    at = fault.effect_ns
    if fault.intended_ns is not None:
        start = fault.intended_ns / NS
        end = max(now, start + 1) if at is None else at / NS
        figure.add_bar(
            x=[max(end - start, 0.3)], base=[start], y=[lane], yaxis="y2", orientation="h",
            name=f"{lane}: intended", showlegend=False, width=0.7,
            marker={"color": "#767676", "pattern": {"shape": "/"}},
            hovertext=f"{lane}: intended at {start:.1f} s",
        )  # fmt: skip
    if at is not None:
        start = at / NS
        end = fault.heal_ns / NS if fault.heal_ns is not None else max(now, start + 0.5)
        over = "healed" if fault.heal_ns is not None else "in effect"
        figure.add_bar(
            x=[max(end - start, 0.3)], base=[start], y=[lane], yaxis="y2", orientation="h",
            name=f"{lane}: observed", showlegend=False, width=0.7, text=[over],
            textposition="inside", insidetextanchor="start", marker={"color": "#D55E00"},
            textfont={"color": "#FFFFFF"},
            hovertext=f"{lane}: seen from {start:.1f} s, {over}",
        )  # fmt: skip
    if fault.intended_ns is None and at is None:
        figure.add_bar(
            x=[0], base=[0], y=[lane], yaxis="y2", orientation="h", showlegend=False,
            text=["waits for another fault"], textposition="outside", width=0.7,
        )  # fmt: skip


def title_of(data: LiveData) -> str:
    """What is going on, in one line."""
    now = [fault for fault in data.faults if fault.effect_ns is not None and fault.heal_ns is None]
    if now:
        return f"{now[0].fault} of {now[0].victim} is in effect"
    done = [fault for fault in data.faults if fault.heal_ns is not None]
    if done:
        return f"{len(done)} of {len(data.faults)} faults are healed"
    return "No fault yet"
