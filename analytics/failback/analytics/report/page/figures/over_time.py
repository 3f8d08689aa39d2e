"""Figures over time: what happened, where offsets stood, when duplicates came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go

from failback.analytics.report.page.figures.marks import (
    EVENT_ROWS,
    ROW_PIXELS,
    is_late,
    mark_events,
    mark_faults,
    rows,
    span,
)
from failback.analytics.report.page.figures.theme import (
    BAD,
    DASHES,
    FAULT,
    GROUP_COLOURS,
    GROUP_HATCHES,
    HEAT,
    INK,
    LABEL,
    LIGHT,
    PALE,
    PAPER,
    SLATE,
    Theme,
    decades,
    finish,
    short,
)
from failback.analytics.report.page.time_series import (
    NS_PER_SECOND,
    OFFSET_SERIES,
    CauseTimeData,
    FaultBand,
    HeatData,
    Series,
    StaircaseData,
    TimelineData,
)
from failback.analytics.report.wording import many

MAX_LANES: Final = 12
MAX_DROP_LABELS: Final = 3
_LANE_PIXELS: Final = 26
_RATE_PIXELS: Final = 190
_LATENCY_PIXELS: Final = 170
_GAP_PIXELS: Final = 26
_FRAME_PIXELS: Final = 150
SECONDS: Final = "seconds after run zero"


def timeline(data: TimelineData, theme: Theme = LIGHT) -> go.Figure:
    """Events, fault lanes, rates and send latency, one above the other on one time axis."""
    figure = go.Figure()
    window = _window(data)
    lanes = list(data.faults)[:MAX_LANES]
    parts = _parts(len(lanes), bool(data.events))
    _add_rates(figure, data, theme)
    latency, failed = _add_latency(figure, data, theme)
    for fault in lanes:
        _add_lane(figure, fault, theme, window)
    mark_faults(figure, lanes, theme, window, top=parts["lanes"][1], labels=False)
    mark_events(figure, data.events, theme, window, parts["lanes"][1])
    figure.update_layout(
        barmode="overlay",
        yaxis={
            "title": {"text": "messages/s"},
            "domain": parts["rates"],
            "rangemode": "tozero",
        },
        yaxis2={"title": {"text": "send (ms)"}, "domain": parts["latency"]}
        | decades([*latency.values, *failed.values]),
        yaxis3={"domain": parts["lanes"], "autorange": "reversed", "showgrid": False},
        xaxis={"anchor": "y2"},
    )
    figure.update_xaxes(range=[edge / NS_PER_SECOND for edge in window])
    height = round(parts["pixels"][0]) + _FRAME_PIXELS
    return finish(figure, data.title, SECONDS, None, theme, height=height)


def _parts(lanes: int, events: bool) -> dict[str, list[float]]:
    """Where each part of the timeline lies, as shares of the plot, and its height in pixels."""
    labels = EVENT_ROWS * ROW_PIXELS + 8 if events else 8
    sizes = [_LATENCY_PIXELS, _RATE_PIXELS, max(8, lanes * _LANE_PIXELS)]
    total = sum(sizes) + 2 * _GAP_PIXELS + labels
    found, at = [], 0.0
    for size in sizes:
        found.append([at / total, (at + size) / total])
        at += size + _GAP_PIXELS
    latency, rates, above = found
    return {"latency": latency, "rates": rates, "lanes": above, "pixels": [float(total)]}


def _add_curve(figure: go.Figure, name: str, series: Series, **look: Any) -> Series:
    """Draw a curve with as many points as a trace may have; return those."""
    thin = series.thinned()
    figure.add_scatter(x=thin.seconds, y=list(thin.values), name=name, **look)
    return thin


def _add_rates(figure: go.Figure, data: TimelineData, theme: Theme) -> None:
    looks = ((INK, "solid"), (SLATE, "dash"), (HEAT, "dot"), (PALE, "dashdot"))
    for number, (name, series) in enumerate(data.rates.items()):
        colour, dash = looks[number % len(looks)]
        line = {"color": theme.of(colour), "width": 2, "dash": dash}
        _add_curve(figure, short(name), series, mode="lines", line=line)


def _add_latency(figure: go.Figure, data: TimelineData, theme: Theme) -> tuple[Series, Series]:
    good = {"size": 3, "color": theme.of(SLATE)}
    bad = {"size": 6, "symbol": "x-thin-open", "color": theme.of(BAD)}
    look = {"mode": "markers", "yaxis": "y2"}
    return (
        _add_curve(figure, "send latency", data.send_latency, **look, marker=good),
        _add_curve(figure, "failed send", data.failed_sends, **look, marker=bad),
    )


def _add_lane(figure: go.Figure, fault: FaultBand, theme: Theme, window: tuple[int, int]) -> None:
    """The intended time hatched, the observed one solid and narrower on top of it."""
    lane = short(fault.name, 24)
    least = (window[1] - window[0]) // 400
    for start, end, width, look in (
        (
            fault.intended_ns,
            fault.intended_end_ns,
            0.9,
            {
                "color": theme.of(FAULT),
                "line": {"width": 1, "color": theme.of(PALE)},
                "pattern": {"shape": "/", "fgcolor": theme.of(PALE)},
            },
        ),
        (
            fault.effect_ns,
            fault.heal_ns,
            0.5,
            {
                "color": theme.of(SLATE),
                "pattern": {"shape": "" if fault.proved else "x"},
            },
        ),
    ):
        if start is None:
            continue
        until = max(start + least, start if end is None else end)
        figure.add_bar(
            x=[(until - start) / NS_PER_SECOND],
            base=[start / NS_PER_SECOND],
            y=[lane],
            width=width,
            orientation="h",
            yaxis="y3",
            showlegend=False,
            marker=look,
            hovertext=f"{'observed' if width < 0.9 else 'intended'} {lane}",
        )


def _window(data: TimelineData) -> tuple[int, int]:
    """The time that the plot spans."""
    if data.window_ns is not None:
        return data.window_ns
    return span([*data.curves, Series([at for at, _ in data.events], [])], data.faults)


def offset_staircase(data: StaircaseData, theme: Theme = LIGHT) -> go.Figure:
    """One queue's offset in the client, the master's memory and file, and the slave."""
    figure = go.Figure()
    for key, (name, colour, dash) in OFFSET_SERIES.items():
        series = data.series.get(key)
        if series is None or not series.times_ns:
            continue
        line = {"color": theme.of(colour), "width": 2, "dash": dash, "shape": "hv"}
        _add_curve(figure, name, series, mode="lines", line=line)
    window = data.window_ns or span(data.series.values(), data.faults)
    mark_faults(figure, data.faults, theme, window)
    drops = sorted(sorted(data.drops, key=lambda drop: -_size_of_drop(drop[2]))[:MAX_DROP_LABELS])
    if data.drops:
        figure.add_scatter(
            x=[time_ns / NS_PER_SECOND for time_ns, *_ in data.drops],
            y=[value for _, value, _ in data.drops],
            name="a stored offset went down",
            mode="markers",
            hovertext=[text for *_, text in data.drops],
            marker={"symbol": "triangle-down", "size": 9, "color": theme.text},
        )
    places = rows([(time_ns, text) for time_ns, _, text in drops], window)
    for (time_ns, value, text), row in zip(drops, places, strict=True):
        late = is_late(time_ns, text, window)
        figure.add_annotation(
            x=time_ns / NS_PER_SECOND,
            y=value,
            text=text,
            showarrow=True,
            arrowhead=2,
            arrowcolor=theme.text,
            ax=-12 if late else 12,
            ay=30 + ROW_PIXELS * row,
            xanchor="right" if late else "left",
            bgcolor=theme.of(LABEL),
            font={"size": 12},
        )
    place = f"{short(data.queue, 44)}, group {short(data.group, 24)}"
    lost = max((drop[2] for drop in data.drops), key=_size_of_drop, default=None)
    said = [] if data.again is None else [f"{data.again or 'nothing'} re-consumed"]
    said += [lost] if lost else []
    title = f"{place}: {', '.join(said) or 'no stored offset went down'}"
    figure.update_xaxes(range=[edge / NS_PER_SECOND for edge in window])
    return finish(figure, title, SECONDS, "queue offset", theme, height=440)


def _size_of_drop(text: str) -> float:
    numbers = [float(part) for part in text.replace("→", " ").split() if part.isdecimal()]
    return numbers[0] - numbers[1] if len(numbers) == 2 else 0.0


def causes_over_time(data: CauseTimeData, theme: Theme = LIGHT) -> go.Figure:
    """Duplicates per second as stacked areas, one per report group."""
    figure = go.Figure()
    totals = {group: sum(rates) for group, rates in data.rates.items()}
    for group, rates in data.rates.items():
        colour = GROUP_COLOURS.get(group, GROUP_COLOURS["unattributed"])
        figure.add_scatter(
            x=list(data.seconds),
            y=list(rates),
            name=group.replace("_", " "),
            mode="lines",
            stackgroup="causes",
            showlegend=True,
            line={"color": colour, "width": 2, "shape": "hv"},
            fillcolor=colour,
            fillpattern={"shape": GROUP_HATCHES.get(group, ""), "fillmode": "overlay"},
        )
    curve = Series([round(at * NS_PER_SECOND) for at in data.seconds], [])
    window = span([curve], data.faults)
    mark_faults(figure, data.faults, theme, window)
    title = "No duplicate was delivered"
    if totals and data.seconds:
        peak = max(range(len(data.seconds)), key=lambda at: sum(r[at] for r in data.rates.values()))
        most = sum(rates[peak] for rates in data.rates.values())
        title = f"Duplicates came at up to {most:,.0f}/s, {data.seconds[peak]:,.0f} s into the run"
    if data.seconds:
        room = (window[1] - window[0]) * 0.02 + NS_PER_SECOND
        left = max(window[0] - room, min(0, window[0]))
        edges = [left / NS_PER_SECOND, (window[1] + room) / NS_PER_SECOND]
        figure.update_xaxes(range=edges)
    figure.update_yaxes(rangemode="tozero")
    return finish(figure, title, SECONDS, "duplicates/s", theme, height=360)


def interval_heatmap(data: HeatData, theme: Theme = LIGHT) -> go.Figure:
    """Re-deliveries per second by queue and time; what one assignment repeated is outlined."""
    figure = go.Figure()
    names = [short(queue, 34) for queue in data.queues]
    width = data.seconds[1] - data.seconds[0] if len(data.seconds) > 1 else 1.0
    if names:
        cells = [
            (name, second, rate)
            for name, row in zip(names, data.rates, strict=True)
            for second, rate in zip(data.seconds, row, strict=True)
            if rate
        ]
        most = max((rate for *_, rate in cells), default=1.0)
        figure.add_bar(
            x=[width] * len(cells),
            base=[second for _, second, _ in cells],
            y=[name for name, *_ in cells],
            orientation="h",
            width=1,
            showlegend=False,
            hovertext=[f"{name}, {second:.0f} s: {rate:,.0f}/s" for name, second, rate in cells],
            hoverinfo="text",
            marker={
                "color": theme.of(HEAT),
                "opacity": [0.2 + 0.8 * (rate / most) for *_, rate in cells],  # at most 1
                "line": {"width": 0},
            },
        )
    places = {queue: number for number, queue in enumerate(data.queues)}
    for queue, start, end in data.windows:
        row = places[queue]
        figure.add_shape(
            type="rect",
            x0=start,
            x1=end,
            y0=row - 0.45,
            y1=row + 0.45,
            line={"width": 2, "color": theme.text},
        )
    order = {"autorange": "reversed", "categoryorder": "array", "categoryarray": names}
    figure.update_layout(barmode="overlay", yaxis=order, plot_bgcolor=theme.of(PAPER))
    title = "No queue delivered anything twice"
    if names:
        busiest = max(range(len(names)), key=lambda at: sum(data.rates[at]))
        title = f"{many(len(names), 'queue')} with repeats, most of all {names[busiest]}"
        title += "; the darker, the more a second"
    return finish(figure, title, SECONDS, None, theme, height=240 + 30 * len(names))


def exposure(
    curves: Mapping[str, Series], faults: Sequence[FaultBand] = (), theme: Theme = LIGHT
) -> go.Figure:
    """What a kill of the master would have repeated, at each second of the run."""
    figure = go.Figure()
    highest = []
    for number, (name, series) in enumerate(curves.items()):
        line = {"color": theme.text, "width": 2, "dash": DASHES[number % len(DASHES)]}
        thin = _add_curve(figure, short(name), series, mode="lines", line=line)
        highest.append(max(thin.values, default=0))
    mark_faults(figure, faults, theme, span(curves.values(), faults))
    title = "No broker's offsets were sampled"
    if highest:
        most = many(round(max(highest)), "message")
        title = f"A kill at the worst second would have repeated {most}"
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(ticklabelstandoff=8)  # both axes may begin with 0 in the same corner
    return finish(figure, title, SECONDS, "messages", theme, height=320)
