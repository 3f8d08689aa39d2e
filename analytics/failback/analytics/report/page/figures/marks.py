"""Faults and events in a plot over time, with labels that lie apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

import plotly.graph_objects as go

from failback.analytics.report.page.figures.theme import FAULT, LABEL, PALE, SLATE, Theme, short
from failback.analytics.report.page.time_series import NS_PER_SECOND, FaultBand, Series

# For keeping labels apart on a phone too: a plot is at least this wide, a letter about that wide.
PLOT_PIXELS: Final = 300
LETTER_PIXELS: Final = 6.5
ROW_PIXELS: Final = 16
EVENT_ROWS: Final = 6

Window = tuple[int, int]


def span(curves: Iterable[Series], faults: Iterable[FaultBand]) -> Window:
    """The time that curves and faults cover."""
    times = [time for curve in curves if curve.times_ns for time in ends(curve)]
    for fault in faults:
        times += [each for each in (fault.effect_ns, fault.heal_ns) if each is not None]
    return (min(times), max(times)) if times else (0, NS_PER_SECOND)


def ends(curve: Series) -> tuple[int, int]:
    """The first and the last time of a curve that has one; times need no order."""
    return min(curve.times_ns), max(curve.times_ns)


def rows(labels: Sequence[tuple[int, str]], window: Window, limit: int | None = None) -> list[int]:
    """Give each label, sorted by time, the lowest row where it lies on no other.

    With a ``limit``, those that find no room get -1.
    """
    ends: list[float] = []
    found: list[int] = []
    for time_ns, text in labels:
        width = LETTER_PIXELS * len(text) + 10
        at = pixels(time_ns, window)
        begin = at - width if is_late(time_ns, text, window) else at
        free = [row for row, end in enumerate(ends) if end <= begin]
        if free:
            row = free[0]
        elif limit is None or len(ends) < limit:
            row = len(ends)
            ends.append(0.0)
        else:
            found.append(-1)
            continue
        ends[row] = begin + width
        found.append(row)
    return found


def pixels(time_ns: int, window: Window) -> float:
    return (time_ns - window[0]) / max(1, window[1] - window[0]) * PLOT_PIXELS


def is_late(time_ns: int, text: str, window: Window) -> bool:
    """Tell whether a label at ``time_ns`` is written to the left of it, not to leave the plot."""
    at = pixels(time_ns, window)
    return at + LETTER_PIXELS * len(text) > PLOT_PIXELS and 2 * at > PLOT_PIXELS


def _add_line(figure: go.Figure, at: float, top: float, look: dict[str, Any]) -> None:
    figure.add_shape(type="line", x0=at, x1=at, y0=0, y1=top, yref="paper", line=look)


def mark_events(
    figure: go.Figure,
    events: Sequence[tuple[int, str]],
    theme: Theme,
    window: Window,
    top: float,
) -> None:
    """Draw a line per event and its number above ``top``, as many as find room there.

    The text comes with the pointer, and from the table of events, which has the numbers too.
    """
    ordered = [(at, str(number)) for number, (at, _) in enumerate(events, 1)]
    places = rows(ordered, window, EVENT_ROWS)
    for (time_ns, number), (_, text), row in zip(ordered, events, places, strict=True):
        at = time_ns / NS_PER_SECOND
        if row < 0:
            continue
        _add_line(figure, at, top, {"width": 1, "dash": "dot", "color": theme.text})
        figure.add_annotation(
            x=at,
            y=top,
            yref="paper",
            yshift=2 + ROW_PIXELS * row,
            text=number,
            hovertext=short(text, 80),
            showarrow=False,
            xanchor="right" if is_late(time_ns, number, window) else "left",
            yanchor="bottom",
            font={"size": 11},
        )


def mark_faults(
    figure: go.Figure,
    faults: Iterable[FaultBand],
    theme: Theme,
    window: Window,
    *,
    top: float = 1.0,
    labels: bool = True,
) -> None:
    """Draw what was observed as a band over the plot up to ``top``, the intention as a line."""
    shown = list(faults)
    for fault in shown:
        if fault.intended_ns is not None:
            look = {"width": 2, "dash": "dot", "color": theme.of(PALE)}
            _add_line(figure, fault.intended_ns / NS_PER_SECOND, top, look)
    bands = [(each.effect_ns, each) for each in shown if each.effect_ns is not None]
    bands.sort(key=itemgetter(0))
    places = rows([(start, short(fault.name, 20)) for start, fault in bands], window)
    for (start, fault), row in zip(bands, places, strict=True):
        end = fault.heal_ns if fault.heal_ns is not None else start
        figure.add_shape(
            type="rect",
            x0=start / NS_PER_SECOND,
            x1=end / NS_PER_SECOND,
            y0=0,
            y1=top,
            yref="paper",
            fillcolor=theme.of(FAULT),
            line={"width": 1, "color": theme.of(SLATE)},
            layer="below",
        )
        if not labels:
            continue
        text = short(fault.name, 20)
        figure.add_annotation(
            x=start / NS_PER_SECOND,
            y=top,
            yref="paper",
            yshift=-2 - (ROW_PIXELS + 2) * row,
            text=text,
            showarrow=False,
            xanchor="right" if is_late(start, text, window) else "left",
            yanchor="top",
            bgcolor=theme.of(LABEL),
            font={"size": 11},
        )
