"""Reads the documents of a run, whoever wrote them, and says which field of one cannot be used.

Types and ranges of what is read of ``run.json``, ``closed.json`` and ``manifest.json`` are here and
nowhere else. Fields that nobody reads may be anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.segment_ids import RUN_CHARS, RUN_PATTERN
from failback.common.files import parsed, read_file
from failback.common.reasons import why

RUN_SCHEMA: Final = "failback.run/1"
CLOSED_SCHEMA: Final = "failback.closed/1"
_WORDS: Final[Mapping[str, str]] = {
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}

Instant = Annotated[int, Meta(ge=0, le=1 << 62)]
"""Ns of a clock; ns since 1970 until 2116."""
Span = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]
"""Ns after run zero."""
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_Number = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
_Scale = Annotated[float, Meta(gt=0, le=1e6)]
_Seconds = Annotated[float, Meta(ge=0, le=1e9)]
_RunId = Annotated[str, Meta(max_length=RUN_CHARS, pattern=RUN_PATTERN.removesuffix("$") + r"\Z")]
_Source = Literal["log", "workload", "trace", "observe"]
_Object = dict[str, Any]
_Objects = list[dict[str, Any]]


class _Zero(Struct):
    wall_ns: Instant
    mono_ns: Instant


class _Group(Struct):
    name: str
    topic: str
    members: _Number = 1
    model: str | None = None
    message_model: str | None = msgspec.field(name="messageModel", default=None)


class _Topic(Struct):
    name: str
    ordered: bool | None = None


class _Member(Struct):
    broker_id: _Number | None = None
    address: str | None = None
    pod: str | None = None
    role: str | None = None


class _Pair(Struct):
    name: str | None = None
    broker: str | None = None
    members: list[_Member] | None = None


class _Topology(Struct):
    pairs: list[_Pair] | None = None


_Interval = Annotated[float, Meta(ge=0, le=1e15)]


class _System(Struct):
    slave_read_enable: bool | None = None
    flush_interval_ms: _Interval | None = None
    slave_sync_interval_ms: _Interval | None = None
    delay_flush_interval_ms: _Interval | None = None
    client_commit_interval_ms: _Interval | None = None
    rules: str | None = None


class _Process(Struct):
    proc_no: _Count | None = None
    proc: str | None = None


class _Wish(Struct):
    metric: str
    op: str
    value: Any = None


class _Clock(Struct):
    boot: str
    seconds: Annotated[float, Meta(ge=0, le=1e10)]


class _Limits(Struct):
    max_duplicates: str | UnsetType = UNSET
    max_rto: str | UnsetType = UNSET


class _Observed(Struct):
    name_servers: list[str] = []
    every: Annotated[float, Meta(gt=0, le=1e7)] = 1.0
    groups: list[str] = []
    topics: list[str] = []
    trace: list[str] | None = None
    limits: _Limits | None = None
    clock: _Clock | None = None


class _Run(Struct):
    """``run.json``."""

    schema: str
    run: _RunId
    zero: _Zero
    source: _Source | UnsetType = UNSET
    experiment: str | None = None
    arm: str | None = None
    repetition: _Number | None = None
    seed: str | _Count | None = None
    rule_set: str | None = None
    engine: str | None = None
    time_scale: _Scale | None = None
    log_mode: str | UnsetType = UNSET
    warmup_end_ns: Span | None = None
    warmup_seconds: _Seconds | None = None
    steady_state: _Object | None = None
    switches: _Object | None = None
    versions: dict[str, str] | None = None
    image_digests: _Object | None = None
    drawn: _Object | None = None
    topology: _Topology | None = None
    system: _System | None = None
    topics: list[_Topic] | None = None
    groups: list[_Group] | None = None
    faults: _Objects | None = None
    procs: list[_Process] | None = None
    workload: _Object | None = None
    expect: list[_Wish] | None = None
    thresholds: _Object | None = None
    target: _Object | None = None
    observed: _Observed | None = None


class _Exit(Struct):
    t_ns: Span | UnsetType = UNSET


class _Steps(Struct):
    steps: _Number | None = None
    hosts: _Objects | None = None


class _Closed(Struct):
    """``closed.json``."""

    schema: str
    drained: bool | None = None
    scan: bool | None = None
    steady: bool | None = None
    steady_why: str | None = None
    recovered: bool | None = None
    recovered_why: str | None = None
    aborted: str | bool | None = None
    phases: dict[str, Span | None] | None = None
    counts: dict[str, _Count] | None = None
    procs: dict[str, _Count] | None = None
    exits: dict[str, _Exit] | None = None
    gaps: list[dict[str, _Count]] | None = None
    recorder_gaps: list[str] | None = None
    clock: _Steps | None = None
    trace: dict[str, _Count] | None = None


class _Hashed(Struct):
    sha256: str


class _Manifest(Struct):
    """``manifest.json``."""

    files: dict[str, _Hashed] | None = None
    run_sha256: str | None = None


def read_run(path: Path) -> dict[str, Any]:
    """``run.json``.

    Raises:
        ReportInputError: It is missing, no regular file, no JSON, of another schema, or a field of
            it cannot be used: names the field.
    """
    return run_of(_content(path), path)


def read_closed(path: Path) -> dict[str, Any]:
    """``closed.json``; empty for a run that has none. Raises as :func:`read_run`."""
    return closed_of(_content(path), path) if path.exists() or path.is_symlink() else {}


def read_manifest(path: Path) -> dict[str, Any] | None:
    """``manifest.json``; ``None`` for a run that has none. Raises as :func:`read_run`."""
    if not path.exists() and not path.is_symlink():
        return None
    found = _object(_content(path), path)
    _check(found, _Manifest, path)
    return found


def run_of(content: bytes, where: Path | str) -> dict[str, Any]:
    """``run.json`` as it was read at ``where``. Raises as :func:`read_run`."""
    found = _object(content, where)
    check_run(found, where)
    return found


def check_run(found: Mapping[str, Any], where: Path | str) -> None:
    """Check what ``run.json`` at ``where`` holds.

    Raises:
        ReportInputError: It is of another schema, or names the field that cannot be used.
    """
    _check_schema(found, RUN_SCHEMA, where)
    source = found.get("source")
    if isinstance(source, str) and source not in get_args(_Source):
        known = ", ".join(get_args(_Source))
        raise ReportInputError(f"field source must be one of {known}, is {source[:40]!r}", where)
    checked = _check(found, _Run, where)
    if checked.source == "observe":
        if checked.observed is None:
            raise ReportInputError("field observed is missing", where)
        _check_limits(checked.observed.limits or _Limits(), where)


def closed_of(content: bytes, where: Path | str) -> dict[str, Any]:
    """``closed.json`` as it was read at ``where``. Raises as :func:`read_run`."""
    found = _object(content, where)
    _check_schema(found, CLOSED_SCHEMA, where)
    _check(found, _Closed, where)
    for field in ("procs", "exits"):
        for number in found.get(field) or ():
            if not re.fullmatch(r"[0-9]{1,18}", number, re.ASCII):
                raise ReportInputError(f"field {field}: {number[:40]!r} is no process", where)
    return found


def in_words(error: msgspec.ValidationError) -> str:
    """What a checker of fields says, as one sentence: ``field zero.wall_ns must be a text ...``."""
    what, _, where = str(error).partition(" - at ")
    field = re.sub(r"`key` in ", "a key of ", where).replace("`", "").replace("$.", "")
    told = re.sub(r"`([a-z |]+)`", lambda found: _kinds(found[1]), what)
    if missing := re.match(r"Object missing required field `(\w+)`", what):
        inside = f"{field}." if field and field != "$" else ""
        return f"field {inside}{missing[1]} is missing"
    told = re.sub(r"^Expected (.*), got (.*)$", r"must be \1, is \2", told)
    told = re.sub(r"^Expected ", "must be ", told)
    told = re.sub(r" matching regex .*$", " with letters, digits, . _ and - only", told)
    return f"field {field} {told}" if field and field != "$" else told


def _kinds(text: str) -> str:
    return " or ".join(_WORDS.get(each, each) for each in text.split(" | "))


def _content(path: Path) -> bytes:
    try:
        return read_file(path)
    except FileNotFoundError as error:
        raise ReportInputError("is missing", path) from error
    except OSError as error:
        raise ReportInputError(why(error), path) from error


def _object(content: bytes, where: Path | str) -> dict[str, Any]:
    try:
        found = parsed(content)
    except ValueError as error:
        raise ReportInputError(why(error), where) from error
    if not isinstance(found, dict):
        raise ReportInputError("must hold an object", where)
    return found


def _check_schema(found: Mapping[str, Any], schema: str, where: Path | str) -> None:
    if "schema" not in found:
        raise ReportInputError("field schema is missing", where)
    if found["schema"] != schema:
        named = repr(found["schema"])[:60]
        raise ReportInputError(f"schema is {named}, this version reads {schema!r}", where)


def _check(found: Mapping[str, Any], kind: type[Any], where: Path | str) -> Any:
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise ReportInputError(in_words(error), where) from error


def _check_limits(limits: _Limits, where: Path | str) -> None:
    for name, suffix in (("max_duplicates", "%"), ("max_rto", "")):
        text = getattr(limits, name)
        if text is UNSET:
            continue
        try:
            value = float(text.removesuffix(suffix))
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e18:
            problem = f"field observed.limits.{name} must be a number, is {text[:40]!r}"
            raise ReportInputError(problem, where)
