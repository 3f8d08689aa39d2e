"""Figures of a report: one pure function each, from a frozen data class to a Plotly figure.

The same functions serve the self-contained ``report.html`` and the dashboard. No I/O and no
globals besides the palette. Every figure has a title that states its finding, units on its axes and
a table twin beside it in the page, so that nothing is told by colour alone: each report group has
its own colour (Okabe-Ito) *and* its own hatch.

Times are nanoseconds after run zero in the data and seconds on the axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import plotly.graph_objects as go

NS_PER_SECOND: Final = 1_000_000_000
MAX_POINTS_PER_TRACE: Final = 20_000
# For keeping labels apart: the page is at most this wide, a letter of a label about that wide.
_PLOT_PIXELS: Final = 1030
_LETTER_PIXELS: Final = 6.5
_ROW_PIXELS: Final = 16
_TIMELINE_TOP: Final = 0.78
_EVENT_ROWS: Final = 6

GROUP_COLOURS: Final[Mapping[str, str]] = {
    "rollback": "#D55E00",
    "rebalance": "#0072B2",
    "consumer_end": "#CC79A7",
    "retry": "#009E73",
    "producer": "#E69F00",
    "other": "#56B4E9",
    "unattributed": "#767676",
}
GROUP_HATCHES: Final[Mapping[str, str]] = {
    "rollback": "/",
    "rebalance": "\\",
    "consumer_end": "x",
    "retry": ".",
    "producer": "-",
    "other": "|",
    "unattributed": "",
}
OFFSET_SERIES: Final[Mapping[str, tuple[str, str, str]]] = {
    "delivered": ("delivered to the handler", "#1B1B1B", "solid"),
    "client_memory": ("client memory (committed from)", "#0072B2", "dash"),
    "master_table": ("master, in memory", "#D55E00", "solid"),
    "master_file": ("master, consumerOffset.json", "#E69F00", "dot"),
    "slave_table": ("slave, in memory", "#009E73", "dashdot"),
}


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of the page around the data."""

    text: str = "#1B1B1B"
    grid: str = "#D8D8D8"
    paper: str = "#FFFFFF"
    fault: str = "rgba(213, 94, 0, 0.18)"
    label: str = "rgba(255, 255, 255, 0.75)"


LIGHT: Final = Theme()
DARK: Final = Theme(
    text="#F2F2F2",
    grid="#4A4A4A",
    paper="#16191D",
    fault="rgba(230, 159, 0, 0.25)",
    label="rgba(22, 25, 29, 0.75)",
)


@dataclass(frozen=True, slots=True)
class FaultBand:
    """One fault: what was intended and what a witness observed, in ns after run zero."""

    name: str
    intended_ns: int | None
    effect_ns: int | None
    heal_ns: int | None


@dataclass(frozen=True, slots=True)
class Series:
    """A curve: times in ns after run zero and values of one unit."""

    times_ns: Sequence[int]
    values: Sequence[float]

    def thinned(self, limit: int = MAX_POINTS_PER_TRACE) -> Series:
        """Keep the least and greatest value of each of ``limit / 2`` equal spans of points."""
        count = len(self.times_ns)
        if count <= limit:
            return self
        span = math.ceil(count / (limit // 2))
        keep: list[int] = []
        for start in range(0, count, span):
            part = range(start, min(start + span, count))
            keep += sorted({min(part, key=self._value), max(part, key=self._value)})
        return Series([self.times_ns[i] for i in keep], [self.values[i] for i in keep])

    def _value(self, index: int) -> float:
        return self.values[index]

    @property
    def seconds(self) -> list[float]:
        return [time / NS_PER_SECOND for time in self.times_ns]


@dataclass(frozen=True, slots=True)
class TimelineData:
    """Rates (messages/s) by name, send latency (ms) and what happened when."""

    rates: Mapping[str, Series]
    send_latency: Series
    failed_sends: Series
    faults: Sequence[FaultBand]
    events: Sequence[tuple[int, str]] = ()
    window_ns: tuple[int, int] | None = None
    title: str = "Rates and the fault"


@dataclass(frozen=True, slots=True)
class StaircaseData:
    """Where each copy of one queue's consumer offset stood."""

    group: str
    queue: str
    series: Mapping[str, Series]
    faults: Sequence[FaultBand]
    drops: Sequence[tuple[int, float, str]] = ()


@dataclass(frozen=True, slots=True)
class CauseData:
    """Duplicates by cause: ``(cause, report group, after success, not after, unknown)`` rows."""

    rows: Sequence[tuple[str, str, int, int, int]]


@dataclass(frozen=True, slots=True)
class IntervalData:
    """Re-consumed windows: ``(queue, lo, hi, size, cause, report group, t_ns)`` rows."""

    windows: Sequence[tuple[str, int, int, int, str, str, int]]


@dataclass(frozen=True, slots=True)
class BoundData:
    """``(label, observed, bound, exceeded)`` rows, in messages."""

    rows: Sequence[tuple[str, float, float | None, bool]]


@dataclass(frozen=True, slots=True)
class WaterfallData:
    """Phases of an outage after the kill: ``(phase, ns after the kill or None)``."""

    title: str
    phases: Sequence[tuple[str, int | None]]


def timeline(data: TimelineData, theme: Theme = LIGHT) -> go.Figure:
    """Rates above, send latency below, the observed fault as a band, the intended one behind."""
    figure = go.Figure()
    dashes = ("solid", "dash", "dot", "dashdot")
    colours = ("#0072B2", "#009E73", "#D55E00", "#CC79A7")
    for number, (name, series) in enumerate(data.rates.items()):
        thin = series.thinned()
        figure.add_scatter(
            x=thin.seconds,
            y=list(thin.values),
            name=name,
            mode="lines",
            line={"color": colours[number % 4], "width": 2, "dash": dashes[number % 4]},
        )
    latency = data.send_latency.thinned()
    figure.add_scatter(
        x=latency.seconds,
        y=list(latency.values),
        name="send latency",
        mode="markers",
        yaxis="y2",
        marker={"size": 3, "color": "#56B4E9"},
    )
    failed = data.failed_sends.thinned()
    figure.add_scatter(
        x=failed.seconds,
        y=list(failed.values),
        name="failed send",
        mode="markers",
        yaxis="y2",
        marker={"size": 6, "symbol": "x", "color": "#D55E00"},
    )
    window = _window(data)
    _mark_faults(figure, data.faults, theme, window, _TIMELINE_TOP)
    _mark_events(figure, data.events, theme, window)
    figure.update_layout(
        yaxis={
            "title": {"text": "messages per second"},
            "domain": [0.42, _TIMELINE_TOP],
            "rangemode": "tozero",
        },
        yaxis2={"title": {"text": "send latency (ms)"}, "domain": [0, 0.36]}
        | _decades([*latency.values, *failed.values]),
        xaxis={"anchor": "y2"},
    )
    figure.update_xaxes(range=[edge / NS_PER_SECOND for edge in window])
    return _finish(figure, data.title, "seconds after run zero", None, theme, height=640)


def _window(data: TimelineData) -> tuple[int, int]:
    """The time that the plot spans."""
    if data.window_ns is not None:
        return data.window_ns
    curves = [*data.rates.values(), data.send_latency, data.failed_sends]
    return _span([*curves, Series([at for at, _ in data.events], [])], data.faults)


def _span(curves: Iterable[Series], faults: Iterable[FaultBand]) -> tuple[int, int]:
    times = [time for curve in curves for time in curve.times_ns]
    for fault in faults:
        times += [each for each in (fault.effect_ns, fault.heal_ns) if each is not None]
    return (min(times), max(times)) if times else (0, NS_PER_SECOND)


def _decades(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis from one power of ten to another, so that at least two have a label."""
    known = [math.log10(value) for value in values if value > 0] or [0.0]
    low, high = math.floor(min(known)), math.ceil(max(known))
    return {"type": "log", "dtick": 1, "range": [low - 0.1, max(high, low + 1) + 0.1]}


def offset_staircase(data: StaircaseData, theme: Theme = LIGHT) -> go.Figure:
    """One queue's offset in the client, the master's memory and file, and the slave."""
    figure = go.Figure()
    for key, (name, colour, dash) in OFFSET_SERIES.items():
        series = data.series.get(key)
        if series is None or not series.times_ns:
            continue
        thin = series.thinned()
        figure.add_scatter(
            x=thin.seconds,
            y=list(thin.values),
            name=name,
            mode="lines",
            line={"color": colour, "width": 2, "dash": dash, "shape": "hv"},
        )
    window = _span(data.series.values(), data.faults)
    _mark_faults(figure, data.faults, theme, window)
    drops = sorted(data.drops)
    rows = _rows([(time_ns, text) for time_ns, _, text in drops], window)
    for (time_ns, value, text), row in zip(drops, rows, strict=True):
        figure.add_annotation(
            x=time_ns / NS_PER_SECOND,
            y=value,
            text=text,
            showarrow=True,
            arrowhead=2,
            ax=12,
            ay=-30 - _ROW_PIXELS * row,
            xanchor="right" if _is_late(time_ns, text, window) else "left",
            bgcolor=theme.label,
            font={"size": 12},
        )
    title = f"Offsets of {data.queue}, group {data.group}"
    return _finish(figure, title, "seconds after run zero", "queue offset", theme, height=420)


def dup_by_cause(data: CauseData, theme: Theme = LIGHT) -> go.Figure:
    """Duplicates by cause; hatched by report group, paler where the work was needed."""
    figure = go.Figure()
    named: set[tuple[str, str]] = set()
    for cause, group, after, before, unknown in data.rows:
        for label, count, opacity in (
            ("after a success", after, 1.0),
            ("before any success", before, 0.6),
            ("order unknown", unknown, 0.35),
        ):
            if not count:
                continue
            figure.add_bar(
                x=[count],
                y=[cause],
                name=f"{group.replace('_', ' ')}: {label}",
                orientation="h",
                marker={
                    "color": GROUP_COLOURS.get(group, GROUP_COLOURS["unattributed"]),
                    "opacity": opacity,
                    "pattern": {"shape": GROUP_HATCHES.get(group, "")},
                },
                text=[str(count)],
                textposition="outside",
                cliponaxis=False,
                legendgroup=f"{group}: {label}",
                showlegend=(group, label) not in named,
            )
            named.add((group, label))
    figure.update_layout(barmode="stack", yaxis={"autorange": "reversed"})
    total = sum(sum(row[2:]) for row in data.rows)
    title = f"{total} duplicates by cause" if total else "No duplicate was delivered"
    return _finish(figure, title, "deliveries", None, theme, height=190 + 50 * len(data.rows))


def interval_map(data: IntervalData, theme: Theme = LIGHT) -> go.Figure:
    """Which offsets of which queue were consumed again."""
    figure = go.Figure()
    for queue, lo, hi, size, cause, group, time_ns in data.windows:
        figure.add_bar(
            x=[hi - lo],
            base=[lo],
            y=[queue],
            orientation="h",
            name=cause,
            showlegend=False,
            marker={
                "color": GROUP_COLOURS.get(group, GROUP_COLOURS["unattributed"]),
                "pattern": {"shape": GROUP_HATCHES.get(group, "")},
            },
            hovertext=f"[{lo}, {hi}) {size} messages, {cause}, at {time_ns / NS_PER_SECOND:.1f} s",
        )
    figure.update_layout(barmode="overlay", yaxis={"autorange": "reversed"})
    queues = len({window[0] for window in data.windows})
    title = f"{_count(len(data.windows), 're-consumed interval')} in {_count(queues, 'queue')}"
    return _finish(figure, title, "queue offset", None, theme, height=200 + 40 * queues)


def bound_vs_observed(data: BoundData, theme: Theme = LIGHT) -> go.Figure:
    """Observed re-consumption as bars, its bound as a line; an exceeded bound is cross-hatched."""
    figure = go.Figure()
    for label, observed, bound, exceeded in data.rows:
        figure.add_bar(
            x=[observed],
            y=[label],
            orientation="h",
            width=0.5,
            name="observed",
            showlegend=False,
            text=[f"{observed:g}"],
            textposition="outside",
            cliponaxis=False,
            marker={
                "color": "#D55E00" if exceeded else "#0072B2",
                "pattern": {"shape": "x" if exceeded else ""},
            },
        )
        if bound is not None:
            figure.add_scatter(
                x=[bound],
                y=[label],
                name="bound",
                showlegend=False,
                mode="markers+text",
                text=[f"bound {bound:g}"],
                textposition="top center",
                cliponaxis=False,
                marker={"symbol": "line-ns-open", "size": 44, "color": theme.text},
            )
    over = [row[0] for row in data.rows if row[3]]
    title = f"Bound exceeded: {', '.join(over)}" if over else "Within every bound"
    figure.update_layout(yaxis={"autorange": "reversed"})
    figure.update_xaxes(rangemode="tozero")
    height = 190 + 70 * len(data.rows)
    return _finish(figure, title, "messages consumed again", None, theme, height=height)


def rto_waterfall(data: WaterfallData, theme: Theme = LIGHT) -> go.Figure:
    """What happened after a kill, each from its predecessor in time; then what never did."""
    figure = go.Figure()
    previous = 0
    seen = sorted((at_ns, phase) for phase, at_ns in data.phases if at_ns is not None)
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
            marker={"color": "#0072B2"},
        )
        previous = at_ns
    for phase in (phase for phase, at_ns in data.phases if at_ns is None):
        figure.add_bar(
            x=[0],
            y=[phase.replace("_", " ")],
            orientation="h",
            showlegend=False,
            text=["not seen"],
            textposition="outside",
            marker={"color": "#767676", "pattern": {"shape": "/"}},
        )
    figure.update_layout(yaxis={"autorange": "reversed"})
    height = 190 + 36 * len(data.phases)
    return _finish(figure, data.title, "seconds after the kill", None, theme, height=height)


def _rows(
    labels: Sequence[tuple[int, str]], window: tuple[int, int], limit: int | None = None
) -> list[int]:
    """Give each label, sorted by time, the lowest row where it lies on no other.

    With a ``limit``, those that find no room get -1.
    """
    ends: list[float] = []
    rows: list[int] = []
    for time_ns, text in labels:
        width = _LETTER_PIXELS * len(text) + 10
        at = _pixels(time_ns, window)
        begin = at - width if _is_late(time_ns, text, window) else at
        free = [row for row, end in enumerate(ends) if end <= begin]
        if free:
            row = free[0]
        elif limit is None or len(ends) < limit:
            row = len(ends)
            ends.append(0.0)
        else:
            rows.append(-1)
            continue
        ends[row] = begin + width
        rows.append(row)
    return rows


def _pixels(time_ns: int, window: tuple[int, int]) -> float:
    return (time_ns - window[0]) / max(1, window[1] - window[0]) * _PLOT_PIXELS


def _is_late(time_ns: int, text: str, window: tuple[int, int]) -> bool:
    """Tell whether a label that begins at ``time_ns`` would leave the plot at the right."""
    return _pixels(time_ns, window) + _LETTER_PIXELS * len(text) > _PLOT_PIXELS


def _mark_events(
    figure: go.Figure, events: Sequence[tuple[int, str]], theme: Theme, window: tuple[int, int]
) -> None:
    """Draw a line per event and its text above the plot, as many as find room there."""
    ordered = sorted(events)
    for (time_ns, text), row in zip(ordered, _rows(ordered, window, _EVENT_ROWS), strict=True):
        at = time_ns / NS_PER_SECOND
        figure.add_shape(
            type="line",
            x0=at,
            x1=at,
            y0=0,
            y1=_TIMELINE_TOP,
            yref="paper",
            line={"width": 1, "dash": "dot", "color": theme.text},
        )
        if row < 0:
            continue
        figure.add_annotation(
            x=at,
            y=_TIMELINE_TOP,
            yref="paper",
            yshift=2 + _ROW_PIXELS * row,
            text=text,
            showarrow=False,
            xanchor="right" if _is_late(time_ns, text, window) else "left",
            yanchor="bottom",
            font={"size": 11},
        )


def _mark_faults(
    figure: go.Figure,
    faults: Iterable[FaultBand],
    theme: Theme,
    window: tuple[int, int],
    top: float = 1.0,
) -> None:
    """Draw what was observed as a band over the plot up to ``top``, the intention as a line."""
    shown = list(faults)
    bands = [(each.effect_ns, each) for each in shown if each.effect_ns is not None]
    bands.sort(key=itemgetter(0))
    for fault in shown:
        if fault.intended_ns is not None:
            at = fault.intended_ns / NS_PER_SECOND
            figure.add_shape(
                type="line",
                x0=at,
                x1=at,
                y0=0,
                y1=top,
                yref="paper",
                line={"width": 2, "dash": "dot", "color": "#767676"},
            )
    rows = _rows([(start, fault.name) for start, fault in bands], window)
    for (start, fault), row in zip(bands, rows, strict=True):
        end = fault.heal_ns if fault.heal_ns is not None else start
        figure.add_shape(
            type="rect",
            x0=start / NS_PER_SECOND,
            x1=end / NS_PER_SECOND,
            y0=0,
            y1=top,
            yref="paper",
            fillcolor=theme.fault,
            line={"width": 1, "color": "#D55E00"},
            layer="below",
        )
        figure.add_annotation(
            x=start / NS_PER_SECOND,
            y=top,
            yref="paper",
            yshift=-2 - (_ROW_PIXELS + 2) * row,
            text=fault.name,
            showarrow=False,
            xanchor="right" if _is_late(start, fault.name, window) else "left",
            yanchor="top",
            bgcolor=theme.label,
            font={"size": 11},
        )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _finish(
    figure: go.Figure,
    title: str,
    x_title: str | None,
    y_title: str | None,
    theme: Theme,
    *,
    height: int,
) -> go.Figure:
    axis: dict[str, Any] = {"gridcolor": theme.grid, "zeroline": False, "automargin": True}
    figure.update_layout(
        title={"text": title},
        height=max(height, 220),
        paper_bgcolor=theme.paper,
        plot_bgcolor=theme.paper,
        font={"color": theme.text, "size": 13},
        margin={"l": 70, "r": 30, "t": 60, "b": 90},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
    )
    figure.update_xaxes(**axis)
    figure.update_yaxes(**axis)
    if x_title:
        figure.update_xaxes(title_text=x_title)
    if y_title:
        figure.update_yaxes(title_text=y_title)
    return figure
