"""The passes over the large tables of a run: the same for every runner.

Counting makes partial rows of everything, intervals and sums, a few per chunk. Classifying looks
only at rows of messages or offsets that occur more than once, in parts of whole messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Final

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.causes.classify import CauseInputs
from failback.analytics.analysis.causes.send_backs import SEND_BACK_COLUMNS
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
from failback.analytics.analysis.counting.partials.sends import (
    PRODUCE_COLUMNS,
    PULL_COLUMNS,
    SCAN_COLUMNS,
    produce_partials,
    pull_partials,
    resumed_partials,
    scan_partials,
)
from failback.analytics.analysis.counting.partials.sums import SCHEMA, Key, Partials
from failback.analytics.analysis.engines import by_key, chunks, order, row_blocks
from failback.analytics.analysis.engines.base import (
    PART_ROWS,
    Forbidden,
    Joined,
    Pass,
    Rows,
    Runner,
)
from failback.analytics.analysis.engines.candidates import Candidates, Repeated, Sent
from failback.analytics.analysis.engines.condensing import Condensing
from failback.analytics.analysis.engines.repeated_ranges import RepeatedRanges
from failback.analytics.analysis.engines.repeats import (
    AttemptsByMessage,
    CandidatesByMessage,
    PartReduction,
    Reduce,
    RowsTo,
    SendBacksByMessage,
)
from failback.analytics.analysis.results import Counts
from failback.analytics.lake.lake import Lake
from failback.analytics.run.definitions import BUSINESS_KEY

_COUNTED: Final = (
    ("produce", PRODUCE_COLUMNS, produce_partials),
    ("pull", PULL_COLUMNS, pull_partials),
    ("commit", COMMIT_COLUMNS, commit_partials),
    ("scan", SCAN_COLUMNS, scan_partials),
)


class Engine:
    """Passes over deliver, produce, pull, commit and scan of one run."""

    def __init__(self, runner: Runner, lake: Lake) -> None:
        """Let ``runner`` work through the rows of ``lake``."""
        self._runner = runner
        self._lake = lake

    @property
    def name(self) -> str:
        return self._runner.name

    @cached_property
    def _late_ends(self) -> Ends:
        return Ends.of(self._lake.read("deliver_end", END_COLUMNS))

    def known(self, boots: Mapping[str, Sequence[int]]) -> pa.Table:
        """Highest offsets before each start of a master (``partials.known_partials``)."""
        boots = {broker: list(times) for broker, times in boots.items()}
        found = self._runner.mapped(
            [
                Pass(table, columns, partial(chunks.known_of, table, boots=boots))
                for table, columns in chunks.KNOWN_COLUMNS.items()
            ],
            SCHEMA,
        )
        return families.KNOWN_OFFSETS.of(found.values())

    def count(self, context: Context) -> Counts:
        """Count: add up the partial rows of all large tables."""
        condense = Condensing(by_lid=context.definitions.counts_all_by_lid)
        ends = self._late_ends
        counting = partial(counted, context=context, ends=ends)
        found = self._runner.mapped(
            [
                Pass("deliver", self._deliver_columns(context, full=False), counting),
                *(
                    Pass(table, columns, partial(function, context=context))
                    for table, columns, function in _COUNTED
                ),
            ],
            SCHEMA,
        ).joined(condense)
        values = dict(found.values)
        bad = {row["reason"]: row["value"] for row in families.DROPPED.rows(values)}
        begun = {row["did"] for row in families.LATE_ENDS.rows(values)}
        for family in (families.DROPPED, families.LATE_ENDS):
            values.pop(family.name, None)
        dropped = Dropped(bad.get(1, 0), bad.get(2, 0), bad.get(3, 0))
        orphans = sum(did not in begun for did in ends.did.tolist())
        return Counts(found.depths, values, dropped, orphans, found.runs)

    def resumed(self, context: Context, forbidden: Sequence[Forbidden]) -> pa.Table:
        """First good send after each outage (``partials.resumed_partials``)."""
        limits = [(each.first_bad, each.lo, each.hi) for each in forbidden]
        resuming = partial(resumed_partials, context=context, forbidden=limits)
        found = self._runner.mapped([Pass("produce", chunks.RESUMED_COLUMNS, resuming)], SCHEMA)
        return families.RESUMED.of(found.values())

    def phase_rows(self, context: Context, wanted: Sequence[Phase]) -> pa.Table:
        """Rows behind instants that :meth:`count` found (``partials.phase_partials``)."""
        found = self._runner.mapped(
            [
                Pass(
                    table,
                    PHASE_COLUMNS,
                    partial(phase_partials, table, context=context, wanted=list(wanted)),
                )
                for table in PHASE_TABLES
            ],
            SCHEMA,
        )
        return families.PHASE_ROWS.of(found.values())

    def repeats(
        self,
        context: Context,
        again: RepeatedRanges,
        inputs: CauseInputs,
        reduce: Reduce,
        rows: RowsTo | None = None,
    ) -> Joined:
        """Classify what occurs more than once, and add up what ``reduce`` makes of it.

        That is done in parts of about ``PART_ROWS`` deliveries, each with all of its messages.

        Args:
            context: As in :meth:`count`.
            again: What occurs more than once.
            inputs: The small tables.
            reduce: Completes the causes of a part and makes partial rows of it.
            rows: Where the deliveries of the parts go, one by one; nowhere by default.
        """
        repeated = again.repeated
        if not repeated:
            return Joined({}, {}, 0)
        parts = self._parts(self._lake.rows("deliver") if again.wider else again.deliveries)
        key = context.definitions.key
        wider = repeated if again.wider else None
        for asked in (True,) if again.resent or key == BUSINESS_KEY else (False, True):
            chosen = [self._candidates(context, repeated, parts)]
            if key != BUSINESS_KEY:
                chosen += _evidence(context, repeated, parts, attempts=asked)
            found = self._runner.mapped(chosen, row_blocks.BLOCKS)
            if key == BUSINESS_KEY:
                found = found.and_(self._evidence_by_key(context, repeated, parts))
            work = PartReduction(inputs, context.clocks, key, reduce, rows, asked, wider)
            joined = found.by_part(work, SCHEMA).joined(Condensing(processed=reduce.processed))
            if not families.RESENT.rows(joined.values):
                break
        return joined

    def _evidence_by_key(self, context: Context, repeated: Repeated, parts: int) -> Rows:
        """Attempts and send-backs by business key, in parts that hold all of a message."""
        by_sent = self._parts(max(self._lake.rows("deliver"), self._lake.rows("produce")))
        links = by_key.Links(context, self._late_ends, repeated.messages, by_sent)
        columns = self._deliver_columns(context, full=False)
        linked = self._runner.mapped([Pass("deliver", columns, links.of_chunk)], row_blocks.BLOCKS)
        evidence = by_key.Evidence(context, by_sent, parts)
        sent = [
            Pass("produce", chunks.ATTEMPT_COLUMNS, evidence.attempts),
            Pass("sendback", SEND_BACK_COLUMNS, evidence.send_backs),
        ]
        known = self._runner.mapped(sent, row_blocks.BLOCKS)
        by_what_was_sent = linked.by_part(links.of_part, row_blocks.BLOCKS).and_(known)
        return by_what_was_sent.by_part(evidence.of_part, row_blocks.BLOCKS)

    def _candidates(self, context: Context, repeated: Repeated, parts: int) -> Pass:
        """The pass that brings candidates to parts that hold all deliveries of a message."""
        found = Candidates(repeated, context, self._late_ends)
        columns = self._deliver_columns(context, full=True)
        return Pass(
            "deliver", columns, CandidatesByMessage(found, parts), found.may_be_in, found.spans()
        )

    def _deliver_columns(self, context: Context, *, full: bool) -> list[str]:
        foreign = self._lake.has_foreign
        return deliver_columns(context.definitions, foreign=foreign, full=full)

    def order(self, context: Context, topics: frozenset[str], messages: pa.Table) -> pa.Table:
        """Order inversions per key of ordered topics (``tables.ORDER``).

        Args:
            context: As in :meth:`count`.
            topics: The ordered ones.
            messages: Ranges of (grp, lane) that have all messages that occur more than once.
        """
        if not topics:
            return tables.ORDER.empty_table()
        repeated = Repeated.of(messages, messages.slice(0, 0))
        candidates = Candidates(repeated, context, self._late_ends)
        parts = self._parts(self._lake.rows("deliver"))
        found = order.OrderedRows(topics, context, candidates, parts)
        columns = sorted({*self._deliver_columns(context, full=True), *order.COLUMNS})
        others = Pass("deliver", columns, found.of_others)
        rows = self._runner.mapped([others], row_blocks.BLOCKS)
        if repeated:
            again = Pass(
                "deliver", columns, found.of_candidates, candidates.may_be_in, candidates.spans()
            )
            marked = self._runner.mapped([again], row_blocks.BLOCKS).by_part(
                found.marked, row_blocks.BLOCKS
            )
            rows = rows.and_(marked)
        late = partial(order.inversions, context=context)
        return order.summed(rows.by_part(late, tables.ORDER).whole())

    def _parts(self, rows: int) -> int:
        """Of so many rows how many parts to make."""
        return max(self._runner.parallelism, -(-rows // PART_ROWS))


def _evidence(context: Context, repeated: Repeated, parts: int, *, attempts: bool) -> list[Pass]:
    """The passes that bring send-backs, and perhaps send attempts, to the parts of messages."""
    lanes = chunks.lanes_of(repeated.messages)
    back = Pass("sendback", SEND_BACK_COLUMNS, SendBacksByMessage(lanes, context, parts))
    if not attempts:
        return [back]
    sent = Sent(lanes, context.definitions.key)
    found = AttemptsByMessage(sent, parts)
    return [back, Pass("produce", chunks.ATTEMPT_COLUMNS, found, sent.may_be_in, sent.spans())]


def counted(chunk: pa.Table, context: Context, ends: Ends) -> pa.Table:
    """Normalise and count raw deliveries, with the dropped rows and the late ends met."""
    dropped = Dropped()
    found = deliver_partials(normalise(chunk, context, ends, dropped), context)
    out = Partials()
    counts = (dropped.et_before_bt, dropped.negative_offset, dropped.unknown_status)
    for reason, count in enumerate(counts, 1):
        if count:
            key = Key(reason=np.array([reason]))
            out.values(families.DROPPED, key, np.array([count]))
    if ends.did.size:
        met = ends.did[np.isin(ends.did, chunk.column("did").to_numpy())]
        out.values(families.LATE_ENDS, Key(did=met), np.ones(met.size, np.int64))
    return pa.concat_tables([found, out.table()])
