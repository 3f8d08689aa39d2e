"""A batch of rows as numpy columns, converted on first use. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from failback.analytics.analysis.arrays.columns import NULL_NUMBER, packed_of
from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.run.align import Clocks
from failback.analytics.run.epochs import Queue, QueueEvents
from failback.analytics.run.history import GroupQueue

_END: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Codes:
    """A name column as dense codes into ``names``; null is the name ``""``."""

    codes: Ints
    names: list[str]


class Rows:
    """A batch as numpy columns, converted on first use."""

    def __init__(self, batch: pa.Table) -> None:
        self._batch = batch.combine_chunks()
        self.count: int = batch.num_rows
        self._numbers: dict[str, Ints] = {}
        self._codes: dict[str, Codes] = {}

    def column(self, name: str) -> pa.Array:
        """A column as one Arrow array."""
        column = self._batch.column(name)
        if column.num_chunks == 1:
            return column.chunk(0)
        return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

    def __getitem__(self, name: str) -> Ints:
        """A number column as int64; nulls are 0."""
        found = self._numbers.get(name)
        if found is None:
            column = self.column(name)
            filled = pc.fill_null(column, 0) if column.null_count else column
            found = np.asarray(filled.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
            self._numbers[name] = found
        return found

    def has(self, name: str) -> bool:
        return name in self._batch.schema.names

    def valid(self, name: str) -> NDArray[np.bool_]:
        if not self.column(name).null_count:
            return np.ones(self.count, bool)
        return np.asarray(self.column(name).is_valid().to_numpy(zero_copy_only=False), bool)

    def true(self, name: str) -> NDArray[np.bool_]:
        return np.asarray(
            pc.fill_null(self.column(name), False).to_numpy(zero_copy_only=False), bool
        )

    def codes(self, name: str) -> Codes:
        found = self._codes.get(name)
        if found is None:
            column = self.column(name)
            if not pa.types.is_dictionary(column.type):
                column = column.dictionary_encode()
            names = column.dictionary.to_pylist()
            indices = column.indices
            if column.null_count:
                indices, names = pc.fill_null(indices, len(names)), [*names, ""]
            codes = np.asarray(indices.to_numpy(zero_copy_only=False), np.int64)
            found = Codes(codes, names)
            self._codes[name] = found
        return found

    def texts(self, name: str, rows: Ints) -> list[str | None]:
        """A text column's values of some rows; all null where the batch lacks the column."""
        if not self.has(name):
            return [None] * rows.size
        found: list[str | None] = self.column(name).take(pa.array(rows)).to_pylist()
        return found

    def equals(self, name: str, value: str) -> NDArray[np.bool_]:
        return self._named(name, lambda text: text == value)

    def one_of(self, name: str, values: frozenset[str]) -> NDArray[np.bool_]:
        return self._named(name, lambda text: text in values)

    def starts_with(self, name: str, prefix: str) -> NDArray[np.bool_]:
        return self._named(name, lambda text: text.startswith(prefix))

    def is_broker(self, broker: str | None) -> NDArray[np.bool_]:
        """Rows of a broker; of any broker when the fault did not name one."""
        return np.ones(self.count, bool) if broker is None else self.equals("broker", broker)

    def _named(self, name: str, test: Callable[[str], bool]) -> NDArray[np.bool_]:
        codes = self.codes(name)
        hits = [test(text) for text in codes.names]
        if len(set(hits)) == 1:
            return np.full(self.count, hits[0])
        return np.array(hits, bool)[codes.codes]

    def shifts(self, clocks: Clocks) -> Ints:
        codes = self.codes("host")
        shifts = [clocks.shift_of(name) for name in codes.names]
        if len(set(shifts)) == 1:
            return np.full(self.count, shifts[0], np.int64)
        return np.array(shifts, np.int64)[codes.codes]

    def rename_broadcast(self, groups: frozenset[str]) -> None:
        """Make ``grp`` the group of each client where every client gets every message."""
        grp = self.codes("grp")
        if not groups.intersection(grp.names):
            return
        client = self.codes("client_id")
        pairs = grp.codes * len(client.names) + client.codes
        kept, codes = np.unique(pairs, return_inverse=True)
        names: dict[str, int] = {}  # several clients of one other group share its name
        ranks = []
        for pair in kept.tolist():
            group, one = divmod(pair, len(client.names))
            name = grp.names[group]
            name = f"{name}@{client.names[one]}" if name in groups else name
            ranks.append(names.setdefault(name, len(names)))
        self._codes["grp"] = Codes(np.array(ranks, np.int64)[codes], list(names))

    def rename_unknown(self, name: str, known: frozenset[str], other: str) -> NDArray[np.bool_]:
        """Read names that are not ``known`` as ``other``; which rows have one."""
        codes = self.codes(name)
        foreign = [text not in known for text in codes.names]
        if not any(foreign):
            return np.zeros(self.count, bool)
        names = [text for text in codes.names if text in known and text != other]
        places = {text: at for at, text in enumerate([*names, other])}
        ranks = [places.get(text, len(names)) for text in codes.names]
        self._codes[name] = Codes(np.array(ranks, np.int64)[codes.codes], list(places))
        return np.array(foreign, bool)[codes.codes]

    def by_queue(self, names: Sequence[str]) -> list[tuple[tuple[Any, ...], Ints]]:
        """Indices of the rows of each queue: ``((names..., qid), rows)``."""
        if not self.count:
            return []
        columns = [self.codes(name) for name in names]
        qid = self["qid"]
        code = packed_of([*(column.codes for column in columns), qid])
        ascending = not (code[1:] < code[:-1]).any()  # files of the lake are in order
        order = np.arange(code.size) if ascending else np.argsort(code, kind="stable")
        starts = np.flatnonzero(np.diff(code[order]) != 0) + 1
        return [
            ((*(c.names[c.codes[rows[0]]] for c in columns), int(qid[rows[0]])), rows)
            for rows in np.split(order, starts)
        ]

    def incarnations(
        self, t: Ints, lives: Mapping[str, Sequence[tuple[int, int | None, int]]]
    ) -> Ints:
        """``bootTimestamp`` of the process at ``addr`` at ``t``; see ``History.incarnation_at``."""
        found = np.full(self.count, NULL_NUMBER, np.int64)
        codes = self.codes("addr")
        for at, name in enumerate(codes.names):
            known = lives.get(name)
            if not known:
                continue
            rows = np.flatnonzero(codes.codes == at)
            first = np.array([life[0] for life in known], np.int64)
            until = np.array([_END if life[1] is None else life[1] for life in known], np.int64)
            boot = np.array([life[2] for life in known], np.int64)
            which = np.maximum(np.searchsorted(first, t[rows], "right") - 1, 0)
            found[rows] = np.where(t[rows] < until[which], boot[which], NULL_NUMBER)
        return found

    def epochs_at(self, t: Ints, events: Mapping[Queue, QueueEvents]) -> Ints:
        epochs = np.zeros(self.count, np.int64)
        if events:
            for (broker, topic, qid), rows in self.by_queue(("broker", "ptopic")):
                known = events.get(Queue(broker, topic, qid))
                if known is not None:
                    epochs[rows] = known.epoch_at(t[rows])
        return epochs

    def windows(
        self,
        names: Sequence[str],
        t: Ints,
        windows: Mapping[GroupQueue, Sequence[tuple[int, int, int]]],
    ) -> tuple[Ints, Ints] | None:
        """Rows inside the windows of their queue: row indices and window numbers."""
        which, numbers = [], []
        for key, rows in self.by_queue(names) if windows else ():
            for number, lo, hi in windows.get(GroupQueue(*key), ()):
                inside = rows[(t[rows] > lo) & (t[rows] <= hi)]
                which.append(inside)
                numbers.append(np.full(inside.size, number, np.int64))
        if not which:
            return None
        return np.concatenate(which), np.concatenate(numbers)


def buckets(
    rows: Rows,
    names: Sequence[str],
    t: Ints,
    boundaries: Mapping[GroupQueue, Sequence[int]],
) -> Ints:
    """Bucket of each instant: i when boundary i-1 < t <= boundary i of the row's queue."""
    found = np.zeros(rows.count, np.int64)
    for key, where in rows.by_queue(names):
        edges = boundaries.get(GroupQueue(*key))
        if edges:
            found[where] = np.searchsorted(np.array(edges, np.int64), t[where], "left")
    return found
