"""What statistics say about the row groups of a Parquet file, so that some need not be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The statistics of one row group."""

    metadata: pq.RowGroupMetaData
    places: Mapping[str, int]
    """Where each column is."""

    def span(self, name: str) -> tuple[Any, Any] | None:
        """The least and the greatest value; nothing if they are unknown or some row has none."""
        at = self.places.get(name)
        if at is None:
            return None
        found = self.metadata.column(at).statistics
        if found is None or not (found.has_min_max and found.has_null_count) or found.null_count:
            return None
        return found.min, found.max


Wanted = Callable[[RowGroup], bool]
"""Whether a row group may hold what is looked for: true wherever that is not known."""


def wanted_groups(file: pq.ParquetFile, wanted: Wanted | None) -> list[int]:
    """Numbers of the row groups that are to be read; all of them unless something is ``wanted``."""
    footer = file.metadata
    numbers = range(footer.num_row_groups)
    if wanted is None:
        return list(numbers)
    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    return [number for number in numbers if wanted(RowGroup(footer.row_group(number), places))]
