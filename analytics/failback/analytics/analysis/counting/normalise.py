"""Turns raw ``deliver`` rows into normalised ones, in numpy, for both engines. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.analysis.arrays.xxh64 import surrogates
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.rows import Rows
from failback.analytics.run.definitions import BUSINESS_KEY, LID, Definitions
from failback.analytics.run.epochs import FOREVER, FURTHEST_NS, Queue
from failback.client.consumelog.schema import DELIVER_STATUSES
from failback.protocol.message import RETRY_PREFIX

BASE_COLUMNS: Final = (
    "host", "did", "grp", "client_id", "inc", "pqe", "broker", "ptopic", "qid", "qoff", "lane",
    "lseq", "store_ms", "bt", "et", "status",
)  # fmt: skip
FULL_COLUMNS: Final = (*BASE_COLUMNS, "proc_no", "omid", "rt", "okey")
FOREIGN_COLUMNS: Final = ("ukey", "keys", "omid")
END_COLUMNS: Final = ("host", "did", "et", "status")
LONGEST_NS: Final = 30 * 86_400 * 1_000_000_000
"""No handling takes longer."""


@dataclass(frozen=True, slots=True)
class Ends:
    """``deliver_end`` rows, by did: ends that came in a later segment than their begin.

    24 bytes each.
    """

    did: Ints
    et: Ints
    status: pa.DictionaryArray
    host: pa.DictionaryArray

    @classmethod
    def of(cls, rows: pa.Table) -> Ends:
        """All ``deliver_end`` rows of a run; a handful per rotation of a process's log."""
        order = pc.sort_indices(rows, sort_keys=[("did", "ascending")])
        names = [
            rows.column(name).cast(pa.utf8()).dictionary_encode().combine_chunks().take(order)
            for name in ("status", "host")
        ]
        did, et = (rows.column(name).to_numpy()[order.to_numpy()] for name in ("did", "et"))
        return cls(np.asarray(did, np.int64), np.asarray(et, np.int64), *names)


@dataclass(slots=True)
class Dropped:
    """Rows that cannot be true, counted by reason."""

    et_before_bt: int = 0
    """Ended before it began, or a time that no run reaches."""
    negative_offset: int = 0
    """A negative offset, lane or sequence, or half a LAB_ID."""
    unknown_status: int = 0
    """Kept, but how it ended is unknown."""


def deliver_columns(definitions: Definitions, *, foreign: bool, full: bool) -> list[str]:
    """The columns of ``deliver`` that :func:`normalise` reads.

    Args:
        definitions: What makes two messages the same.
        foreign: Some messages have no LAB_ID; they are known by a text key.
        full: With the columns that classifying needs.
    """
    names = list(FULL_COLUMNS if full else BASE_COLUMNS)
    if definitions.key == LID and not foreign:
        return names
    return [*names, *(name for name in FOREIGN_COLUMNS if name not in names)]


def normalise(batch: pa.Table, context: Context, ends: Ends, dropped: Dropped) -> pa.Table:
    """Join late ends, align times, find epoch and identity, drop what cannot be true.

    Returns:
        The columns of ``tables.DELIVERY`` as far as the batch has their sources.
    """
    rows = Rows(batch)
    shift = rows.shifts(context.clocks)
    bt = rows["bt"] + shift
    et, ended, status = _ends(rows, rows["et"] + shift, ends, context)
    status, unknown = _known_status(status, ended)
    sent_lane, sent_lseq, fkey = _identity(rows, LID)
    lane, lseq = sent_lane, sent_lseq
    if context.definitions.key != LID:
        lane, lseq, fkey = _identity(rows, context.definitions.key)
    rows.rename_broadcast(context.broadcasting)
    epoch, epoch_end = _epochs(rows, context)
    backwards = (ended & ((et < bt) | (et - bt > LONGEST_NS))) | (abs(bt) > FURTHEST_NS)
    negative = (rows["qoff"] < 0) | _impossible_lab_id(rows)
    keep = ~(backwards | negative)
    dropped.et_before_bt += int(backwards.sum())
    dropped.negative_offset += int((negative & ~backwards).sum())
    dropped.unknown_status += int((unknown & keep).sum())
    grp = rows.codes("grp")
    columns: dict[str, Any] = {
        "did": rows["did"],
        "host": batch.column("host"),
        "grp": pa.DictionaryArray.from_arrays(grp.codes, pa.array(grp.names, pa.utf8())),
        "client_id": batch.column("client_id"),
        "broker": batch.column("broker"),
        "ptopic": batch.column("ptopic"),
        "qid": rows["qid"],
        "epoch": epoch,
        "epoch_end": epoch_end,
        "qoff": rows["qoff"],
        "lane": lane,
        "lseq": lseq,
        "sent_lane": sent_lane,
        "sent_lseq": sent_lseq,
        "inc": rows["inc"],
        "pqe": rows["pqe"],
        "bt": bt,
        "et": pa.array(et, pa.int64(), mask=~ended),
        "status": status,
        "done": _is(status, "SUCCESS"),
        "store_ms": rows["store_ms"],
    }
    if context.definitions.ignore_retry_topics:
        columns["left_out"] = rows.starts_with("ptopic", RETRY_PREFIX)
    if "rt" in batch.schema.names:
        columns |= {
            "proc_no": rows["proc_no"],
            "omid": batch.column("omid"),
            "rt": rows["rt"],
            "okey": batch.column("okey"),
            "fkey": pa.array([""] * rows.count) if fkey is None else pa.array(fkey),
        }
    table = pa.table(columns)
    return table if keep.all() else table.filter(pa.array(keep))


def _ends(
    rows: Rows, et: Ints, ends: Ends, context: Context
) -> tuple[Ints, NDArray[np.bool_], pa.Array]:
    ended = rows.valid("et")
    codes = rows.codes("status")
    status = pa.DictionaryArray.from_arrays(codes.codes, pa.array(codes.names, pa.utf8()))
    if not ends.did.size:
        return et, ended, status
    did = rows["did"]
    at = np.minimum(np.searchsorted(ends.did, did), ends.did.size - 1)
    late = np.flatnonzero((ends.did[at] == did) & ~ended)
    if not late.size:
        return et, ended, status
    et, ended = et.copy(), ended.copy()
    texts = status.to_pylist()
    for row in late.tolist():
        end = int(at[row])
        et[row] = ends.et[end] + context.clocks.shift_of(ends.host[end].as_py())
        ended[row] = True
        texts[row] = ends.status[end].as_py()
    return et, ended, pa.array(texts, pa.utf8()).dictionary_encode()


def _is(names: pa.DictionaryArray, wanted: str) -> NDArray[np.bool_]:
    hit = np.array([name == wanted for name in names.dictionary.to_pylist()] + [False], bool)
    indices = names.indices.fill_null(-1) if names.null_count else names.indices
    found: NDArray[np.bool_] = hit[indices.to_numpy(zero_copy_only=False)]
    return found


def _impossible_lab_id(rows: Rows) -> NDArray[np.bool_]:
    """A LAB_ID that no producer gives: below 0, or half of one."""
    lane, lseq = rows.valid("lane"), rows.valid("lseq")
    found: NDArray[np.bool_] = (
        (lane != lseq) | (lane & (rows["lane"] < 0)) | (lseq & (rows["lseq"] < 0))
    )
    return found


def _known_status(status: pa.Array, ended: NDArray[np.bool_]) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Statuses, and which are unknown: by their name, or because an end and its time disagree."""
    names = status.dictionary.to_pylist()
    unknown = [name not in DELIVER_STATUSES for name in names]
    if not any(unknown):
        return status, ended == _is(status, "ABANDONED")
    texts = ["UNKNOWN" if flag else name for name, flag in zip(names, unknown, strict=True)]
    found = np.array(unknown, bool)[status.indices.to_numpy()] | (ended == _is(status, "ABANDONED"))
    return pa.array(texts, pa.utf8()).take(status.indices).dictionary_encode(), found


def _identity(rows: Rows, by: str) -> tuple[Ints, Ints, list[str] | None]:
    """(lane, lseq, fkey): the LAB_ID, else UNIQ_KEY, else KEYS, else the copy.

    By another key than the LAB_ID that one is left out, and by business key KEYS come first.
    """
    known = rows.valid("lane") & rows.valid("lseq")
    if by != LID:
        known[:] = False
    lane, lseq = rows["lane"], rows["lseq"]
    if known.all():
        return lane, lseq, None
    lane, lseq = lane.copy(), lseq.copy()
    fkey = [""] * rows.count
    open_ = np.flatnonzero(~known)
    names = (("ukey", -1), ("keys", -2))
    for name, number in reversed(names) if by == BUSINESS_KEY else names:
        texts = rows.texts(name, open_)
        has = np.array([bool(text) for text in texts], bool)
        named = [text for text in texts if text]
        at = open_[has]
        if named:
            lane[at], lseq[at] = number, surrogates(named)
            for row, text in zip(at.tolist(), named, strict=True):
                fkey[row] = text
        open_ = open_[~has]
    if open_.size:
        broker, topic = rows.codes("broker"), rows.codes("ptopic")
        omid, qid = rows.column("omid"), rows["qid"]
        for row in open_.tolist():
            place = f"{broker.names[broker.codes[row]]}/{topic.names[topic.codes[row]]}/{qid[row]}"
            fkey[row] = f"{place}/{rows['qoff'][row]}/{omid[row].as_py().hex()}"
        lane[open_] = -3
        lseq[open_] = surrogates([fkey[row] for row in open_.tolist()])
    return lane, lseq, fkey


def _epochs(rows: Rows, context: Context) -> tuple[Ints, Ints]:
    epoch = np.zeros(rows.count, np.int64)
    last = np.full(rows.count, FOREVER, np.int64)
    if context.events:
        for (broker, topic, qid), where in rows.by_queue(("broker", "ptopic")):
            events = context.events.get(Queue(broker, topic, qid))
            if events is not None:
                epoch[where] = events.epoch_of(rows["store_ms"][where])
                last[where] = events.last_epoch_of(rows["qoff"][where], epoch[where])
    return epoch, last
