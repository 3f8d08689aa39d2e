"""Figures of distributions and comparisons: what remembering would stop, ages, arms."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from failback.analytics.report.page.figure_types import AgeData, ArmData, DedupeData
from failback.analytics.report.page.figures.theme import (
    DASHES,
    LIGHT,
    MARKS,
    SLATE,
    Theme,
    finish,
    short,
)
from failback.analytics.report.wording import number as number_text
from failback.analytics.report.wording import percent, seconds

_ENOUGH = 0.99


def dedupe_seconds(data: DedupeData, theme: Theme = LIGHT) -> go.Figure:
    """What share of repeats after a success a memory of so many seconds stops."""
    figure = go.Figure()
    for number, (group, rows) in enumerate(data.by_seconds.items()):
        _curve(figure, group, [r[0] for r in rows], [r[1] for r in rows], number, theme)
    return _finished(figure, _dedupe_title(data), "seconds remembered (log)", theme)


def dedupe_keys(data: DedupeData, theme: Theme = LIGHT) -> go.Figure:
    """What share of repeats after a success a memory of so many messages stops."""
    figure = go.Figure()
    for number, (group, keys) in enumerate(data.by_keys.items()):
        _curve(figure, group, [r[0] for r in keys], [r[1] for r in keys], number, theme,
               [r[2] for r in keys])  # fmt: skip
    title = "Remembering the last messages instead, by their number"
    return _finished(figure, title, "messages remembered (log)", theme)


def _finished(figure: go.Figure, title: str, axis: str, theme: Theme) -> go.Figure:
    figure.update_layout(
        xaxis={"type": "log", "dtick": 1, "tickformat": ","},
        yaxis={"range": [0, 104], "ticksuffix": " %", "title": {"text": "repeats stopped"}},
    )
    return finish(figure, title, axis, None, theme, height=320)


def _curve(
    figure: go.Figure,
    group: str,
    x: list[float] | list[int],
    y: list[float],
    number: int,
    theme: Theme,
    error: list[float] | None = None,
) -> None:
    figure.add_scatter(
        x=x,
        y=[100 * share for share in y],
        name=short(group),
        showlegend=True,
        mode="lines+markers",
        error_y=None if error is None else {"array": [100 * e for e in error], "width": 2},
        line={"color": theme.text, "width": 2, "dash": DASHES[number % len(DASHES)]},
        marker={"symbol": MARKS[number % len(MARKS)], "size": 5},
    )


def _dedupe_title(data: DedupeData) -> str:
    if not data.by_seconds:
        return "No handled message came again"
    needed = []
    for group, rows in data.by_seconds.items():
        enough = next((window for window, share in rows if share >= _ENOUGH), None)
        needed.append((enough if enough is not None else float("inf"), group))
    window, group = max(needed)
    if window == float("inf"):
        return f"Remembering messages for a day does not stop all repeats of {short(group)}"
    share = percent(_ENOUGH)
    return f"Remembering handled messages for {number_text(window)} s would stop {share} of repeats"


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
    title = "No handled message came again"
    if data.median_seconds is not None:
        after = seconds(data.median_seconds)
        title = f"Half of the repeats of handled messages began {after} after the success"
    figure.update_xaxes(type="category")
    axis = "at most so many seconds after the first success"
    return finish(figure, title, axis, "repeats", theme, height=320)


def compare_arms(data: ArmData, theme: Theme = LIGHT) -> go.Figure:
    """Every repetition as a point, each arm's median as a line; metrics below each other."""
    figure = go.Figure()
    panels = max(1, len(data.metrics))
    for number, (metric, arms) in enumerate(data.metrics.items()):
        axis = "" if number == 0 else str(number + 1)
        top = 1 - number / panels
        most = max((max(values, default=0) for values in arms.values()), default=0) or 1
        figure.update_layout(
            {
                f"xaxis{axis}": {
                    "anchor": f"y{axis}",
                    "type": "category",
                    "range": [-0.6, max(len(arms), 1) - 0.4],
                },
                f"yaxis{axis}": {
                    "anchor": f"x{axis}",
                    "domain": [max(0, top - 1 / panels + 0.09), top],
                    "range": [-0.08 * most, 1.12 * most],
                    "title": {"text": metric},
                },
            }
        )
        for place, (arm, values) in enumerate(arms.items()):
            _arm(figure, short(arm, 18), values, place, axis, theme, first=number == 0)
    return finish(figure, data.title, None, None, theme, height=130 + 190 * panels)


def _arm(
    figure: go.Figure,
    arm: str,
    values: Sequence[float],
    place: int,
    axis: str,
    theme: Theme,
    *,
    first: bool,
) -> None:
    known = sorted(float(value) for value in values)
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
