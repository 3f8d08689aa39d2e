"""An engine that works on repeats in parts as well, and keeps what the parts say."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.analysis.arrays.columns import Columns
from failback.analytics.analysis.causes.classify import CauseInputs
from failback.analytics.analysis.counting import tables
from failback.analytics.analysis.counting.families import GRP, INTERVAL, QID, SUM, Family
from failback.analytics.analysis.counting.partials.context import Context
from failback.analytics.analysis.counting.partials.rows import Codes
from failback.analytics.analysis.counting.partials.sums import Key, Partials
from failback.analytics.analysis.engines.base import Joined, Runner
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.repeats import Reduce, RowsTo
from failback.analytics.lake.lake import Lake

ROWS = Family("rows", SUM, "deliver", (GRP, QID), "candidates")
DIDS = Family("dids", INTERVAL, "deliver", (GRP,), "delivery ids")


@dataclass(frozen=True)
class Counting:
    """Counts the rows of a part, by group and queue id."""

    def attributed(self, classified: pa.Table, send_backs: pa.Table) -> pa.Table:
        return classified

    def counted(self, attributed: pa.Table) -> pa.Table:
        c, out = Columns(attributed), Partials()
        codes, names = c.named("grp")
        grp = Key(grp=Codes(codes.astype(np.int64), names.to_pylist()))
        out.values(ROWS, grp.and_(qid=c.ints("qid")), np.ones(c.count, np.int64))
        out.intervals(DIDS, grp, c.ints("did"), np.ones(c.count, bool))
        return out.table()


@dataclass(frozen=True)
class IntoFiles:
    """A Parquet file for each part."""

    folder: Path

    def write(self, part: pa.Table) -> None:
        pq.write_table(part, self.folder / f"{part.column('did')[0].as_py()}.parquet")

    def read(self) -> pa.Table:
        found = [pq.read_table(path) for path in sorted(self.folder.iterdir())]
        whole = pa.concat_tables([tables.CLASSIFIED.empty_table(), *found])
        return tables.sorted_table(whole, tables.CLASSIFIED)


class InParts(Engine):
    """Does both: classifies the whole, and in parts."""

    def __init__(self, runner: Runner, lake: Lake, folder: Path) -> None:
        super().__init__(runner, lake)
        self.rows = IntoFiles(folder)
        self.whole = tables.CLASSIFIED.empty_table()
        self.joined = Joined({}, {}, 0)

    def repeats(
        self,
        context: Context,
        messages: pa.Table,
        copies: pa.Table,
        inputs: CauseInputs,
        reduce: Reduce,
        rows: RowsTo | None = None,
    ) -> Joined:
        self.joined = super().repeats(context, messages, copies, inputs, Counting(), self.rows)
        self.whole = super().classify(context, messages, copies, inputs)
        return super().repeats(context, messages, copies, inputs, reduce, rows)

    def check(self) -> None:
        """What the parts said is what the whole says."""
        assert self.rows.read().equals(self.whole)
        counts = self.whole.group_by(["grp", "qid"]).aggregate([("did", "count")]).to_pylist()
        rows = ROWS.rows(self.joined.values)
        assert {(r["grp"], r["qid"]): r["value"] for r in rows} == {
            (r["grp"], r["qid"]): r["did_count"] for r in counts
        }
        dids = DIDS.rows(self.joined.depths)
        assert {r["depth"] for r in dids} <= {1}
        assert sum(r["hi"] - r["lo"] for r in dids) == self.whole.num_rows
