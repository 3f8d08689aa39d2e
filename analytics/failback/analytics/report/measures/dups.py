"""The unwanted deliveries of a run as columns: there may be millions of them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.columns import Columns, Flags, packed_of
from failback.analytics.analysis.arrays.intervals import Ints
from failback.analytics.run.history import GroupQueue

FIELDS: Final = (
    "grp", "client_id", "broker", "ptopic", "qid", "qoff", "lane", "lseq", "fkey", "okey", "bt",
    "et", "ok_end", "store_ms", "cause", "after_success", "ambiguous", "nth_of_copy", "a_no",
    "inherited", "partial_view",
)  # fmt: skip
"""What figures need of a delivery. ``et``, ``ok_end``, ``a_no`` and ``after_success`` may be
null."""


class Dups(Columns):
    """Unwanted deliveries, group by group; times in ns after run zero."""

    @classmethod
    def of(cls, repeats: pa.Table, shown: pa.ChunkedArray) -> Dups:
        """Those among the candidates with causes (``attribution.attributed``) that are shown."""
        wanted = pc.and_(shown, pc.equal(repeats.column("cls"), "DUP"))
        kept = repeats.select(FIELDS).filter(wanted).combine_chunks()
        for at, field in enumerate(kept.schema):
            if pa.types.is_string(field.type):
                kept = kept.set_column(at, field.name, kept.column(at).dictionary_encode())
        group = Columns(kept).codes("grp")
        return cls(kept.take(pa.array(np.argsort(group, kind="stable"))))

    def __len__(self) -> int:
        return self.count

    def where(self, chosen: Flags, *names: str) -> Dups:
        """The chosen ones, with some of their columns, or all."""
        table = self._table.select(names) if names else self._table
        return Dups(table.filter(pa.array(chosen)))

    def of_group(self, name: str) -> Dups:
        codes, names = self.named("grp")
        number = names.to_pylist().index(name) if name in names.to_pylist() else -1
        lo, hi = np.searchsorted(codes, [number, number + 1]) if number >= 0 else (0, 0)
        return Dups(self._table.slice(int(lo), int(hi - lo)))

    def of_assignment(self, number: int) -> Dups:
        owner, rows = self._by_assignment
        lo, hi = np.searchsorted(owner, [number, number + 1])
        return Dups(self._table.take(pa.array(rows[lo:hi])))

    @cached_property
    def _by_assignment(self) -> tuple[Ints, Ints]:
        owner, assigned = self.ints("a_no"), np.flatnonzero(self.valid("a_no"))
        rows = assigned[np.argsort(owner[assigned], kind="stable")]
        return owner[rows], rows

    def of_cause(self, wanted: Callable[[str | None], bool]) -> Flags:
        """Which have a cause, or none, that is wanted."""
        codes, names = self.named("cause")
        hit = np.array([*map(wanted, names.to_pylist()), wanted(None)], bool)
        return hit[codes]

    def begun(self, since: int, until: int | None) -> Flags:
        """Which began since then and, if there is an end, before it."""
        bt = self.ints("bt")
        return (since <= bt) & ((bt < until) if until is not None else np.True_)

    def counts(self, *keys: str | Ints) -> Counter[tuple[Any, ...]]:
        """How many have the same values in columns, by name or as an array of numbers."""
        _, first, count = np.unique(self._packed(keys), return_index=True, return_counts=True)
        values = [
            self.take(key, first).to_pylist() if isinstance(key, str) else key[first].tolist()
            for key in keys
        ]
        return Counter(dict(zip(zip(*values, strict=True), count.tolist(), strict=True)))

    def distinct(self, *names: str) -> int:
        """How many different combinations there are."""
        return int(np.unique(self._packed(names)).size)

    def _packed(self, keys: tuple[str | Ints, ...]) -> Ints:
        return packed_of([self.codes(key) if isinstance(key, str) else key for key in keys])

    def queues(self) -> Counter[GroupQueue]:
        """How many there are of each queue."""
        found = self.counts("grp", "broker", "ptopic", "qid")
        return Counter({GroupQueue(*key): count for key, count in found.items()})
