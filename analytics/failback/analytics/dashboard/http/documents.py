"""What the API's routes declare: parameters, bodies and answers, for the OpenAPI document."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import FastAPI, Path, Query
from pydantic import BaseModel

from failback.analytics.dashboard.problems import DASHBOARD_KINDS, DashboardProblem
from failback.analytics.dashboard.views.message_steps import MESSAGE_PATTERN
from failback.analytics.dashboard.views.predicting import MOST_DOWN_SECONDS
from failback.analytics.lake.segment_ids import RUN_CHARS, RUN_PATTERN
from failback.analytics.web.applications import openapi_of
from failback.analytics.web.problems import MEDIA_TYPE
from failback.analytics.web.problems import problems as declare

MOST: Final = 500
CURSOR_CHARS: Final = 512
_Item = TypeVar("_Item")


def page(
    items: Sequence[_Item], key: Callable[[_Item], str], cursor: str, limit: int
) -> tuple[list[_Item], str | None]:
    """The items behind the one that the cursor names, and the cursor of the following page.

    Raises:
        DashboardProblem: The cursor is none of ours, or its item is gone.
    """
    start = 0
    if cursor:
        name = decode(cursor)
        start = next((at + 1 for at, each in enumerate(items) if key(each) == name), -1)
        if start < 0:
            raise DashboardProblem("bad-cursor", "its item is gone; begin without a cursor")
    found = list(items[start : start + limit])
    more = start + limit < len(items)
    return found, encode(key(found[-1])) if more and found else None


def encode(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def decode(cursor: str) -> str:
    """The name that a cursor was made of. Raises ``DashboardProblem``."""
    try:
        raw = base64.urlsafe_b64decode(cursor.encode("ascii") + b"=" * (-len(cursor) % 4))
        name = raw.decode()
    except (binascii.Error, ValueError) as error:
        raise DashboardProblem("bad-cursor", "it is none of this API") from error
    if encode(name) != cursor:
        raise DashboardProblem("bad-cursor", "it is none of this API")
    return name


Json = dict[str, Any]
NAME_CHARS: Final = 255
MAX_BODY_BYTES: Final = 64 * 1024
_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_FIGURE: Final = r"^[a-z][a-z0-9-]{0,31}$"

RunName = Annotated[str, Path(pattern=RUN_PATTERN, max_length=RUN_CHARS, description="The run.")]
ClusterName = Annotated[str, Path(pattern=r"^[A-Za-z0-9._-]{1,128}$", description="The cluster.")]
FigureName = Annotated[str, Path(pattern=_FIGURE, description="As `figures` lists them.")]
MessageName = Annotated[str, Path(pattern=MESSAGE_PATTERN, description="LAB_ID or UNIQ_KEY.")]
ScenarioName = Annotated[str, Path(pattern=_NAME, description="As `experiments` lists them.")]
Cursor = Annotated[
    str, Query(max_length=CURSOR_CHARS, description="`next` of the page before; else the first.")
]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Most items of a page.")]
Text = Annotated[str, Query(max_length=NAME_CHARS)]
Theme = Annotated[str, Query(pattern="^(light|dark)$", description="Colours of the figure.")]
QueueId = Annotated[int, Query(ge=0, le=65_535)]
RunQuery = Annotated[
    list[str], Query(alias="run", min_length=1, max_length=40, description="Two or more runs.")
]


class ClusterPage(BaseModel):
    """Every cluster that is known, with its pairs."""

    at: str
    at_ns: int
    summary: Json
    clusters: list[Json]
    problems: list[str]


class PairList(BaseModel):
    """The pairs of one cluster."""

    cluster: str
    pairs: list[Json]


class OffsetPage(BaseModel):
    """Queues with each copy of their offset; ``next`` is the cursor of the following page."""

    at: str
    at_ns: int
    warnings: list[Json]
    offsets: list[Json]
    next: str | None


class RunPage(BaseModel):
    """Runs, the newest first; ``next`` is the cursor of the following page."""

    runs: list[Json]
    next: str | None


class WindowPage(BaseModel):
    """Intervals of offsets that were re-consumed."""

    windows: list[Json]
    next: str | None


class FigureList(BaseModel):
    """The figures of a run's report."""

    figures: list[dict[str, str]]


class Story(BaseModel):
    """What happened to one message, by time."""

    run: str
    message: str
    steps: list[Json]


class ExperimentList(BaseModel):
    """What can be started."""

    experiments: list[Json]


class Accepted(BaseModel):
    """A run was asked to end."""

    run: str
    asked: str


class PredictBody(msgspec.Struct, forbid_unknown_fields=True):
    """A question for the predictor."""

    fault: Annotated[str, msgspec.Meta(max_length=64)]
    settings: dict[str, float | bool | None] = {}
    down_seconds: Annotated[float, msgspec.Meta(gt=0, le=MOST_DOWN_SECONDS)] | None = None


class StartBody(msgspec.Struct, forbid_unknown_fields=True):
    """``confirm`` repeats the experiment's name: it breaks things."""

    confirm: Annotated[str, msgspec.Meta(max_length=64)]
    options: dict[str, str] = {}


def refusals(*names: str) -> dict[int | str, Json]:
    """The declaration of refusals, those of every route among them."""
    common = ("unauthenticated", "forbidden", "bad-request", "wrong-host", "too-many")
    return declare(*common, *names, kinds=DASHBOARD_KINDS)


_SCHEMES: Final[Json] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of the token file."}
}


def document_of(app: FastAPI) -> Json:
    """The OpenAPI document, made once."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    document = openapi_of(app, DashboardProblem)
    components = document["components"]
    components["securitySchemes"] = _SCHEMES
    for item in document["paths"].values():
        for operation in item.values():
            operation["security"] = [{"bearer": []}]
            # FastAPI's own form of a 422 is not what is answered here.
            found = operation["responses"].get("422", {})
            if "application/json" in found.get("content", {}):
                found["content"] = {
                    MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
                }
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)
    return document
