"""Figures of bars, drawn from rows of tables: causes, intervals, bounds, predictions, phases."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go

from failback.analytics.analysis.causes import labels
from failback.analytics.report.measures.numbers import NS
from failback.analytics.report.page.figures.theme import (
    BAD,
    LIGHT,
    PALE,
    SLATE,
    Theme,
    finish,
    group_marker,
    short,
)
from failback.analytics.report.page.tables.redeliveries import UNATTRIBUTED, queue_text
from failback.analytics.report.page.tables.registry import Row
from failback.analytics.report.wording import many, percent, seconds

MOST_QUEUES: Final = 50
_REVERSED = {"autorange": "reversed"}


_ORDERS: Final = (
    ("after_success", "after a success", 1.0),
    ("before_success", "before any success", 0.6),
    ("unknown_order", "order unknown", 0.35),
)
"""Field, name and opacity of the three orders of a repeat and the first success."""


def _behind_bar(text: str) -> dict[str, Any]:
    return {"text": [text], "textposition": "outside", "cliponaxis": False}


def dup_by_cause(rows: Sequence[Row], theme: Theme = LIGHT) -> go.Figure:
    """Duplicates by cause; hatched by report group, paler where the work was needed.

    ``rows`` are those of the table ``causes``.
    """
    figure = go.Figure()
    named: set[tuple[str, str]] = set()
    for row in rows:
        cause, group = row["cause"], row["report_group"]
        for field, label, opacity in _ORDERS:
            number = row[field]
            if not number:
                continue
            figure.add_bar(
                x=[number],
                y=[cause],
                name=f"{group.replace('_', ' ')}: {label}",
                orientation="h",
                marker=group_marker(group, opacity),
                **_behind_bar(str(number)),
                legendgroup=f"{group}: {label}",
                showlegend=(group, label) not in named,
            )
            named.add((group, label))
    figure.update_layout(barmode="stack", yaxis=_REVERSED)
    sums = [sum(row[field] for field, *_ in _ORDERS) for row in rows]
    total, longest = sum(sums), max(sums, default=1)
    figure.update_xaxes(range=[0, 1.3 * longest])  # room for the number behind the bar
    title = "No duplicate was delivered"
    if total:
        first = rows[sums.index(longest)]["cause"]
        title = f"{many(total, 'duplicate')} by cause: {percent(longest / total)} {first}"
    return finish(figure, title, "deliveries", None, theme, height=190 + 50 * len(rows))


def interval_map(rows: Sequence[Row], left_out: int = 0, theme: Theme = LIGHT) -> go.Figure:
    """Which offsets of which queue were re-consumed; of many queues those with the most.

    Args:
        rows: Those of the table ``windows``.
        left_out: How many smaller intervals the report leaves out.
        theme: The page's.
    """
    figure = go.Figure()
    sizes: Counter[str] = Counter()
    for row in rows:
        sizes[queue_text(row)] += row["size"]
    drawn = {queue for queue, _ in sizes.most_common(MOST_QUEUES)}
    # One trace per cause: one per interval takes seconds where there are thousands.
    by_cause: dict[tuple[str, str], list[tuple[str, int, int, str]]] = defaultdict(list)
    for row in rows:
        queue, lo, hi = queue_text(row), row["lo"], row["hi"]
        if queue in drawn:
            cause, at_s = row.get("cause") or UNATTRIBUTED, row["at_s"] or 0
            said = f"[{lo}, {hi}) {row['size']} messages, {cause}, at {at_s:.1f} s"
            group = labels.report_group(row.get("cause"))
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
    shown = [short(queue, 34) for queue in sizes if queue in drawn]
    figure.update_layout(
        barmode="overlay",
        yaxis={**_REVERSED, "categoryorder": "array", "categoryarray": shown},
    )
    title = f"{many(len(rows), 're-consumed interval')} in {many(len(sizes), 'queue')}"
    if left_out:
        title = f"The largest {title}, of {len(rows) + left_out}"
    if len(sizes) > len(drawn):
        title += f", the {len(drawn)} with the most"
    return finish(figure, title, "queue offset", None, theme, height=200 + 40 * len(drawn))


def bound_vs_observed(rows: Sequence[Row], theme: Theme = LIGHT) -> go.Figure:
    """Observed re-consumption as bars, its bound as a line; an exceeded bound is cross-hatched.

    ``rows`` are those of the table ``bounds``.
    """
    figure = go.Figure()
    for row in rows:
        label, observed, bound = _bound_label(row), row["observed"], row["bound"]
        figure.add_bar(
            x=[observed],
            y=[short(label, 50)],
            orientation="h",
            width=0.5,
            name="observed",
            showlegend=False,
            **_behind_bar(f"{observed:,.0f}"),
            marker={
                "color": theme.of(BAD if row["exceeded"] else SLATE),
                "pattern": {"shape": "x" if row["exceeded"] else ""},
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
    over = [_bound_label(row) for row in rows if row["exceeded"]]
    title = f"Bound exceeded: {', '.join(over)}" if over else _room(rows)
    figure.update_layout(yaxis=_REVERSED)
    figure.update_xaxes(rangemode="tozero")
    height = 190 + 70 * len(rows)
    return finish(figure, title, "messages re-consumed", None, theme, height=height)


def _bound_label(row: Row) -> str:
    return f"{row['fid']} {row['group']}: {row['mechanism']}"


def _room(rows: Sequence[Row]) -> str:
    shares = [row["observed"] / row["bound"] for row in rows if row["bound"]]
    if not shares:
        return "No bound applies"
    return f"Within every bound: at most {percent(max(shares))} of one"


def prediction_band(rows: Sequence[Row], theme: Theme = LIGHT) -> go.Figure:
    """The predicted 90 % band per fault and group, its median, and what was observed.

    ``rows`` are those of the table ``prediction`` that have a band.
    """
    figure = go.Figure()
    for number, row in enumerate(rows):
        p5, p95, observed = row["p5"], row["p95"], row["observed"]
        name = short(f"{row['fid']} {row['group']}", 34)
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
            (row["p50"], "predicted, median", "line-ns-open", theme.text),
            (row.get("worst", row["max"]), "worst case", "triangle-left-open", theme.text),
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
    held = sum(row["p5"] <= row["observed"] <= row["p95"] for row in rows)
    title = "Nothing was predicted"
    if rows:
        validated = all(row.get("validated") for row in rows)
        known = "" if validated else " (the predictor is not validated)"
        title = f"{held} of {len(rows)} observed inside the predicted band{known}"
    figure.update_layout(yaxis=_REVERSED)
    figure.update_xaxes(rangemode="tozero")
    height = 200 + 60 * len(rows)
    return finish(figure, title, "duplicates", None, theme, height=height)


def rto_title(row: Row) -> str:
    """What one row of ``rto`` found."""
    produce, consume = row.get("produce_ms"), (row.get("consume_ms") or {}).get("max")
    found = []
    for what, value in (("sends", produce), ("pulls", consume)):
        if value is not None:
            found.append(
                f"{what} back after {seconds(value / 1000)}" if value else f"no {what} failed"
            )
    finding = ", ".join(found) or "nothing was measured"
    return f"{row['fid']}: {finding} from the loss of {row.get('broker') or 'the master'}"


def rto_waterfall(title: str, phases: Mapping[str, int | None], theme: Theme = LIGHT) -> go.Figure:
    """What happened after a kill, each from its predecessor in time; then what never did.

    ``phases`` are in ns after the kill; ``None`` for what was not seen.
    """
    figure = go.Figure()
    previous = 0
    seen = sorted((at_ns, phase) for phase, at_ns in phases.items() if at_ns is not None)
    end = max((at_ns for at_ns, _ in seen), default=NS) / NS
    for at_ns, phase in seen:
        figure.add_bar(
            x=[(at_ns - previous) / NS],
            base=[previous / NS],
            y=[phase.replace("_", " ")],
            orientation="h",
            showlegend=False,
            **_behind_bar(f"{at_ns / NS:.1f} s"),
            marker={"color": theme.of(SLATE)},
        )
        previous = at_ns
    for number, phase in enumerate(phase for phase, at_ns in phases.items() if at_ns is None):
        figure.add_bar(
            x=[0],
            y=[phase.replace("_", " ")],
            orientation="h",
            showlegend=False,
            **_behind_bar("not seen"),
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
    height = 190 + 36 * len(phases)
    return finish(figure, title, "seconds after the kill", None, theme, height=height)
