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
from failback.analytics.analysis.engines.base import Joined, Pass
from failback.analytics.analysis.engines.blocks import BLOCKS
from failback.analytics.analysis.engines.engine import Engine
from failback.analytics.analysis.engines.joins import compacted, join_depths, join_values
from failback.analytics.lake.lake import Lake

SPILL_BYTES: Final = 64 << 20
"""Blocks in memory before all of them go to disk: those of a million candidates, or of several."""

MOST_PARTIALS: Final = 1 << 20
"""Partial rows in memory before those of equal keys become one, 120 bytes each."""


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

    def joined(self) -> Joined:
        found: list[pa.Table] = []
        runs = added = known = 0
        for piece in self._pieces:
            runs += int(pc.sum(pc.equal(piece.column("op"), INTERVAL)).as_py() or 0)
            found.append(piece)
            added += piece.num_rows
            if added > max(MOST_PARTIALS, known):
                found = [compacted(found)]
                added, known = 0, found[0].num_rows
                give_back()
        depths, _ = join_depths(found)
        values = join_values(found)
        del found
        give_back()
        return Joined(values, depths, runs)

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
