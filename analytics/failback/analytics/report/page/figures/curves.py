"""Figures of distributions and comparisons: what a memory would catch, ages, arms, clocks."""

from __future__ import annotations

import plotly.graph_objects as go

from failback.analytics.report.page.figure_types import AgeData, ArmData, ClockData, DedupeData
from failback.analytics.report.page.figures.theme import (
    DASHES,
    LIGHT,
    MARKS,
    SLATE,
    Theme,
    count,
    finish,
    short,
)

_ENOUGH = 0.99


def dedupe_curve(data: DedupeData, theme: Theme = LIGHT) -> go.Figure:
    """What share of repeats after a success a memory of so many seconds or keys catches."""
    figure = go.Figure()
    for number, (group, rows) in enumerate(data.by_seconds.items()):
        _curve(figure, group, [r[0] for r in rows], [r[1] for r in rows], number, theme, "")
    for number, (group, keys) in enumerate(data.by_keys.items()):
        _curve(figure, group, [r[0] for r in keys], [r[1] for r in keys], number, theme, "2",
               [r[2] for r in keys])  # fmt: skip
    share = {"range": [0, 1.04], "tickformat": ".0%"}
    figure.update_layout(
        xaxis={"type": "log", "dtick": 1, "domain": [0, 0.46]},
        xaxis2={"type": "log", "dtick": 1, "domain": [0.54, 1], "anchor": "y2"},
        yaxis={**share, "title": {"text": "caught"}},
        yaxis2={**share, "anchor": "x2"},
    )
    finish(figure, _dedupe_title(data), None, None, theme, height=360)
    figure.update_layout(
        xaxis={"title": {"text": "memory of seconds"}},
        xaxis2={"title": {"text": "memory of keys"}},
    )
    return figure


def _curve(
    figure: go.Figure,
    group: str,
    x: list[float] | list[int],
    y: list[float],
    number: int,
    theme: Theme,
    axis: str,
    error: list[float] | None = None,
) -> None:
    figure.add_scatter(
        x=x,
        y=y,
        name=short(group),
        legendgroup=group,
        showlegend=not axis,
        mode="lines+markers",
        xaxis=f"x{axis}",
        yaxis=f"y{axis}",
        error_y=None if error is None else {"array": error, "width": 2},
        line={"color": theme.text, "width": 2, "dash": DASHES[number % len(DASHES)]},
        marker={"symbol": MARKS[number % len(MARKS)], "size": 5},
    )


def _dedupe_title(data: DedupeData) -> str:
    if not data.by_seconds:
        return "There was no useless repeat to catch"
    needed = []
    for group, rows in data.by_seconds.items():
        enough = next((window for window, share in rows if share >= _ENOUGH), None)
        needed.append((enough if enough is not None else float("inf"), group))
    window, group = max(needed)
    if window == float("inf"):
        return f"No memory of a day catches all repeats of {short(group)}"
    return f"A memory of {window:,.3g} s would have caught {_ENOUGH:.0%} of the useless repeats"


def repeat_age(data: AgeData, theme: Theme = LIGHT) -> go.Figure:
    """How long after the first success its repeats began."""
    figure = go.Figure()
    figure.add_bar(
        x=[f"{high:.3g}" for _, high, _ in data.bins],
        y=[number for *_, number in data.bins],
        text=[f"{number:,}" for *_, number in data.bins],
        textposition="outside",
        cliponaxis=False,
        marker={"color": theme.of(SLATE)},
    )
    title = "There was no useless repeat"
    if data.median_seconds is not None:
        title = f"Half of the useless repeats began {data.median_seconds:,.3g} s after the success"
    figure.update_xaxes(type="category")
    axis = "at most so many seconds after the first success"
    return finish(figure, title, axis, "repeats", theme, height=320)


def compare_arms(data: ArmData, theme: Theme = LIGHT) -> go.Figure:
    """Every repetition as a point, and each arm's median as a line, one panel per metric."""
    figure = go.Figure()
    panels = max(1, len(data.metrics))
    for number, arms in enumerate(data.metrics.values()):
        axis = "" if number == 0 else str(number + 1)
        left = number / panels
        figure.update_layout(
            {
                f"xaxis{axis}": {
                    "domain": [left + 0.03, left + 1 / panels - 0.03],
                    "anchor": f"y{axis}",
                    "type": "category",
                },
                f"yaxis{axis}": {"anchor": f"x{axis}", "rangemode": "tozero"},
            }
        )
        for place, (arm, values) in enumerate(arms.items()):
            _arm(figure, short(arm, 18), values, place, axis, theme, first=number == 0)
    finish(figure, data.title, None, None, theme, height=380)
    for number, metric in enumerate(data.metrics):
        axis = "" if number == 0 else str(number + 1)
        figure.update_layout({f"xaxis{axis}": {"title": {"text": metric}}})
    return figure


def _arm(
    figure: go.Figure,
    arm: str,
    values: object,
    place: int,
    axis: str,
    theme: Theme,
    *,
    first: bool,
) -> None:
    known = sorted(float(value) for value in values)  # type: ignore[attr-defined]
    if not known:
        return
    middle = len(known) // 2
    median = known[middle] if len(known) % 2 else (known[middle - 1] + known[middle]) / 2
    for y, name, marker in (
        (known, "a repetition", {"symbol": MARKS[place % len(MARKS)], "size": 9}),
        ([median], "median", {"symbol": "line-ew-open", "size": 42, "line": {"width": 3}}),
    ):
        figure.add_scatter(
            x=[arm] * len(y),
            y=y,
            name=name,
            legendgroup=name,
            showlegend=first and place == 0,
            mode="markers",
            xaxis=f"x{axis}",
            yaxis=f"y{axis}",
            marker={"color": theme.text if name == "median" else theme.of(SLATE), **marker},
        )


def clock_quality(data: ClockData, theme: Theme = LIGHT) -> go.Figure:
    """How well each host's clock is known."""
    figure = go.Figure()
    figure.add_bar(
        x=[error for *_, error in data.rows],
        y=[short(host, 34) for host, *_ in data.rows],
        orientation="h",
        text=[f"{error:.3f} ms" for *_, error in data.rows],
        textposition="outside",
        cliponaxis=False,
        marker={"color": theme.of(SLATE)},
    )
    worst = max((error for *_, error in data.rows), default=None)
    title = "No clock was compared"
    if worst is not None:
        title = f"Clocks of {count(len(data.rows), 'host')} are known to {worst:.3f} ms"
    height = 180 + 30 * len(data.rows)
    return finish(figure, title, "error (ms)", None, theme, height=height)
