"""Figures of distributions and comparisons: what remembering would stop, ages, arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

import plotly.graph_objects as go

from failback.analytics.report.measures.point_rows import MAX_LINES, Report
from failback.analytics.report.page.figures.theme import (
    DASHES,
    LIGHT,
    MARKS,
    SLATE,
    Theme,
    finish,
    short,
)
from failback.analytics.report.page.tables.registry import Row
from failback.analytics.report.wording import number as number_text
from failback.analytics.report.wording import percent, seconds

METRIC_TITLES: Final[Mapping[str, tuple[str, float]]] = {
    "dup": ("duplicates", 1),
    "produce_rto_ms": ("send outage (s)", 1000),
    "consume_rto_ms": ("receive outage (s)", 1000),
}
_ENOUGH = 0.99


def groups_with_memory(report: Report) -> list[Row]:
    """The groups with most repeats after a success, of which a memory's use is known."""
    found = [group for group in report.get("groups", []) if group.get("dup_after_success")]
    found.sort(key=lambda group: (-group["dup_after_success"], group["group"]))
    return [group for group in found[:MAX_LINES] if shares(group, "by_seconds")]


def shares(group: Row, kind: str) -> list[Row]:
    """What memories of one ``kind`` would have stopped, where that is known."""
    return [row for row in (group.get("dedupe") or {}).get(kind, []) if row["share"] is not None]


def dedupe(kind: str, groups: Sequence[Row], theme: Theme = LIGHT) -> go.Figure:
    """What share of repeats after a success a memory stops: of so many seconds, or messages.

    ``kind`` is ``by_seconds`` or ``by_keys``, as in ``report.json``.
    """
    figure = go.Figure()
    by_keys = kind == "by_keys"
    for number, group in enumerate(groups):
        rows = shares(group, kind)
        error = {"array": [100 * row["error"] for row in rows], "width": 2} if by_keys else None
        figure.add_scatter(
            x=[row["keys" if by_keys else "window"] for row in rows],
            y=[100 * row["share"] for row in rows],
            name=short(group["group"]),
            showlegend=True,
            mode="lines+markers",
            error_y=error,
            line={"color": theme.text, "width": 2, "dash": DASHES[number % len(DASHES)]},
            marker={"symbol": MARKS[number % len(MARKS)], "size": 5},
        )
    figure.update_layout(
        xaxis={"type": "log", "dtick": 1, "tickformat": ","},
        yaxis={"range": [0, 104], "ticksuffix": " %", "title": {"text": "repeats stopped"}},
    )
    title, what = _dedupe_title(groups), "seconds"
    if by_keys:
        title, what = "Remembering the last messages instead, by their number", "messages"
    return finish(figure, title, f"{what} remembered (log)", None, theme, height=320)


def _dedupe_title(groups: Sequence[Row]) -> str:
    if not groups:
        return "No handled message was re-consumed"
    needed = []
    for each in groups:
        rows = shares(each, "by_seconds")
        enough = (row["window"] for row in rows if row["share"] >= _ENOUGH)
        needed.append((next(enough, float("inf")), each["group"]))
    window, group = max(needed)
    if window == float("inf"):
        return f"Remembering messages for a day does not stop all repeats of {short(group)}"
    share = percent(_ENOUGH)
    return f"Remembering handled messages for {number_text(window)} s would stop {share} of repeats"


def repeat_age(rows: Sequence[Row], exact: float | None = None, theme: Theme = LIGHT) -> go.Figure:
    """How long after the first success its repeats began.

    Args:
        rows: Those of the table ``repeat_age``.
        exact: The median in seconds, where it is known better than by the rows' edges.
        theme: The page's.
    """
    figure = go.Figure()
    figure.add_bar(
        x=[f"{row['at_most_s']:.3g}" for row in rows],
        y=[row["repeats"] for row in rows],
        text=[f"{row['repeats']:,}" for row in rows],
        textposition="outside",
        cliponaxis=False,
        marker={"color": theme.of(SLATE)},
    )
    title = "No handled message was re-consumed"
    middle = _median_edge(rows) if exact is None else exact
    if rows and middle is not None:
        after = seconds(middle)
        title = f"Half of the repeats of handled messages began {after} after the success"
    figure.update_xaxes(type="category")
    axis = "at most so many seconds after the first success"
    return finish(figure, title, axis, "repeats", theme, height=320)


def median_age(report: Report) -> float | None:
    """The exact median age of repeats, which is known where one group alone has any."""
    known = [g["repeat_age_seconds"]["p50"] for g in report["groups"] if g["dup_after_success"]]
    found: float | None = known[0] if len(known) == 1 else None
    return found


def _median_edge(rows: Sequence[Row]) -> float | None:
    """The upper edge of the bin that holds the median."""
    total, reached = sum(row["repeats"] for row in rows), 0
    for row in rows:
        reached += row["repeats"]
        if 2 * reached >= total:
            edge: float = row["at_most_s"]
            return edge
    return None


def compare_arms(compare: Mapping[str, Any], theme: Theme = LIGHT) -> go.Figure:
    """Every repetition as a point, each arm's median as a line; metrics below each other.

    ``compare`` is that of ``report.json``.
    """
    figure = go.Figure()
    panels = len(METRIC_TITLES)
    for number, (field, (metric, scale)) in enumerate(METRIC_TITLES.items()):
        arms = {
            arm["name"]: [
                run[field] / scale for run in arm.get("runs", []) if run[field] is not None
            ]
            for arm in compare["arms"]
        }
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
    return finish(figure, _arms_title(compare), None, None, theme, height=130 + 190 * panels)


def _arms_title(compare: Mapping[str, Any]) -> str:
    found = [row for row in compare["difference"] if row["metric"] == "dup"]
    known = [row for row in found if row["median"] is not None]
    if not known:
        return f"All runs are of arm {compare['baseline']}"
    row = max(known, key=lambda each: abs(each["median"]))
    more = "more" if row["median"] > 0 else "fewer"
    much = (
        f"{number_text(abs(row['median']))} {more} duplicates"
        if row["median"]
        else "as many duplicates"
    )
    sure = {True: "significant", False: "within chance"}.get(
        row["significant"], "too few runs to judge chance"
    )
    return f"{row.get('arm', '?')}: {much} than {compare['baseline']} ({sure})"


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
    for y, name, marker in (
        (known, "a repetition", {"symbol": MARKS[place % len(MARKS)], "size": 9}),
        ([median(known)], "median", {"symbol": "line-ew-open", "size": 42, "line": {"width": 3}}),
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
