"""The documents of a run as values: ``run.json``, ``closed.json`` and ``manifest.json``.

A document may come from any writer. Its fields are checked here, once, against the types and ranges
of these structs, and the error names the field that cannot be used. Other fields may be anything;
``written`` keeps them for readers that hand a part on as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from failback.analytics.errors import ReportInputError
from failback.analytics.lake.segment_ids import RUN_CHARS, RUN_PATTERN
from failback.common.files import parsed, read_file
from failback.common.text import why

T = TypeVar("T")

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
_WRITTEN: Final[Any] = msgspec.field(name="", default_factory=dict)
"""The whole document as it was written. Its name in JSON is one that no document has."""

WORKLOAD: Final = "workload"
"""``source`` of a run without an experiment: clients recorded it."""
TRACE: Final = "trace"
"""``source`` of a run that was made from a message trace."""
KAFKA: Final = "kafka"
REDIS: Final = "redis"
"""``engine`` of a run that compares another engine."""
OBSERVED: Final = "observe"
"""``source`` of a run that was seen from outside; it may have deliveries from a trace."""


class Zero(Struct, frozen=True):
    """Run zero by both clocks."""

    wall_ns: Instant
    mono_ns: Instant


class Group(Struct, frozen=True):
    """One consumer group on one topic."""

    name: str
    topic: str
    members: _Number = 1
    model: str | None = "push"
    message_model: str | None = msgspec.field(name="messageModel", default=None)

    @property
    def broadcasting(self) -> bool:
        return self.message_model == "BROADCASTING"


class Topic(Struct, frozen=True):
    name: str
    ordered: bool | None = None


class Member(Struct, frozen=True):
    broker_id: _Number | None = None
    address: str | None = None
    pod: str | None = None
    role: str | None = None


class Pair(Struct, frozen=True):
    name: str | None = None
    broker: str | None = None
    members: list[Member] | None = None


class Topology(Struct, frozen=True):
    pairs: list[Pair] | None = None


_Interval = Annotated[float, Meta(ge=0, le=1e15)]


class System(Struct, frozen=True):
    slave_read_enable: bool | None = None
    flush_interval_ms: _Interval | None = None
    slave_sync_interval_ms: _Interval | None = None
    slave_copies_offsets: bool | None = None
    delay_flush_interval_ms: _Interval | None = None
    client_commit_interval_ms: _Interval | None = None
    rules: str | None = None


class Process(Struct, frozen=True):
    proc_no: _Count | None = None
    proc: str | None = None


class Wish(Struct, frozen=True):
    metric: str
    op: str
    value: Any = None


class Clock(Struct, frozen=True):
    boot: str
    seconds: Annotated[float, Meta(ge=0, le=1e10)]


class Limits(Struct, frozen=True):
    max_duplicates: str | UnsetType = UNSET
    max_rto: str | UnsetType = UNSET


class Observed(Struct, frozen=True):
    """What an observation was asked to look at; no groups and no topics mean all of them."""

    name_servers: list[str] = []
    every: Annotated[float, Meta(gt=0, le=1e7)] = 1.0
    groups: list[str] = []
    topics: list[str] = []
    trace: list[str] | None = None
    limits: Limits | None = None
    clock: Clock | None = None


class Run(Struct, frozen=True):
    """``run.json``."""

    schema: str
    run: _RunId
    zero: Zero
    source: _Source = "log"
    experiment: str | None = None
    arm: str | None = None
    repetition: _Number | None = None
    seed: str | _Count | None = None
    rule_set: str | None = None
    engine: str | None = None
    time_scale: _Scale | None = None
    log_mode: str = "full"
    warmup_end_ns: Span | None = None
    warmup_seconds: _Seconds | None = None
    steady_state: _Object | None = None
    switches: _Object | None = None
    versions: dict[str, str] | None = None
    image_digests: _Object | None = None
    drawn: _Object | None = None
    topology: Topology | None = None
    system: System | None = None
    topics: list[Topic] | None = None
    groups: list[Group] | None = None
    faults: _Objects | None = None
    procs: list[Process] | None = None
    workload: _Object | None = None
    expect: list[Wish] | None = None
    thresholds: _Object | None = None
    target: _Object | None = None
    observed: Observed | None = None
    written: _Object = _WRITTEN

    @property
    def is_unplanned(self) -> bool:
        """Whether it was no experiment, so that every fault in it was an accident."""
        return self.source == WORKLOAD

    @property
    def is_trace(self) -> bool:
        """Whether it was made from a trace.

        A trace has no assignments, no commits and no send-backs, so no rule that names a cause has
        its inputs. A handling that is absent proves nothing: its trace may have been dropped. A
        report from a trace therefore never passes; its counts of repeats hold.
        """
        return self.source == TRACE

    @property
    def is_foreign(self) -> bool:
        """Whether it is of another engine, so that no rule of RocketMQ's names a cause."""
        return self.engine in (KAFKA, REDIS)

    @property
    def lacks_holdings(self) -> bool:
        """Whether it may have deliveries, and has no assignments, commits and send-backs."""
        return self.source in (TRACE, OBSERVED)


class Exit(Struct, frozen=True):
    t_ns: Span | UnsetType = UNSET


class Steps(Struct, frozen=True):
    steps: _Number | None = None
    hosts: _Objects | None = None


class Closed(Struct, frozen=True):
    """``closed.json``."""

    schema: str
    drained: bool | None = None
    scan: bool | None = None
    steady: bool | None = True
    steady_why: str | None = None
    recovered: bool | None = None
    recovered_why: str | None = None
    aborted: str | bool | None = None
    phases: dict[str, Span | None] | None = None
    counts: dict[str, _Count] | None = None
    procs: dict[str, _Count] | None = None
    exits: dict[str, Exit] | None = None
    gaps: list[dict[str, _Count]] | None = None
    recorder_gaps: list[str] | None = None
    clock: Steps | None = None
    trace: dict[str, _Count] | None = None
    written: _Object = _WRITTEN

    def __bool__(self) -> bool:
        """Whether the run was closed."""
        return self is not NOT_CLOSED


NOT_CLOSED: Final = Closed(CLOSED_SCHEMA, steady=None)
"""In place of the ``closed.json`` of a run that has none."""


class Hashed(Struct, frozen=True):
    sha256: str


class Manifest(Struct, frozen=True):
    """``manifest.json``."""

    files: dict[str, Hashed] | None = None
    run_sha256: str | None = None


def read_run(path: Path) -> Run:
    """``run.json``.

    Raises:
        ReportInputError: It is missing, no regular file, no JSON, of another schema, or a field of
            it cannot be used: names the field.
    """
    return run_of(_content(path), path)


def read_closed(path: Path) -> Closed:
    """``closed.json``; :data:`NOT_CLOSED` without one. Raises as :func:`read_run`."""
    is_there = path.exists() or path.is_symlink()
    return closed_of(_content(path), path) if is_there else NOT_CLOSED


def read_manifest(path: Path) -> Manifest | None:
    """``manifest.json``; ``None`` for a run that has none. Raises as :func:`read_run`."""
    if not path.exists() and not path.is_symlink():
        return None
    return _converted(_object(_content(path), path), Manifest, path)


def run_of(content: bytes, where: Path | str) -> Run:
    """``run.json`` as it was read at ``where``. Raises as :func:`read_run`."""
    return checked_run(_object(content, where), where)


def checked_run(found: Mapping[str, Any], where: Path | str) -> Run:
    """The fields of ``run.json`` at ``where``.

    Raises:
        ReportInputError: It is of another schema, or names the field that cannot be used.
    """
    _check_schema(found, RUN_SCHEMA, where)
    source = found.get("source")
    if isinstance(source, str) and source not in get_args(_Source):
        known = ", ".join(get_args(_Source))
        raise ReportInputError(f"field source must be one of {known}, is {source[:40]!r}", where)
    run = _converted({**found, "": found}, Run, where)
    if run.source == OBSERVED:
        if run.observed is None:
            raise ReportInputError("field observed is missing", where)
        _check_limits(run.observed.limits or Limits(), where)
    return run


def closed_of(content: bytes, where: Path | str) -> Closed:
    """``closed.json`` as it was read at ``where``. Raises as :func:`read_run`."""
    found = _object(content, where)
    _check_schema(found, CLOSED_SCHEMA, where)
    closed = _converted({**found, "": found}, Closed, where)
    for field, numbers in (("procs", closed.procs), ("exits", closed.exits)):
        for number in numbers or ():
            if not re.fullmatch(r"[0-9]{1,18}", number, re.ASCII):
                raise ReportInputError(f"field {field}: {number[:40]!r} is no process", where)
    return closed


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


def _converted(found: Mapping[str, Any], kind: type[T], where: Path | str) -> T:
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        raise ReportInputError(in_words(error), where) from error


def _check_limits(limits: Limits, where: Path | str) -> None:
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
