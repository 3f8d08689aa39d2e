"""Makes HTML of documents: the templates, what they call, and the files beside them."""

from __future__ import annotations

import gzip
import hashlib
import re
from functools import cache
from importlib import resources
from typing import Any, Final
from urllib.parse import quote

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse

from failback.analytics.dashboard.http.access import Identity
from failback.analytics.dashboard.http.context import Shared
from failback.analytics.report.outcome import outcome_state
from failback.analytics.report.page import html, html_rows, plotly_bundle
from failback.analytics.web.problems import Problem

NAVIGATION: Final = (
    ("/", "Fleet"),
    ("/offsets", "Offset health"),
    ("/runs", "Runs"),
    ("/compare", "Compare"),
    ("/experiments", "Experiments"),
    ("/predict", "Predict"),
    ("/ingest", "Collector"),
)
STATIC: Final = {"app.js": "text/javascript", "app.css": "text/css"}


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("failback.analytics.dashboard", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        show=html_rows.show, age=age, count=count, percent=html_rows.percent, navigation=NAVIGATION,
        long_table=html.LONG_TABLE_ROWS, version=_static_version(), plotly=plotly_name(),
        link=link, milliseconds=milliseconds, bytes_text=bytes_text, is_command=is_command,
        outcome_state=outcome_state,
    )  # fmt: skip
    return environment


def age(seconds: float | None) -> str:
    """A time span for people; a dash for what is not known."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 48 * 60 else f"{minutes / 1440:.0f} d"


def milliseconds(value: float | None) -> str:
    return "–" if value is None else age(value / 1000)


def count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def bytes_text(value: int | None) -> str:
    if value is None:
        return "–"
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value} B"


def is_command(cell: object) -> bool:
    """Whether a cell of a table can be typed as it is: a version cannot."""
    return isinstance(cell, str) and re.match(r"failback [a-z]", cell) is not None


def link(*parts: object) -> str:
    """A path of escaped parts."""
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


def render(
    request: Request, who: Identity | None, name: str, status: int = 200, **values: Any
) -> HTMLResponse:
    """A page. ``who`` is ``None`` on pages for strangers."""
    text = (
        _environment()
        .get_template(name)
        .render(
            path=request.url.path,
            who=who,
            csrf=who.csrf if who is not None else "",
            **values,
        )
    )
    return HTMLResponse(text, status)


def problem_page(request: Request, shared: Shared, problem: Problem) -> HTMLResponse:
    """A refusal for people."""
    who = shared.access.identify(request)
    page = render(request, who, "problem.html.j2", problem.status, problem=problem)
    for name, value in problem.headers().items():
        page.headers[name] = value
    return page


@cache
def plotly_js() -> bytes:
    return plotly_bundle.script().encode()


def plotly_name() -> str:
    return plotly_bundle.file_name()


@cache
def static_file(name: str) -> bytes:
    return resources.files("failback.analytics.dashboard").joinpath("static", name).read_bytes()


@cache
def _static_version() -> str:
    return hashlib.sha256(b"".join(map(static_file, STATIC))).hexdigest()[:12]


@cache
def packed_plotly() -> bytes:
    return gzip.compress(plotly_js(), 6)
