"""Memory that the small tables take does not depend on how long a run was."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest

from failback.analytics.run.history import History
from failback.analytics.run.history_reading import read_history
from failback.analytics.run.run_source import source_at
from failback.analytics.run.small_tables import reductions
from tests.support.analytics.long_runs import QUEUES, long_run

MIB = 1 << 20
BYTES_PER_CHUNK_ROW = 500
"""One chunk with its columns as numbers, sorted, and the chunk that is read meanwhile."""
KEPT_PER_QUEUE = 20


def read(folder: Path) -> tuple[History, int]:
    """The history of a run, and the most bytes that numpy, Python and Arrow held meanwhile."""
    source = source_at(folder)
    usual, threads = pa.default_memory_pool(), pa.cpu_count()
    pool = pa.proxy_memory_pool(usual)
    pa.set_memory_pool(pool)
    pa.set_cpu_count(1)  # how much is decoded at a time depends on the machine's load, else
    tracemalloc.start()
    try:
        history = read_history(source.folder, source.lake)
        return history, tracemalloc.get_traced_memory()[1] + (pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_cpu_count(threads)
        pa.set_memory_pool(usual)


def kept(history: History) -> int:
    """Rows that are held of tables that grow with the run."""
    samples = sum(len(found) for found in history.samples.values())
    polls = sum(len(found) for found in history.polls.values())
    return samples + polls + len(history.queue_samples) + len(history.routes)


@pytest.mark.full
@pytest.mark.parametrize(
    ("looks", "chunk"),
    [(20_000, 1 << 14), pytest.param(500_000, reductions.CHUNK_ROWS, marks=pytest.mark.soak)],
)
def test_a_run_of_twice_the_length_takes_as_much(
    looks: int, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reductions, "CHUNK_ROWS", chunk)
    monkeypatch.setattr(reductions, "FOLD_ROWS", chunk)
    (short, first), (long, second) = (
        read(long_run(tmp_path / str(times), times * looks)) for times in (1, 2)
    )
    assert kept(short) == kept(long) <= KEPT_PER_QUEUE * QUEUES
    assert long.end_of(long.assignments[0].key.queue, 0) == 9 * (2 * looks - 1)
    assert long.longest_pause == 1_000_000_000
    bound = BYTES_PER_CHUNK_ROW * chunk + 4 * MIB
    assert max(first, second) < bound, (first, second, bound)
    assert second < 1.3 * first, (first, second)
