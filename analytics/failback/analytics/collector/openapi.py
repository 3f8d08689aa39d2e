"""What the routes declare: parameters, bodies and answers, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import FastAPI, Header, Path, Query
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from failback.analytics.lake.segment_ids import (
    INDEX_PATTERN,
    PROC_PATTERN,
    RUN_CHARS,
    RUN_PATTERN,
    SHA256_PATTERN,
    TABLE_PATTERN,
)
from failback.client.consumelog.upload.lake_files import ARROW_STREAM, PARQUET

RunName = Annotated[str, Path(pattern=RUN_PATTERN, max_length=RUN_CHARS, description="The run.")]
ProcName = Annotated[str, Path(pattern=PROC_PATTERN, description="The process, 16 bytes in hex.")]
IndexText = Annotated[str, Path(pattern=INDEX_PATTERN, description="Number of its hot file.")]
TableName = Annotated[str, Path(pattern=TABLE_PATTERN, description="The table of the rows.")]
BodyHash = Annotated[
    str,
    Header(alias="X-Content-SHA256", pattern=SHA256_PATTERN, description="SHA-256 of the body."),
]
SchemaId = Annotated[
    str,
    Header(
        alias="X-Failback-Schema",
        pattern=r"^failback\.log/[0-9]{1,4}(\.[0-9]{1,4})?$",
        description="Schema of the rows: failback.log/1, or a newer minor version of it.",
    ),
]
Backlog = Annotated[
    int,
    Header(
        alias="X-Failback-Backlog-Bytes", ge=0, le=1 << 53, description="What the shipper has left."
    ),
]
FromIndex = Annotated[int, Query(ge=0, le=99_999_999, description="Leave out older hot files.")]
Cursor = Annotated[str, Query(max_length=RUN_CHARS, description="Begin behind this run.")]
ProcCursor = Annotated[int, Query(ge=-1, lt=1 << 23, description="Begin behind this number.")]
PageSize = Annotated[int, Query(ge=1, le=500)]

MAX_JSON_BYTES: Final = 1024 * 1024
CLOSE_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["procs"],
                "properties": {
                    "procs": {
                        "type": "object",
                        "description": "Last seq of each process, by its number in the run.",
                        "propertyNames": {"pattern": "^[0-9]{1,7}$"},
                        "additionalProperties": {"type": "integer", "minimum": 0},
                    }
                },
            }
        }
    },
}
SEGMENT_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {
        kind: {"schema": {"type": "string", "format": "binary"}} for kind in (ARROW_STREAM, PARQUET)
    },
}


class Stored(BaseModel):
    """The answer to an upload."""

    id: str
    result: str


class StoredSegment(BaseModel):
    """One stored segment; ``sha256`` is null for files that were not uploaded."""

    id: str
    sha256: str | None


class ProcessDocument(BaseModel):
    """What is stored of one process."""

    run: str
    proc: str
    proc_no: int | None
    next_index: int
    records: int
    last_seq: int
    segments: list[StoredSegment]


class RunDocument(BaseModel):
    """One run in a few numbers."""

    run: str
    segments: int
    bytes: int
    procs: int
    closed: bool
    evidence_changed: bool
    backlog_bytes: int
    deliveries: int
    missing: int
    quarantined: int
    heard_ms: int


class ProcessState(BaseModel):
    """One process in a few numbers. ``missing``: records up to ``last_seq`` that are not stored,
    or not yet; ``quarantined``: segments that came again with other content; ``heard_ms``: Unix
    time when it was last heard of."""

    proc: str
    proc_no: int
    host: str
    role: str
    segments: int
    bytes: int
    deliveries: int
    records: int
    last_seq: int
    missing: int
    backlog_bytes: int
    quarantined: int
    heard_ms: int


class ProcessPage(BaseModel):
    """Processes of a run by number; ``next`` is the cursor of the following page."""

    run: str
    procs: list[ProcessState]
    next: int | None


class StoreDocument(BaseModel):
    """The lake. ``refuses`` says why nothing is taken, ``null`` when segments are."""

    lake: str
    stored_bytes: int
    free_bytes: int
    refuses: str | None


class RunPage(BaseModel):
    """Runs by name; ``next`` is the cursor of the following page."""

    runs: list[RunDocument]
    next: str | None


class Closed(BaseModel):
    """The answer to a close: nothing is missing."""

    gaps: list[dict[str, int]]


class Alive(BaseModel):
    """The answer of the probes."""

    status: str


_PROBLEM: Final[dict[str, Any]] = {
    "type": "object",
    "description": "A problem document as of RFC 9457.",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string", "description": "urn:failback:collector:NAME; never changes."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "errors": {
            "type": "array",
            "description": "Of a request that is not valid: what is wrong with each field.",
            "items": {"type": "object"},
        },
        "gaps": {
            "type": "array",
            "description": "Of a close: proc_no, from_seq, to_seq of each hole.",
            "items": {"type": "object"},
        },
    },
}


def document_of(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        components = document.setdefault("components", {})
        components.setdefault("schemas", {})["Problem"] = _PROBLEM
        app.openapi_schema = document
    return app.openapi_schema
