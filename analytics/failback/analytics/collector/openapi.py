"""What the routes declare: parameters, bodies and answers, for the OpenAPI document.

The documents of runs and processes are in ``run_documents``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from fastapi import FastAPI, Header, Path, Query
from pydantic import BaseModel

from failback.analytics.lake.segment_ids import (
    INDEX_PATTERN,
    PROC_PATTERN,
    RUN_CHARS,
    RUN_PATTERN,
    SHA256_PATTERN,
    TABLE_PATTERN,
)
from failback.analytics.web.applications import openapi_of
from failback.analytics.web.problems import Problem
from failback.client.consumelog.upload.lake_files import ARROW_STREAM

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
SEGMENT_BODY: Final[dict[str, Any]] = {
    "required": True,
    "content": {ARROW_STREAM: {"schema": {"type": "string", "format": "binary"}}},
}


class OpenBody(msgspec.Struct):
    """When a run began."""

    zero_wall_ns: Annotated[
        int, msgspec.Meta(ge=0, le=1 << 62, description="Run zero, ns since 1970-01-01 UTC.")
    ]


class CloseBody(msgspec.Struct):
    """How far the processes of a run got."""

    procs: Annotated[
        dict[str, Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]],
        msgspec.Meta(
            description="Last seq of each process, by its number in the run.",
            extra_json_schema={"propertyNames": {"pattern": "^[0-9]{1,7}$"}},
        ),
    ]


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


class StoreDocument(BaseModel):
    """The lake. ``refuses`` says why nothing is taken, ``null`` when segments are."""

    lake: str
    stored_bytes: int
    free_bytes: int
    refuses: str | None


class Opened(BaseModel):
    """The answer to an open: the date under which the run's rows lie."""

    run: str
    date: str


class Closed(BaseModel):
    """The answer to a close: nothing is missing."""

    gaps: list[dict[str, int]]


class Alive(BaseModel):
    """The answer of the probes."""

    status: str


def document_of(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    gaps = {
        "type": "array",
        "description": "Of a close: proc_no, from_seq, to_seq of each hole.",
        "items": {"type": "object"},
    }
    return openapi_of(app, Problem, gaps=gaps)
