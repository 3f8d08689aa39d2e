"""The local engine: pyarrow reads, numpy counts, one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.arrays.memory import give_back
from failback.analytics.analysis.causes.business_keys import joined_links, links_of, produced_by_key
from failback.analytics.analysis.causes.classify import CauseInputs, classify, joined
from failback.analytics.analysis.counting import families, tables
from failback.analytics.analysis.counting.normalise import (
    END_COLUMNS,
    Dropped,
    Ends,
    deliver_columns,
    normalise,
)
from failback.analytics.analysis.counting.partials.commits import COMMIT_COLUMNS, commit_partials
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.deliveries import deliver_partials
from failback.analytics.analysis.counting.partials.phases import (
    PHASE_COLUMNS,
    PHASE_TABLES,
    Phase,
    phase_partials,
)
from failback.analytics.analysis.counting.partials.pulls import PULL_COLUMNS, pull_partials
from failback.analytics.analysis.counting.partials.sends import (
    PRODUCE_COLUMNS,
    SCAN_COLUMNS,
    produce_partials,
    resumed_partials,
    scan_partials,
)
from failback.analytics.analysis.engines import passes
from failback.analytics.analysis.engines.base import Forbidden
from failback.analytics.analysis.engines.candidates import Candidates, Repeated, Sent
from failback.analytics.analysis.engines.joins import (
    interval_sets,
    join_depths,
    join_values,
    produced_of,
)
from failback.analytics.analysis.results import Counts
from failback.analytics.lake.lake import Lake
from failback.analytics.run.definitions import BUSINESS_KEY


class LocalEngine:
    """Works through the lake in chunks of a million rows."""

    name = "local"

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._ends: Ends | None = None

    @property
    def _late_ends(self) -> Ends:
        if self._ends is None:
            self._ends = Ends.of(self._lake.read("deliver_end", END_COLUMNS))
        return self._ends

    def known(self, boots: Mapping[str, Sequence[int]]) -> pa.Table:
        found = [
            passes.known_of(table, chunk, boots)
            for table, columns in passes.KNOWN_COLUMNS.items()
            for chunk in self._lake.chunks(table, columns)
        ]
        return families.KNOWN_OFFSETS.of(join_values(found))

    def count(self, context: Context) -> Counts:
        dropped = Dropped()
        found = [deliver_partials(chunk, context) for chunk in self.deliveries(context, dropped)]
        large: Iterable[tuple[str, Sequence[str], Callable[[pa.Table, Context], pa.Table]]] = (
            ("produce", PRODUCE_COLUMNS, produce_partials),
            ("pull", PULL_COLUMNS, pull_partials),
            ("commit", COMMIT_COLUMNS, commit_partials),
            ("scan", SCAN_COLUMNS, scan_partials),
        )
        for table, columns, function in large:
            found += [function(chunk, context) for chunk in self._lake.chunks(table, columns)]
        depths, runs = join_depths(found)
        values = join_values(found)
        found.clear()
        give_back()
        return Counts(depths, values, dropped, self._orphan_ends(), runs)

    def deliveries(self, context: Context, dropped: Dropped) -> Iterable[pa.Table]:
        """Normalised deliveries, chunk by chunk, without what only classifying needs."""
        columns = deliver_columns(context.definitions, foreign=self._lake.has_foreign, full=False)
        for chunk in self._lake.chunks("deliver", columns):
            yield normalise(chunk, context, self._late_ends, dropped)

    def _orphan_ends(self) -> int:
        ends = self._late_ends.did
        if not ends.size:
            return 0
        begun = np.zeros(ends.size, bool)
        for chunk in self._lake.chunks("deliver", ("did",)):
            begun |= np.isin(ends, chunk.column("did").to_numpy())
        return int((~begun).sum())

    def resumed(self, context: Context, forbidden: Sequence[Forbidden]) -> pa.Table:
        limits = [(each.first_bad, each.lo, each.hi) for each in forbidden]
        found = [
            resumed_partials(chunk, context, limits)
            for chunk in self._lake.chunks("produce", passes.RESUMED_COLUMNS)
        ]
        return families.RESUMED.of(join_values(found))

    def phase_rows(self, context: Context, wanted: Sequence[Phase]) -> pa.Table:
        found = [
            phase_partials(table, chunk, context, wanted)
            for table in PHASE_TABLES
            for chunk in self._lake.chunks(table, PHASE_COLUMNS)
        ]
        return families.PHASE_ROWS.of(join_values(found))

    def links(self, context: Context, messages: pa.Table) -> pa.Table:
        repeated = interval_sets(messages, "grp", "lane")
        return joined_links(
            [links_of(chunk, repeated) for chunk in self.deliveries(context, Dropped())]
        )

    def classify(
        self, context: Context, messages: pa.Table, copies: pa.Table, inputs: CauseInputs
    ) -> pa.Table:
        repeated = Repeated.of(messages, copies)
        if not repeated:
            return tables.CLASSIFIED.empty_table()
        candidates = Candidates(repeated, context, self._late_ends)
        columns = deliver_columns(context.definitions, foreign=self._lake.has_foreign, full=True)
        found = [
            candidates.of(chunk)
            for chunk in self._lake.chunks("deliver", columns, wanted=candidates.may_be_in)
        ]
        give_back()  # what chunks have left, before all are one table
        produced = partial(self._produced, context.definitions.key, inputs.links)
        classified = joined([classify(found, inputs, context.clocks)], produced)
        give_back()
        return classified

    def _produced(self, key: str, links: pa.Table, asked: pa.Table) -> pa.Table:
        """Send attempts of some messages, summed up."""
        sent = Sent.of(asked, links, key)
        attempts = [
            sent.among(chunk)
            for chunk in self._lake.chunks("produce", passes.ATTEMPT_COLUMNS, wanted=sent.may_be_in)
        ]
        produced = produced_of(pa.concat_tables([passes.ATTEMPTS.empty_table(), *attempts]))
        return produced_by_key(produced, links) if key == BUSINESS_KEY else produced

    def order(self, context: Context, topics: frozenset[str], classified: pa.Table) -> pa.Table:
        if not topics:
            return tables.ORDER.empty_table()
        later = passes.repeated_dids(classified)
        found = [
            passes.inversion_rows(chunk, context, topics, later)
            for chunk in self._lake.chunks("deliver", passes.ORDER_COLUMNS)
        ]
        rows = pa.concat_tables([passes.INVERSION_ROWS.empty_table(), *found])
        return inversions(rows, context)


def inversions(rows: pa.Table, context: Context) -> pa.Table:
    """Deliveries whose key had a greater ``kseq`` begun before: of firsts, and of repeats."""
    c = Columns(rows)
    if not c.count:
        return tables.ORDER.empty_table()
    key = c.dense("grp", "topic", "okey")
    bt, did, kseq = c.ints("bt"), c.ints("did"), c.ints("kseq")
    order = np.lexsort((did, bt, key))
    # A running maximum per key: keys are ascending here, so lifting each key above all values of
    # the one before lets one running maximum serve them all.
    ranks = np.searchsorted(np.unique(kseq), kseq)
    lifted = ranks[order] + key[order] * (int(ranks.max()) + 1)
    before = np.concatenate(([-1], np.maximum.accumulate(lifted)[:-1]))
    late = np.empty(c.count, bool)
    late[order] = lifted < before
    late &= context.in_figures(bt)
    repeat = np.asarray(rows.column("later").to_numpy(), bool)
    counted = rows.append_column("first", pa.array((late & ~repeat).astype(np.int64)))
    counted = counted.append_column("replay", pa.array((late & repeat).astype(np.int64)))
    okey = pa.array(c.texts("okey"), pa.utf8(), mask=~(late & ~repeat))
    counted = counted.append_column("late_key", okey)
    joined = counted.group_by(["grp", "topic"]).aggregate(
        [("first", "sum"), ("replay", "sum"), ("late_key", "min")]
    )
    found = joined.select(["grp", "topic", "first_sum", "replay_sum", "late_key_min"])
    return tables.sorted_table(found.rename_columns(tables.ORDER.names), tables.ORDER)
