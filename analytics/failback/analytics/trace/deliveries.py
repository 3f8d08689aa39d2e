"""Joins trace records to handlings, and tells how the clocks of traced clients go. Pure.

A handling says who was given which message, from when to when. It is one SubBefore and one SubAfter
with the same request and message. A trace message can be stored twice, since the client sends again
what timed out. A record's identity is (request, message, kind) and its count inside one body. Two
copies of a message handled in one batch have equal ids and are two handlings. The same record in
two bodies is one.

Times are the client's wall clock in ms. SubAfter carries its own since 4.5; before, the end is the
begin plus the cost, which the client had divided by the number of messages of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.run.small_tables.columns import Flags, changed
from failback.analytics.trace.records import PUB, RETURN_TYPES, SUB_AFTER, SUB_BEFORE

MS_NS: Final = 1_000_000
JUMP_MS: Final = 10_000
"""Between a client and a broker no trace is under way for so long."""
MOST_MS: Final = 30 * 86_400_000
"""A clock that is further off than this is no clock: it isn't followed, and the error says so."""
UNKNOWN_RETRIES: Final = -1
_V4_ID_CHARS: Final = 32
_V6_ID_CHARS: Final = 56
_OWN_CHARS: Final = 12
"""Characters of a client-made id after those that name the process: time and counter."""
_SUB_COLUMNS: Final = [
    "broker", "topic", "qid", "qoff", "host", "store_ms", "kind", "number", "copy", "message_id",
    "time_ms", "group", "request_id", "retry_times", "keys", "cost_ms", "success", "code",
]  # fmt: skip
_STATUS_OF_CODE: Final = ("SUCCESS", None, "EXC", "NULL", "LATER")
"""By ``RETURN_TYPES``; a timed out one is decided by its success."""


@dataclass(slots=True)
class Counts:
    """What the joining came across. All are numbers of records or handlings."""

    repeated: int = 0
    """Records that had been seen: their trace message was stored again."""
    missing_end: int = 0
    """Handlings without SubAfter: the process died, or that trace was lost."""
    missing_begin: int = 0
    """Handlings of which only SubAfter is there, put together from it."""
    undated: int = 0
    """Left out: only a SubAfter of an old client, which has no time."""
    without_group: int = 0
    """Left out: only a SubAfter that doesn't name its group."""
    clock_steps: int = 0
    """Ends before their begin: the client's clock was set back in between."""
    unplaced: int = 0
    """Handlings whose message is in no queue that was read."""
    unknown_retries: int = 0
    """Left out: only a SubAfter, and copies that don't say which attempt it was."""
    several_copies: int = 0
    """Handlings of a message that lies in several places: which one was handled is open."""


@dataclass(slots=True)
class Handlings:
    """Columns of equal length, in the order of (process, begin)."""

    request: pa.Array
    message: pa.Array
    host: pa.Array
    group: pa.Array
    keys: pa.Array
    process: pa.Array
    client_id: pa.Array
    retries: Ints
    """``UNKNOWN_RETRIES`` where only the end was traced."""
    begin_ms: Ints
    end_ms: Ints
    ended: Flags
    status: pa.Array
    counts: Counts = field(default_factory=Counts)

    def __len__(self) -> int:
        return len(self.begin_ms)

    def chosen(self, rows: Ints) -> Handlings:
        """Some of them, in the order given."""
        at = pa.array(rows)
        names = ("request", "message", "host", "group", "keys", "process", "client_id", "status")
        arrays = {name: getattr(self, name).take(at) for name in names}
        numbers = {name: getattr(self, name)[rows] for name in ("retries", "begin_ms", "end_ms")}
        return Handlings(**arrays, **numbers, ended=self.ended[rows], counts=self.counts)


def handlings_of(records: pa.Table) -> Handlings:
    """Join SubBefore and SubAfter records (``pages.RECORDS``)."""
    kinds = pa.array([SUB_BEFORE, SUB_AFTER])
    chosen = pc.is_in(records.column("kind"), kinds)
    subs = records.select(_SUB_COLUMNS).filter(chosen).combine_chunks()
    counts = Counts()
    begin_row, end_row, batch = _pairs(subs, counts)
    begun, ended = begin_row >= 0, end_row >= 0
    any_row = np.where(begun, begin_row, end_row)
    cost = numbers(subs, "cost_ms")[end_row] * batch
    time_ms, timed = numbers(subs, "time_ms"), _valid(subs, "time_ms")
    end_timed = ended & timed[end_row]
    begin_ms = np.where(begun, time_ms[begin_row], time_ms[end_row] - cost)
    end_ms = np.where(end_timed, time_ms[end_row], begin_ms + cost)
    stepped = ended & (end_ms < begin_ms)
    end_ms[stepped] = begin_ms[stepped]
    group = _either(subs, "group", begin_row, end_row)
    named = np.asarray(group.is_valid().to_numpy(zero_copy_only=False), bool)
    dated = begun | end_timed
    counts.clock_steps = int(stepped.sum())
    counts.undated = int((~dated).sum())
    counts.without_group = int((dated & ~named).sum())
    request = subs.column("request_id").combine_chunks().take(pa.array(any_row))
    host = subs.column("host").combine_chunks().take(pa.array(any_row))
    process, client_id = processes_of(host, request)
    whole = Handlings(
        request=request,
        message=subs.column("message_id").combine_chunks().take(pa.array(any_row)),
        host=host,
        group=group,
        keys=_either(subs, "keys", begin_row, end_row),
        process=process,
        client_id=client_id,
        retries=np.where(begun, numbers(subs, "retry_times")[begin_row], UNKNOWN_RETRIES),
        begin_ms=begin_ms,
        end_ms=end_ms,
        ended=ended,
        status=_statuses(subs, end_row),
        counts=counts,
    )
    kept = whole.chosen(np.flatnonzero(dated & named))
    counts.missing_end = int((~kept.ended).sum())
    counts.missing_begin = int((kept.retries == UNKNOWN_RETRIES).sum())
    order = np.lexsort(
        (codes(kept.message), codes(kept.request), kept.begin_ms, codes(kept.process))
    )
    return kept.chosen(order)


def _pairs(subs: pa.Table, counts: Counts) -> tuple[Ints, Ints, Ints]:
    """Per handling the row of its begin and of its end (or -1), and how many its request has."""
    if not subs.num_rows:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing
    request, message = codes(subs.column("request_id")), codes(subs.column("message_id"))
    is_end = np.asarray(pc.equal(subs.column("kind"), SUB_AFTER).to_numpy(), bool)
    copy = numbers(subs, "copy")
    place = [numbers(subs, name) for name in ("number", "qoff", "qid")]
    place += [codes(subs.column(name)) for name in ("broker", "topic")]
    order = np.lexsort((*place, numbers(subs, "store_ms"), is_end, copy, message, request))
    new = changed(request[order], message[order], copy[order])
    first = new | changed(is_end[order])
    handling = np.cumsum(new) - 1
    counts.repeated = int((~first).sum())
    total = int(handling[-1]) + 1
    begin_row, end_row = np.full(total, -1, np.int64), np.full(total, -1, np.int64)
    for rows, wanted in ((begin_row, False), (end_row, True)):
        chosen = first & (is_end[order] == wanted)
        rows[handling[chosen]] = order[chosen]
    of_request = request[order[new]]
    batch = np.bincount(of_request)[of_request]
    return begin_row, end_row, batch


def _either(subs: pa.Table, name: str, first: Ints, second: Ints) -> pa.Array:
    """The value of the first row, or of the second where the first is -1 or null."""
    column = subs.column(name).combine_chunks()
    taken = [column.take(pa.array(rows, mask=rows < 0)) for rows in (first, second)]
    return pc.coalesce(*taken)


def _statuses(subs: pa.Table, end_row: Ints) -> pa.Array:
    """ABANDONED without an end; else by the code, or by the success of clients without codes."""
    success = np.asarray(
        subs.column("success").fill_null(False).combine_chunks().to_numpy(zero_copy_only=False),
        bool,
    )
    code = np.where(_valid(subs, "code"), numbers(subs, "code"), -1)
    found = np.full(len(end_row), "ABANDONED", object)
    ended = np.flatnonzero(end_row >= 0)
    rows = end_row[ended]
    found[ended] = np.where(success[rows], "SUCCESS", "LATER")
    for number, status in enumerate(_STATUS_OF_CODE[: len(RETURN_TYPES)]):
        if status is not None:
            hit = ended[(code[rows] == number) & (success[rows] == (status == "SUCCESS"))]
            found[hit] = status
    return pa.array(found, pa.utf8())


def processes_of(host: pa.Array, made_id: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Names of the processes that made ids, and their client ids as ``address@pid``.

    A client-made id begins with address, pid and class loader of its process: what they have in
    common is one process, as far as a trace can tell. Ids of another shape name their host only.
    """
    if not len(made_id):
        return pa.array([], pa.utf8()), pa.array([], pa.utf8())
    length = pc.utf8_length(made_id)
    shaped = pc.and_(
        pc.is_in(length, pa.array([_V4_ID_CHARS, _V6_ID_CHARS], pa.int32())),
        pc.match_substring_regex(made_id, "^[0-9A-Fa-f]+$"),
    )
    prefix = pc.if_else(shaped, pc.utf8_slice_codeunits(made_id, 0, -_OWN_CHARS), "")
    process = pc.binary_join_element_wise(host, prefix, "/")
    coded = process.dictionary_encode()
    names = coded.dictionary.to_pylist()
    clients = pa.array([_client_id(name) for name in names], pa.utf8())
    return process, clients.take(coded.indices)


def _client_id(process: str) -> str:
    host, _, prefix = process.rpartition("/")
    return f"{host}@{int(prefix[-12:-8], 16)}" if prefix else host


def numbers(table: pa.Table, name: str) -> Ints:
    """An integer column; nulls are 0."""
    return np.asarray(table.column(name).fill_null(0).to_numpy(), np.int64)


def _valid(table: pa.Table, name: str) -> Flags:
    return np.asarray(table.column(name).is_valid().to_numpy(), bool)


def codes(column: pa.Array | pa.ChunkedArray) -> Ints:
    """Numbers that are equal and ordered as the texts are; null comes first."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    coded = whole.dictionary_encode()
    rank = np.asarray(pc.rank(coded.dictionary, tiebreaker="dense").to_numpy(), np.int64)
    at = np.asarray(coded.indices.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)
    return np.where(at < 0, 0, rank[at]) if len(rank) else np.zeros(len(at), np.int64)


def sends_of(records: pa.Table) -> pa.Table:
    """Pub records, each once."""
    pubs = records.filter(pc.equal(records.column("kind"), PUB)).combine_chunks()
    if not pubs.num_rows:
        return pubs
    key = [codes(pubs.column(name)) for name in ("message_id", "offset_message_id")]
    key += [numbers(pubs, "time_ms"), numbers(pubs, "copy")]
    order = np.lexsort((numbers(pubs, "qoff"), *reversed(key)))
    first = order[changed(*(column[order] for column in key))]
    return pubs.take(pa.array(np.sort(first)))


@dataclass(frozen=True, slots=True)
class ClientClock:
    """What to add to a client's clock to get the brokers', and how sure that is; ns."""

    host: str
    offset_ns: int
    error_ns: int


def client_clocks(records: pa.Table) -> list[ClientClock]:
    """One clock per client address, against the clock of the brokers that keep the trace.

    A trace message carries when the client sent it and when the broker stored it. The difference is
    the offset between the two clocks plus the time under way; its least value is nearest to the
    offset alone. How far the usual one lies above the least says how steady the way is, which is
    the error that is claimed. A trace is not under way for long: where two differ by more, a clock
    jumped, and all of it is claimed. All brokers of the trace topic are taken for one clock.

    ``records`` are with their carriers (``pages.RECORDS``).
    """
    if not records.num_rows:
        return []
    hosts = records.column("host").combine_chunks()
    number = codes(hosts)
    delay = numbers(records, "store_ms") - numbers(records, "born_ms")
    found = []
    for one in np.unique(number).tolist():
        rows = np.flatnonzero(number == one)
        least = int(delay[rows].min())
        usual, most = int(np.median(delay[rows])), int(delay[rows].max())
        above = (most if most - least > JUMP_MS else usual) - least
        offset = max(-MOST_MS, min(MOST_MS, least))
        error = min(MOST_MS, abs(least - offset) + above + 1)
        name = hosts[int(rows[0])].as_py()
        found.append(ClientClock(name or "", offset * MS_NS, error * MS_NS))
    return sorted(found, key=lambda clock: clock.host)
