"""Finds the queue and offset of what was handled, in the copies that lie in the topics. Pure.

A trace names the message and the attempt, not the place. At attempt r a group received the copy in
its retry topic that carries r. An orderly or local retry hands out the same copy again; then it is
the copy of the highest attempt below. Mostly there is exactly one. Where a message was stored
several times, its handlings are dealt to the copies in the order of their storing: which of them
came from which copy is then open, and counted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.trace.deliveries import (
    UNKNOWN_RETRIES,
    Handlings,
    codes,
    numbers,
)
from failback.protocol.message import DLQ_PREFIX, RETRY_PREFIX
from failback.protocol.names import without_instance

NOWHERE: Final = -1


@dataclass(frozen=True, slots=True)
class Placed:
    """Handlings with their places: row ``at`` of ``copies``, or ``NOWHERE``."""

    handlings: Handlings
    retries: Ints
    at: Ints
    copies: pa.Table
    message: Ints
    """A number for each distinct message."""


def place(handlings: Handlings, copies: pa.Table) -> Placed:
    """Place every handling; those whose attempt stays unknown are left out and counted."""
    known = pc.unique(handlings.message)
    message = _index_in(handlings.message, known)
    copies = _wanted(copies, known)
    of_copy = _index_in(copies.column("message_id").combine_chunks(), known)
    retries, at = handlings.retries.copy(), np.full(len(handlings), NOWHERE, np.int64)
    simple, only = _single_copies(of_copy, copies, len(known))
    easy = (retries == 0) & simple[message]
    at[easy] = only[message[easy]]
    _place_others(handlings, np.flatnonzero(~easy), message, of_copy, copies, retries, at)
    handlings.counts.unplaced = int((at == NOWHERE).sum())
    kept = np.flatnonzero(retries != UNKNOWN_RETRIES)
    handlings.counts.unknown_retries = len(handlings) - len(kept)
    handlings.counts.unplaced -= int((at[retries == UNKNOWN_RETRIES] == NOWHERE).sum())
    return Placed(handlings.chosen(kept), retries[kept], at[kept], copies, message[kept])


def _index_in(values: pa.Array, known: pa.Array) -> Ints:
    found = pc.index_in(values, value_set=known).fill_null(-1)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)


def _wanted(copies: pa.Table, known: pa.Array) -> pa.Table:
    """Copies of traced messages that a group can be given, in the order of their storing."""
    traced = pc.is_in(copies.column("message_id"), value_set=known)
    dead = pc.starts_with(copies.column("ptopic"), DLQ_PREFIX)
    chosen = copies.filter(pc.and_(traced, pc.invert(dead))).combine_chunks()
    order = np.lexsort(
        (
            numbers(chosen, "qoff"),
            numbers(chosen, "qid"),
            codes(chosen.column("ptopic")),
            codes(chosen.column("broker")),
            numbers(chosen, "store_ms"),
        )
    )
    return chosen.take(pa.array(order)).combine_chunks()


def _single_copies(of_copy: Ints, copies: pa.Table, count: int) -> tuple[Ints, Ints]:
    """Whether a message has one copy outside of retry topics, and which row that is."""
    topics = copies.column("ptopic")
    retry = np.asarray(pc.starts_with(topics, RETRY_PREFIX).to_numpy(), bool)
    rows = np.flatnonzero(~retry)
    found = np.bincount(of_copy[rows], minlength=count)
    only = np.full(count, NOWHERE, np.int64)
    only[of_copy[rows]] = rows
    return found == 1, only


def _place_others(
    handlings: Handlings,
    rows: Ints,
    message: Ints,
    of_copy: Ints,
    copies: pa.Table,
    retries: Ints,
    at: Ints,
) -> None:
    """Place retries, messages stored several times, and those of unknown attempt, one by one."""
    here = np.flatnonzero(np.isin(of_copy, message[rows]))
    lying: dict[tuple[int, str | None], dict[int, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    topics = copies.column("ptopic").take(pa.array(here)).to_pylist()
    carried = numbers(copies, "rt")
    for row, topic in zip(here.tolist(), topics, strict=True):
        # A message lies in one instance only, and traces name its groups without that.
        name = without_instance(topic)
        group = name.removeprefix(RETRY_PREFIX) if name.startswith(RETRY_PREFIX) else None
        attempt = int(carried[row]) if group is not None else 0
        lying[int(of_copy[row]), group][attempt].append(row)
    groups = handlings.group.take(pa.array(rows)).to_pylist()
    times = handlings.begin_ms[rows]
    order = sorted(range(len(rows)), key=lambda index: (int(times[index]), index))
    dealt: dict[tuple[int, str, int], int] = defaultdict(int)
    for index in order:
        row, group = int(rows[index]), groups[index]
        number = int(message[row])
        copies_at = {
            **lying.get((number, None), {}),
            **lying.get((number, group), {}),
        }
        if retries[row] == UNKNOWN_RETRIES:
            if len(copies_at) != 1 or any(len(found) > 1 for found in copies_at.values()):
                continue
            retries[row] = next(iter(copies_at))
        reached = [attempt for attempt in copies_at if attempt <= retries[row]]
        if not reached:
            continue
        candidates = copies_at[max(reached)]
        turn = dealt[number, group, int(retries[row])]
        dealt[number, group, int(retries[row])] += 1
        at[row] = candidates[min(turn, len(candidates) - 1)]
        handlings.counts.several_copies += len(candidates) > 1
