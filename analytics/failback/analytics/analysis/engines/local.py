"""The local runner: pyarrow reads, numpy counts, one process, chunk by chunk."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final, Self

import pyarrow as pa
import pyarrow.compute as pc

from failback.analytics.analysis.arrays.memory import give_back
from failback.analytics.analysis.counting.families import INTERVAL
from failback.analytics.analysis.counting.partials.sums import SCHEMA
from failback.analytics.analysis.engines.base import Joined, Pass
from failback.analytics.analysis.engines.condensing import buckets, cut
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.joins import compacted, condensed, join_values, swept_runs
from failback.analytics.analysis.engines.row_blocks import BLOCKS, split, unpacked
from failback.analytics.lake.lake import Lake

SPILL_BYTES: Final = 64 << 20
"""Blocks in memory before all of them go to disk: those of a million candidates, or of several."""

MOST_PARTIALS: Final = 1 << 19
"""Partial rows in memory before those of equal keys become one, 120 bytes each."""

BUCKETS: Final = 256
"""Files of ranges that are too many: of so many blocks of numbers each is worked on alone."""


def local_engine(lake: Lake) -> Engine:
    """An engine that works in this process."""
    return Engine(LocalRunner(lake), lake)


class LocalRunner:
    """Works through the lake in chunks of a million rows."""

    name = "local"
    parallelism = 1

    def __init__(self, lake: Lake, spill_bytes: int = SPILL_BYTES) -> None:
        """Keep at most about ``spill_bytes`` of grouped rows in memory."""
        self._lake = lake
        self._spill_bytes = spill_bytes

    def mapped(self, passes: Sequence[Pass], schema: pa.Schema) -> LocalRows:
        return LocalRows(self._chunks(passes), schema, self._spill_bytes)

    def _chunks(self, passes: Sequence[Pass]) -> Iterator[pa.Table]:
        for each in passes:
            for chunk in self._lake.chunks(each.table, each.columns, wanted=each.wanted):
                yield each.function(chunk)


class LocalRows:
    """Tables, one by one; made when they are asked for."""

    def __init__(self, pieces: Iterable[pa.Table], schema: pa.Schema, spill_bytes: int) -> None:
        self._pieces = pieces
        self._schema = schema
        self._spill_bytes = spill_bytes

    def whole(self) -> pa.Table:
        found = pa.concat_tables([self._schema.empty_table(), *self._pieces])
        give_back()  # what chunks have left
        return found

    def values(self) -> dict[str, pa.Table]:
        return join_values(list(self._pieces))

    def joined(self, condense: Callable[[pa.Table], pa.Table]) -> Joined:
        runs = 0
        values = _Few()
        with contextlib.ExitStack() as spilled:
            ranges = _Ranges(spilled, self._spill_bytes)
            for piece in self._pieces:
                is_range = pc.equal(piece.column("op"), INTERVAL)
                mine = piece.filter(is_range)
                runs += mine.num_rows
                ranges.add(mine)
                values.add(piece.filter(pc.invert(is_range)))
            for depths in ranges:
                values.add(condense(depths))
        found = values.whole()
        give_back()
        joined, depths = condensed(found)
        return Joined(joined, depths, runs)

    def by_part(self, function: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> Self:
        return type(self)(self._parts(function), schema, self._spill_bytes)

    def and_(self, other: Self) -> Self:
        return type(self)(chain(self._pieces, other._pieces), self._schema, self._spill_bytes)

    def _parts(self, function: Callable[[pa.Table], pa.Table]) -> Iterator[pa.Table]:
        with contextlib.ExitStack() as spilled:
            parts = _Parts(spilled, self._spill_bytes)
            for piece in self._pieces:
                parts.add(piece)
            give_back()
            for part in parts:
                yield function(part)


class _Few:
    """Partial rows; those of equal keys become one when they are many."""

    def __init__(self) -> None:
        self._found: list[pa.Table] = []
        self._added = self._known = 0

    def add(self, piece: pa.Table) -> None:
        self._found.append(piece)
        self._added += piece.num_rows
        if self._added > max(MOST_PARTIALS, self._known):
            self._found = [compacted(self._found)]
            self._added, self._known = 0, self._found[0].num_rows
            give_back()

    def whole(self) -> list[pa.Table]:
        """All of it; nothing is kept."""
        found, self._found = self._found, []
        return found

    @property
    def rows(self) -> int:
        return self._added + self._known


class _Ranges:
    """Interval rows: in memory while they are few, else by blocks of numbers, on disk."""

    def __init__(self, stack: contextlib.ExitStack, most_bytes: int) -> None:
        self._here = _Few()
        self._parts = _Parts(stack, most_bytes)
        self._spilled = False

    def add(self, ranges: pa.Table) -> None:
        """Take interval rows in (``sums.SCHEMA``)."""
        self._here.add(ranges)
        if self._here.rows > 2 * MOST_PARTIALS:
            self._spill()

    def _spill(self) -> None:
        found = pa.concat_tables([SCHEMA.empty_table(), *self._here.whole()])
        self._here = _Few()
        self._spilled = True
        ranges = cut(found)
        self._parts.add(split(ranges, buckets(ranges, BUCKETS)))

    def __iter__(self) -> Iterator[pa.Table]:
        """Depths (``tables.DEPTHS``), all of some blocks at a time."""
        if self._spilled:
            self._spill()
            for part in self._parts:
                yield swept_runs(pa.concat_tables(unpacked(part)))
            return
        found = pa.concat_tables([SCHEMA.empty_table(), *self._here.whole()])
        if found.num_rows:
            yield swept_runs(found)


class _Parts:
    """Blocks by part: in memory, or in one file for each part if they are too many."""

    def __init__(self, spilled: contextlib.ExitStack, most_bytes: int) -> None:
        """Files are gone when ``spilled`` ends."""
        self._stack = spilled
        self._most = most_bytes
        self._here: list[pa.Table] = []
        self._bytes = 0
        self._files: dict[int, Path] = {}

    def add(self, found: pa.Table) -> None:
        """Take blocks in (``blocks.BLOCKS``)."""
        self._here.append(found)
        self._bytes += found.nbytes
        if self._bytes > self._most:
            self._spill()

    def _spill(self) -> None:
        for number, part in self._of_each():
            with self._file(number).open("ab") as file, pa.ipc.new_stream(file, BLOCKS) as writer:
                writer.write_table(part)
        self._here, self._bytes = [], 0
        give_back()

    @cached_property
    def _folder(self) -> Path:
        made = tempfile.TemporaryDirectory(prefix="failback-parts-")
        return Path(self._stack.enter_context(made))

    def _file(self, number: int) -> Path:
        return self._files.setdefault(number, self._folder / f"{number}.arrow")

    def _of_each(self) -> Iterator[tuple[int, pa.Table]]:
        whole = pa.concat_tables([BLOCKS.empty_table(), *self._here])
        for number in sorted(pc.unique(whole.column("part")).to_pylist()):
            yield number, whole.filter(pc.equal(whole.column("part"), number))

    def __iter__(self) -> Iterator[pa.Table]:
        """All blocks of each part, part by part."""
        if not self._files:
            yield from (part for _, part in self._of_each())
            return
        self._spill()
        for number in sorted(self._files):
            path = self._files.pop(number)
            yield pa.concat_tables(_streams(path))
            path.unlink()


def _streams(path: Path) -> Iterator[pa.Table]:
    """The tables of a file of Arrow streams, one behind the other."""
    with pa.OSFile(str(path)) as file:
        while file.tell() < file.size():
            yield pa.ipc.open_stream(file).read_all()
