"""Live totals of a queue: any order and any cut gives what counting gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.analytics.analysis.arrays.intervals import layers
from failback.analytics.analysis.counting.queue_state import QueueState
from failback.analytics.jobs import stream
from failback.analytics.lake.lake import open_lake
from failback.analytics.run.folder_reading import read_run_folder
from tests.support.analytics.histories import random_history
from tests.support.analytics.live_totals import batch_totals

batches = st.lists(st.lists(st.integers(0, 60) | st.integers(1 << 40, (1 << 40) + 9)), max_size=6)


def added(state: QueueState, offsets: list[int]) -> QueueState:
    values = np.array(offsets, np.int64)
    runs = layers(np.zeros(values.size, np.int64), values)
    return state.add(runs.lo, runs.hi, runs.weight)


@given(batches)
def test_totals_are_those_of_counting_and_survive_their_bytes(parts: list[list[int]]) -> None:
    state = QueueState()
    for part in parts:
        state = QueueState.decode(added(state, part).encode())
    counts = Counter(offset for part in parts for offset in part)
    assert state.delivered == counts.total()
    assert state.distinct == len(counts)
    assert state.repeated == sum(count - 1 for count in counts.values())
    assert set(state.seen.first(1000)) == set(counts)


def test_a_queue_without_holes_has_a_state_of_a_few_bytes() -> None:
    state = added(QueueState(), list(range(100_000)))
    assert len(state.encode()) < 32
    holes = added(QueueState(), list(range(0, 2000, 2)))
    assert len(holes.encode()) < 10 * 1024


def test_a_state_of_another_version_is_refused() -> None:
    content = bytearray(QueueState().encode())
    content[0] = 9
    with pytest.raises(ValueError, match="version 9"):
        QueueState.decode(bytes(content))


@pytest.mark.parametrize("kept", [0, 5, -1])
def test_a_state_that_is_cut_is_refused(kept: int) -> None:
    with pytest.raises(ValueError, match=r"cut|smaller"):
        QueueState.decode(added(QueueState(), [1, 5]).encode()[:kept])


@pytest.mark.parametrize("seed", range(400, 404))
def test_raw_deliveries_in_any_order_give_the_totals_of_the_reports_engine(
    seed: int, tmp_path: Path
) -> None:
    builder = random_history(Random(seed), warmup=False)
    builder.rows.pop("broker_queue_sample", None)  # without samples no log is known to be cut
    folder = builder.write(tmp_path / "run", parts=4, manifest=False)
    run = read_run_folder(folder)
    lake = open_lake(run.lake, run.run_id)
    chunks = list(lake.chunks("deliver", stream.COLUMNS, 5))
    Random(seed).shuffle(chunks)
    states: dict[tuple[str, ...], QueueState] = {}
    for chunk in chunks:
        for row in stream.runs_of(chunk, run.broadcasting).to_pylist():
            key = tuple(row[name] for name in stream.KEY)
            values = (np.array([row[name]]) for name in ("lo", "hi", "weight"))
            states[key] = states.get(key, QueueState()).add(*values)
    assert {k: (s.delivered, s.distinct, s.repeated) for k, s in states.items()} == batch_totals(
        folder
    )
