"""The steps of a carry before the master starts, and what each of them may end with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from failback.carry.asking import (
    ANSWER_SECONDS,
    Answer,
    ask_slaves,
    ask_until_one_answers,
    is_other_log,
    slaves_of,
)
from failback.carry.master_store import MasterConf, MasterStore, locked
from failback.carry.merge import Merged, Row, Table, merge, summary
from failback.carry.offset_file import OffsetFile, read_document
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess
from failback.common.files import read_file
from failback.common.text import where_and_why, why
from failback.protocol.errors import ConfigError, ProtocolError, StoreError
from failback.protocol.route import split_offset_key

_MOST_LINES: Final = 20
"""Warnings of one kind; a restored disk may cut every offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a carry is asked to do."""

    conf: MasterConf
    slaves: tuple[str, ...] = ()
    """Empty: those that name servers list."""
    files: tuple[Path, ...] = ()
    """Tables of slaves, beside what slaves say."""
    name_servers: tuple[str, ...] = ()
    access: ClusterAccess | None = None
    wait_seconds: float = 0.0
    accept_lower: frozenset[str] = frozenset()
    dry_run: bool = False


@dataclass(slots=True)
class Report:
    """What a carry did."""

    line: str = ""
    """One sentence for a log."""
    warnings: list[str] = field(default_factory=list)
    could_not: bool = False
    """Offsets could not be asked for, compared or written; the master may start all the same."""
    failed: bool = False
    """The master's disk can't be read or written."""
    refused: bool = False
    """The master could not start either: a broker runs on its store, or its table is broken."""
    merged: Merged = field(default_factory=Merged)
    asked: list[str] = field(default_factory=list)
    silent: dict[str, str] = field(default_factory=dict)
    """Slave to the reason why it was not used."""
    other_log: bool = False
    """A slave was not used because its log is another than this master's."""
    file: str = ""
    base: str = ""
    """The file that was merged into; empty for an empty table."""
    ms: dict[str, int] = field(default_factory=dict)
    """Duration of ``asked``, ``merged`` and ``written``."""

    def fail(self, warning: str) -> None:
        """Note that something could not be done, and that the master starts without it."""
        self.warnings.append(warning)
        self.could_not = True

    @property
    def answered(self) -> list[str]:
        """Slaves that were used."""
        return [each for each in self.asked if each not in self.silent]

    def leave(self, slave: str, reason: str) -> None:
        """Note that a slave is not used."""
        self.silent[slave] = reason
        self.fail(f"slave {slave} is not used: {reason}")

    def document(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        left = {
            name: [row._asdict() for row in getattr(self.merged, name)]
            for name in ("lowered", "beyond", "lower")
        }
        raised = [row._asdict() for row in self.merged.raised]
        said = {name: value for name, value in asdict(self).items() if name != "merged"}
        return {**said, "raised": raised, "left": {**left, "odd": list(self.merged.odd)}}

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Note how long the block takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.ms[name] = round((time.monotonic() - began) * 1000)


def carry(request: Request) -> Report:
    """Give the master's file what slaves know better; the file is whole at every moment.

    Raises:
        ConfigError: One of ``files`` can't be read.
    """
    report, conf = Report(file=str(request.conf.offset_file)), request.conf
    if conf.idle:
        report.line = f"nothing to carry: {conf.idle}"
        return report
    tables = [table_of_file(path) for path in request.files]
    try:
        if conf.unreadable:
            report.fail(conf.unreadable)
        else:
            with locked(conf.root, only_look=request.dry_run):
                asyncio.run(_carry(request, report, tables))
    except StoreError as error:
        report.refused = True
        report.warnings.append(str(error))
    except OSError as error:
        report.merged, report.failed = Merged(), True
        report.fail(where_and_why(error))
    if not report.line:
        report.line = "nothing was carried"
    return report


def table_of_file(path: Path) -> tuple[str, Table]:
    """Return a source and its table. Raises ``ConfigError`` if the file is none."""
    try:
        return str(path), read_document(read_file(path)).table
    except (OSError, ProtocolError) as error:
        raise ConfigError("--file", f"{path} is no table of offsets: {why(error)}") from None


async def _carry(request: Request, report: Report, tables: list[tuple[str, Table]]) -> None:
    store = MasterStore(request.conf)
    if store.is_empty:
        report.fail(f"the commit log of {request.conf.root} is empty: no offset would fit it")
        return
    settings, most_ms = RemotingSettings(access=request.access), ANSWER_SECONDS * 1000
    async with AdminClient(request.name_servers, settings=settings, timeout_ms=most_ms) as admin:
        with report.timed("asked"):
            told = await _of_slaves(admin, request, report)
        if not told and not tables:
            return
        file = OffsetFile(request.conf.offset_file)
        base = file.load()
        report.base = base.read_from
        if base.problem:
            report.warnings.append(f"{base.problem}; merged into {base.read_from or 'no offset'}")
        decide = partial(
            merge,
            base.document.table,
            base.previous,
            last_held=cache(store.last_held),
            accept_lower=request.accept_lower,
        )
        with report.timed("merged"):
            for each in told:
                rows = decide([each]).raised
                if await _is_same_log(admin, request, report, store, each[0], rows):
                    tables.append(each)
            report.merged = decide(tables)
    report.warnings += _explained(report.merged)
    if report.merged.raised and not request.dry_run:
        with report.timed("written"):
            table = report.merged.applied(base.document.table)
            file.replace(base.document, base.document.written(table))
    if tables:
        report.line = _line(request, report)


async def _of_slaves(
    admin: AdminClient, request: Request, report: Report
) -> list[tuple[str, Table]]:
    """Return what slaves say; the silent ones go to the report, or that none is known."""
    conf, servers = request.conf, request.name_servers
    problems: list[str] = []

    async def ask() -> list[Answer]:
        slaves: Sequence[str] = request.slaves
        if not slaves:
            slaves, problems[:] = await slaves_of(admin, conf.cluster, conf.name)
        return await ask_slaves(admin, slaves)

    answers = await ask_until_one_answers(ask, request.wait_seconds)
    report.asked = [each.slave for each in answers]
    for each in answers:
        if each.problem:
            report.leave(each.slave, each.problem)
    if not answers:
        listed = f"{', '.join(servers) or 'no name server is named, which'} lists none"
        why_none = "; ".join(problems) or listed
        report.fail(f"no slave of {conf.name} in {conf.cluster} is known: {why_none}")
    return [(each.slave, each.table) for each in answers if not each.problem]


async def _is_same_log(
    admin: AdminClient,
    request: Request,
    report: Report,
    store: MasterStore,
    slave: str,
    rows: Sequence[Row],
) -> bool:
    """Whether a slave may raise offsets: its log is this master's, or it was named and is."""
    other = await is_other_log(store, rows, partial(admin.view_record, slave))
    if other:
        report.other_log = True
        report.leave(slave, "its log is another than this master's, record by record")
    elif other is None and rows and not request.slaves:
        report.leave(slave, "it shows no record to compare its log by; --slave names it as sure")
    else:
        return True
    return False


def _explained(merged: Merged) -> list[str]:
    """Return a line for each offset, or each group, that is not as slaves say."""
    lower = []
    for group, rows in _by_group(merged.lower).items():
        messages = sum(row.own - row.theirs for row in rows)
        lower.append(
            f"group {group}: {len(rows)} offsets are larger here by {messages} messages, and stay; "
            f"after a reset on the slave give --accept-lower {group}"
        )
    kinds = (
        [f"{each}: passed over" for each in merged.odd],
        [
            f"{_place(row)}, which is beyond the messages on this disk: {_end(row)}"
            for row in merged.beyond
        ],
        [
            f"{_place(row)}, but this master lowered it before it stopped: it stays at {row.own}"
            for row in merged.lowered
        ],
        lower,
    )
    return [line for lines in kinds for line in _first(lines)]


def _place(row: Row) -> str:
    return f"{row.key} queue {row.queue}: {row.source} says {row.theirs}"


def _end(row: Row) -> str:
    if row.wanted < 0:
        return "the queue is not here, nothing is taken"
    return f"it {'stays at' if row.wanted == row.own else 'is cut to'} {row.wanted}"


def _first(lines: list[str]) -> list[str]:
    left = len(lines) - _MOST_LINES
    return lines if left <= 0 else [*lines[:_MOST_LINES], f"{left} more such lines (--json)"]


def _by_group(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(split_offset_key(row.key)[1], []).append(row)
    return found


def _line(request: Request, report: Report) -> str:
    merged, ms = report.merged, report.ms
    parts = [
        summary(merged.raised, is_dry=request.dry_run),
        f"kept {len(merged.lowered)} lowered here, cut {len(merged.beyond)} at the end of the "
        f"queue, {len(merged.lower)} are larger here",
    ]
    times = [
        f"asked {len(report.answered)} of {len(report.asked)} in {ms['asked']} ms",
        f"merged in {ms['merged']} ms",
    ]
    if "written" in ms:
        times.append(f"written in {ms['written']} ms")
    return "; ".join([*parts, ", ".join(times)])
