"""Colours, hatches and the frame of every figure.

Okabe-Ito colours belong to report groups, one each, with a hatch of its own, so that grey print and
colour-blind readers lose nothing. A cause outside the report groups has another colour: no colour
means two things in one page. Colours are written as those of the light theme. :meth:`Theme.of`
gives another theme's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import plotly.graph_objects as go

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
INK: Final = "#1B1B1B"
SLATE: Final = "#5C6F82"
"""What is neither good nor bad nor a cause: a measured bar, a phase, an observed fault."""
BAD: Final = "#B3001B"
"""Failed sends, exceeded bounds, lost messages; always with a mark or hatch of its own."""
PALE: Final = "#9AA7B4"
"""Beside something in slate: a range, what was intended."""
GRID: Final = "#D8D8D8"
PAPER: Final = "#FFFFFF"
FAULT: Final = "rgba(92, 111, 130, 0.16)"
LABEL: Final = "rgba(255, 255, 255, 0.75)"
HEAT: Final = "#7A4B00"
"""The dark end of the heat map."""
DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MARKS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "star")


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of a page, by those of the light one."""

    colours: Mapping[str, str] = field(default_factory=dict)

    def of(self, colour: str) -> str:
        """This theme's colour for one of the light theme."""
        return self.colours.get(colour, colour)

    @property
    def text(self) -> str:
        return self.of(INK)

    @property
    def grid(self) -> str:
        return self.of(GRID)

    @property
    def paper(self) -> str:
        return self.of(PAPER)


LIGHT: Final = Theme()
DARK: Final = Theme(
    {
        INK: "#F2F2F2",
        SLATE: "#A3B4C4",
        BAD: "#FF7A7A",
        PALE: "#66788A",
        GRID: "#4A4A4A",
        PAPER: "#16191D",
        FAULT: "rgba(163, 180, 196, 0.20)",
        LABEL: "rgba(22, 25, 29, 0.75)",
        HEAT: "#FFD9A0",
        "#332288": "#A99CFF",
        "#882255": "#F3A6C8",
        "#999933": "#CFCF66",
        "#44AA99": "#66D6C3",
    }
)
"""No two share a dark colour, so that a page can turn drawn figures around, both ways."""


def group_marker(group: str, opacity: float = 1.0) -> dict[str, Any]:
    """How bars of a report group look."""
    return {
        "color": GROUP_COLOURS.get(group, GROUP_COLOURS["unattributed"]),
        "opacity": opacity,
        "pattern": {"shape": GROUP_HATCHES.get(group, "")},
    }


def short(text: str, limit: int = 40) -> str:
    """A name from outside on one line, without what Plotly takes for markup, and not too long."""
    plain = " ".join(str(text).split()).replace("<", "‹").replace(">", "›").replace("&", "＆")
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def decades(values: Sequence[float]) -> dict[str, Any]:
    """A logarithmic axis from one power of ten to another, so that at least two have a label."""
    known = [math.log10(value) for value in values if value > 0] or [0.0]
    low, high = math.floor(min(known)), math.ceil(max(known))
    return {"type": "log", "dtick": 1, "range": [low - 0.1, max(high, low + 1) + 0.1]}


def finish(
    figure: go.Figure,
    title: str,
    x_title: str | None,
    y_title: str | None,
    theme: Theme,
    *,
    height: int,
) -> go.Figure:
    """Give a figure its title, frame and axes."""
    axis: dict[str, Any] = {"gridcolor": theme.grid, "zeroline": False, "automargin": True}
    figure.update_layout(
        title={"text": short(title, 110), "x": 0, "xref": "paper", "xanchor": "left"},
        height=max(height, 220),
        paper_bgcolor=theme.paper,
        plot_bgcolor=theme.paper,
        font={"color": theme.text, "size": 13},
        margin={"l": 70, "r": 40, "t": 60, "b": 90},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
    )
    # Ticks that cannot be seen keep the labels of both axes apart in their corner.
    figure.update_xaxes(**axis, ticks="outside", ticklen=5, tickcolor=theme.paper)
    figure.update_yaxes(**axis)
    if x_title:
        figure.update_xaxes(title_text=x_title)
    if y_title:
        figure.update_yaxes(title_text=y_title)
    return figure
