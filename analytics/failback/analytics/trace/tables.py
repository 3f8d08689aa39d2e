"""Rows of the lake from placed handlings and traced sends. Pure.

A column that a trace does not fill is null. A required one gets a value that cannot be taken for a
recorded one: see :func:`deliver_table`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.run.small_tables.columns import changed
from failback.analytics.trace.deliveries import MS_NS, ClientClock, codes, numbers, processes_of
from failback.analytics.trace.placing import NOWHERE, Placed
from failback.client.consumelog.schema import arrow_schema
from failback.protocol.names import instance_of

UNKNOWN: Final = "?"
"""Broker and topic of a message that lies in no queue that was read."""
DID_SHIFT: Final = 40


@dataclass(slots=True)
class Processes:
    """The processes that a trace knows by name, numbered from 1; rows of each are numbered too."""

    number: dict[str, int]
    roles: dict[str, tuple[str, str | None, str]] = field(default_factory=dict)
    """Role, group and client id of those that wrote rows."""

    @classmethod
    def of(cls, names: Iterable[str]) -> Processes:
        return cls({name: at for at, name in enumerate(sorted(set(names)), 1)})

    @staticmethod
    def key(name: str) -> bytes:
        """The 16 bytes that stand for a process in every table."""
        return hashlib.blake2b(name.encode(), digest_size=16).digest()


def deliver_table(run: str, placed: Placed, processes: Processes) -> pa.Table:
    """Table ``deliver``.

    * ``pqe`` counts how often a process had handled the copy before. A client never hands out a
      copy twice from one queue life, so another handling is another life; that this is so can't
      be checked with a trace.
    * A message that was found nowhere gets broker and topic ``?``, its own number as offset, and
      the begin of its handling as store time.
    * ``did`` follows the begin inside a process.
    * ``grp`` is the group with the instance in which its message lies: a trace leaves that out.
    """
    found = placed.handlings
    count = len(found)
    there = placed.at != NOWHERE
    copy = pa.array(placed.at, mask=~there)

    def of_copy(name: str) -> pa.Array:
        return placed.copies.column(name).combine_chunks().take(copy)

    def number_of_copy(name: str, otherwise: Ints) -> Ints:
        values = np.asarray(of_copy(name).fill_null(0).to_numpy(zero_copy_only=False), np.int64)
        return np.where(there, values, otherwise)

    proc_no = _numbers_of(found.process, processes)
    seq = _rank(proc_no)
    did = (proc_no << DID_SHIFT) | seq
    store_ms = number_of_copy("store_ms", found.begin_ms)
    columns: dict[str, Any] = {
        **_common(run, found.process, processes, seq, found.host, found.begin_ms),
        "did": did,
        "call_id": _first_of_each(codes(found.request), did),
        "grp": _in_instances(found.group, of_copy("ptopic")),
        "client_id": found.client_id,
        "inc": proc_no,
        "pqe": _lives(proc_no, codes(found.group), placed),
        "broker": pc.fill_null(of_copy("broker"), UNKNOWN),
        "ptopic": pc.fill_null(of_copy("ptopic"), UNKNOWN),
        "qid": number_of_copy("qid", np.zeros(count, np.int64)),
        "qoff": number_of_copy("qoff", placed.message),
        "phy": number_of_copy("phy", np.full(count, -1)),
        "omid": pc.fill_null(of_copy("omid"), b""),
        "ukey": pc.if_else(pa.array(there), of_copy("ukey"), found.message),
        "keys": pc.coalesce(found.keys, of_copy("keys")),
        "lane": of_copy("lane"),
        "lseq": of_copy("lseq"),
        "ltopic": pc.fill_null(of_copy("ltopic"), UNKNOWN),
        "rt": placed.retries,
        "born_ms": number_of_copy("born_ms", found.begin_ms),
        "store_ms": store_ms,
        "crc": number_of_copy("crc", np.zeros(count, np.int64)),
        "bt": found.begin_ms * MS_NS,
        "et": pa.array(found.end_ms * MS_NS, mask=~found.ended),
        "status": found.status,
    }
    _remember(processes, found.process, "consumer", found.group, found.client_id)
    return fitted("deliver", columns)


def _in_instances(group: pa.Array, topic: pa.Array) -> pa.Array:
    """Groups as brokers know them, by the topics of what they were given (null: unknown)."""
    coded = topic.dictionary_encode()
    names = [instance_of(name or "") for name in coded.dictionary.to_pylist()]
    prefixes = pa.array([f"{name}%" if name else "" for name in names], pa.utf8())
    prefix = pc.fill_null(prefixes.take(coded.indices), "")
    return pc.binary_join_element_wise(prefix, group, "")


def produce_table(
    run: str,
    sends: pa.Table,
    copies: pa.Table,
    processes: Processes,
    brokers: Mapping[str, str],
    after: int,
) -> pa.Table:
    """Table ``produce``: one attempt per traced message; a trace has no failed ones.

    Args:
        run: The run's id.
        sends: Traced sends.
        copies: Messages as they lie: a trace names a topic without its instance.
        processes: Those of all rows.
        brokers: Broker names by address.
        after: What the rows' seq goes on from in every process.
    """
    rows = _single_sends(sends)
    host = rows.column("host").combine_chunks()
    process, client_id = processes_of(host, rows.column("message_id").combine_chunks())
    proc_no = _numbers_of(process, processes)
    seq = _rank(proc_no) + after
    time_ms = numbers(rows, "time_ms")
    success = rows.column("success").combine_chunks()
    store_host = rows.column("store_host").to_pylist()
    columns: dict[str, Any] = {
        **_common(run, process, processes, seq, host, time_ms),
        "att": np.ones(rows.num_rows, np.int64),
        "ukey": rows.column("message_id"),
        "topic": _topics_of(rows, copies),
        "broker": pa.array([brokers.get(addr or "") for addr in store_host], pa.utf8()),
        "addr": pa.array(store_host, pa.utf8()),
        "due": time_ms * MS_NS,
        "t0": time_ms * MS_NS,
        "t1": (time_ms + np.maximum(numbers(rows, "cost_ms"), 0)) * MS_NS,
        "res": pc.if_else(success, "OK", "OK_DEGRADED"),
        "offset_msg_id": pa.array(
            [_offset_id(text) for text in rows.column("offset_message_id").to_pylist()], pa.binary()
        ),
    }
    _remember(processes, process, "producer", rows.column("group").combine_chunks(), client_id)
    return fitted("produce", columns)


def _topics_of(sends: pa.Table, copies: pa.Table) -> pa.Array:
    """Topics of sends: as their message lies, else as traced."""
    traced = sends.column("traced_topic").combine_chunks()
    topics = copies.column("ltopic").combine_chunks()
    if not any(map(instance_of, filter(None, pc.unique(topics).to_pylist()))):
        return traced
    at = pc.index_in(sends.column("message_id"), copies.column("message_id").combine_chunks())
    return pc.coalesce(topics.take(at.combine_chunks()), traced)


def scan_table(run: str, copies: pa.Table) -> pa.Table:
    """Table ``scan``: every message that lies in the topics that were read."""
    names = ("broker", "bid", "ptopic", "qid", "qoff", "omid", "ukey", "lane", "lseq", "rt",
             "store_ms")  # fmt: skip
    columns = {name: copies.column(name) for name in names}
    return fitted("scan", {**reader_columns(run, copies.num_rows), **columns})


def clock_table(run: str, clocks: Sequence[ClientClock]) -> pa.Table:
    """Table ``clock``: one row per client address."""
    columns: dict[str, Any] = {
        **reader_columns(run, len(clocks)),
        "host": [clock.host for clock in clocks],
        "boot_id": ["trace"] * len(clocks),
        "source": ["trace"] * len(clocks),
        "offset_ns": [clock.offset_ns for clock in clocks],
        "error_ns": [clock.error_ns for clock in clocks],
    }
    return fitted("clock", columns)


def _common(
    run: str, process: pa.Array, processes: Processes, seq: Ints, host: pa.Array, time_ms: Ints
) -> dict[str, Any]:
    coded = process.dictionary_encode()
    keys = pa.array([Processes.key(name) for name in coded.dictionary.to_pylist()], pa.binary(16))
    return {
        "run": [run] * len(seq),
        "proc": keys.take(coded.indices),
        "proc_no": _numbers_of(process, processes),
        "seq": seq,
        "wall_ns": time_ms * MS_NS,
        "mono_ns": time_ms * MS_NS,
        "host": host,
    }


def reader_columns(run: str, count: int, name: str = "reader", after: int = 0) -> dict[str, Any]:
    """The common columns of rows that the reader of the trace made, process 0.

    ``after`` is the seq that they go on from.
    """
    return {
        "run": [run] * count,
        "proc": pa.array([Processes.key(name)] * count, pa.binary(16)),
        "proc_no": [0] * count,
        "seq": np.arange(after + 1, after + count + 1),
        "wall_ns": [0] * count,
        "mono_ns": [0] * count,
        "host": [name] * count,
    }


def fitted(table: str, columns: Mapping[str, Any]) -> pa.Table:
    """The columns in the types of the lake; those that are not given are null."""
    schema = arrow_schema(table)
    arrays = []
    for column in schema:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        if column.nullable and column.name not in columns:
            values = pa.nulls(len(columns["run"]), kind)
        else:
            values = columns[column.name]
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            values = pa.array(values)
        values = values.cast(kind)
        arrays.append(values.dictionary_encode() if kind != column.type else values)
    return pa.table(arrays, schema=schema)


def _numbers_of(process: pa.Array, processes: Processes) -> Ints:
    coded = process.dictionary_encode()
    known = np.array([processes.number[name] for name in coded.dictionary.to_pylist()], np.int64)
    at = np.asarray(coded.indices.to_numpy(), np.int64)
    return known[at] if len(known) else at


def _remember(
    processes: Processes, process: pa.Array, role: str, group: pa.Array, client_id: pa.Array
) -> None:
    coded = process.dictionary_encode()
    at = np.asarray(coded.indices.to_numpy(), np.int64)
    which, first = np.unique(at, return_index=True)
    for one, row in zip(which.tolist(), first.tolist(), strict=True):
        role_of = (role, group[row].as_py(), client_id[row].as_py())
        processes.roles.setdefault(coded.dictionary[one].as_py(), role_of)


def _rank(key: Ints) -> Ints:
    """The place of each row among those of its key, from 1, in the order they come."""
    order = np.argsort(key, kind="stable")
    position = np.arange(len(key))
    start = np.maximum.accumulate(np.where(changed(key[order]), position, 0))
    found = np.empty(len(key), np.int64)
    found[order] = position - start + 1
    return found


def _first_of_each(key: Ints, value: Ints) -> Ints:
    """The first value of each key, for every row of it."""
    _, first, back = np.unique(key, return_index=True, return_inverse=True)
    return value[first][back.ravel()]


def _lives(proc_no: Ints, group: Ints, placed: Placed) -> Ints:
    """How many earlier handlings of the copy a process had for a group, plus one."""
    where = np.where(placed.at == NOWHERE, -2 - placed.message, placed.at)
    key = np.unique(np.stack([proc_no, group, where]), axis=1, return_inverse=True)[1].ravel()
    return _rank(key)


def _single_sends(sends: pa.Table) -> pa.Table:
    """A batch's record as one row per message."""
    ids = sends.column("message_id").to_pylist()
    if not any("," in text for text in ids):
        return sends
    rows = []
    for row in sends.to_pylist():
        messages = row["message_id"].split(",")
        places = (row["offset_message_id"] or "").split(",")
        if len(places) != len(messages):
            places = [None] * len(messages)
        for message, where in zip(messages, places, strict=True):
            rows.append({**row, "message_id": message, "offset_message_id": where or None})
    return pa.Table.from_pylist(rows, sends.schema)


def _offset_id(text: str | None) -> bytes | None:
    try:
        return bytes.fromhex(text) if text else None
    except ValueError:
        return None
