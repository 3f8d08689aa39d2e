"""Where the classified deliveries of a run go, for a person who wants to see them one by one."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from failback.analytics.lake.store import StoreAddress


@dataclass(frozen=True, slots=True)
class RowsInFiles:
    """A folder of Parquet files, one per part of the rows: an ``engines.repeats.RowsTo``."""

    store: StoreAddress
    folder: str
    """Below the store's root."""
    group: str | None = None
    """Only the rows of this group; of all groups by default."""

    def clear(self) -> None:
        """Remove what an earlier analysis has left there."""
        self.store.open().delete_folder(self.folder)

    def write(self, part: pa.Table) -> None:
        """Write the rows of a part (``tables.ATTRIBUTED``), which no other part has.

        A task that is repeated writes the same file again.
        """
        if self.group is not None:
            part = part.filter(pc.equal(part.column("grp"), self.group))
        if not part.num_rows:
            return
        sink = pa.BufferOutputStream()
        pq.write_table(part, sink, compression="zstd")
        first = pc.min(part.column("did")).as_py()
        name = f"{self.folder}/part-{first & (1 << 64) - 1:016x}.parquet"
        self.store.open().write(name, sink.getvalue())
