"""Makes HTML of documents: the templates, what they call, and the files beside them."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any, Final
from urllib.parse import quote

import jinja2
from fastapi import Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup
from starlette.requests import HTTPConnection

from failback.analytics.dashboard.http.access import Identity
from failback.analytics.dashboard.http.context import Shared
from failback.analytics.report import wording
from failback.analytics.report.outcome import outcome_state
from failback.analytics.report.page import html, plotly_bundle
from failback.analytics.report.page.tables import registry
from failback.analytics.web.problems import Problem
from failback.common.text import visible

_PREFIX: Final = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_ADDRESS: Final = re.compile(r'\b((?:data-)?src|href|action|content)="/(?!/)')
"""An attribute that leads to another page; texts have no quotes that are not escaped."""

NAVIGATION: Final = (
    ("/", "Fleet"),
    ("/offsets", "Offset health"),
    ("/runs", "Runs"),
    ("/compare", "Compare"),
    ("/experiments", "Experiments"),
    ("/predict", "Predict"),
)
SPARK_HEIGHT: Final = 24
STATIC: Final = {
    **dict.fromkeys(("app.js", "chinese.js"), "text/javascript"),
    "app.css": "text/css",
}
_SHARED: Final = {"chinese.js": ("failback.analytics.report.page", "templates")}
"""Package and folder of files that a report has too."""


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("failback.analytics.dashboard", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=html.shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        show=registry.show, age=age, ago=ago, count=count, percent=wording.percent,
        navigation=NAVIGATION, plotly=plotly_bundle.file_name(),
        long_table=html.LONG_TABLE_ROWS, version=_static_version(),
        link=link, milliseconds=milliseconds, bytes_text=bytes_text, is_command=is_command,
        outcome_state=outcome_state,
        bdi=bdi, printed=printed,
        sparkline=sparkline, plain_number=plain_number, breakable=breakable,
    )  # fmt: skip
    return environment


def bdi(name: object) -> Markup:
    """A name that a stranger may have chosen: its direction of writing ends with it."""
    return Markup("<bdi>{}</bdi>").format(visible(str(name)))


def printed(lines: Sequence[str]) -> Markup:
    """Lines that a program printed, as lines."""
    return Markup("\n").join(map(visible, lines))


def age(seconds: float | None) -> str:
    """A time span for people; a dash for what is not known."""
    if seconds is None:
        return "–"
    if seconds < 120:
        return f"{seconds:z.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = seconds / 60
    if minutes < 120:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.0f} h" if minutes < 48 * 60 else f"{minutes / 1440:.0f} d"


def ago(seconds: float | None) -> str:
    return "–" if seconds is None else f"{age(seconds)} ago"


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


def sparkline(values: Sequence[float | None], label: str) -> Markup:
    """A line of the last quarter of an hour, with its figures in words for screen readers."""
    known = [each for each in values if each is not None]
    if len(known) < 2:
        return Markup('<small class="soft">from now on</small>')
    most = max(known)
    high = most or 1.0
    parts: list[list[str]] = [[]]
    for place, value in enumerate(values):
        if value is None:
            parts.append([])
        else:
            parts[-1].append(f"{place},{SPARK_HEIGHT - 1 - value / high * (SPARK_HEIGHT - 2):.1f}")
    lines = Markup("").join(
        Markup('<polyline points="{}"/>').format(" ".join(each if len(each) > 1 else each * 2))
        for each in parts
        if each
    )
    said = f"{visible(label)}, last 15 minutes: now {count(known[-1])}, at most {count(most)}"
    return Markup(
        '<svg class="spark" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img"'
        ' aria-label="{}"><title>{}</title>{}</svg>'
    ).format(len(values), SPARK_HEIGHT, said, said, lines)


def plain_number(value: float | None) -> str:
    """A number as a field takes it."""
    if value is None:
        return ""
    return f"{value:.0f}" if value == int(value) else f"{value:g}"


def breakable(name: str) -> Markup:
    """A key such as ``flushConsumerOffsetInterval``, which may be broken between its words only."""
    parts = re.findall(r"[A-Z]?[^A-Z]+|[A-Z]+", name)
    return Markup('<span class="key">{}</span>').format(Markup("<wbr>").join(parts))


def is_command(cell: object) -> bool:
    """Whether a cell of a table can be typed as it is: a version cannot."""
    return isinstance(cell, str) and re.match(r"failback [a-z]", cell) is not None


def link(*parts: object) -> str:
    """A path of escaped parts."""
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


def render(
    request: Request, who: Identity | None, name: str, status: int = 200, **values: Any
) -> HTMLResponse:
    """A page. The user is ``None`` on pages for strangers."""
    prefix = prefix_of(request)
    text = (
        _environment()
        .get_template(name)
        .render(
            path=request.url.path,
            who=who,
            csrf=who.csrf if who is not None else "",
            prefix=prefix,
            **values,
        )
    )
    return HTMLResponse(_ADDRESS.sub(rf'\1="{prefix}/', text) if prefix else text, status)


def prefix_of(connection: HTTPConnection) -> str:
    """Return the path that a proxy took away (``X-Forwarded-Prefix``); empty without one.

    It may come from anybody: it only begins addresses of the same host.
    """
    prefix = connection.headers.get("x-forwarded-prefix", "").strip().rstrip("/")
    return prefix if _PREFIX.fullmatch(prefix) else ""


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


@cache
def static_file(name: str) -> bytes:
    package, folder = _SHARED.get(name, ("failback.analytics.dashboard", "static"))
    return resources.files(package).joinpath(folder, name).read_bytes()


@cache
def _static_version() -> str:
    return hashlib.sha256(b"".join(map(static_file, STATIC))).hexdigest()[:12]


@cache
def packed_plotly() -> bytes:
    return gzip.compress(plotly_js(), 6)
