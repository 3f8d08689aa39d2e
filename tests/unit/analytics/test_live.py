"""Live totals of a queue: any order and any cut gives what counting gives."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.analytics.intervals import layers
from failback.analytics.live import QueueState

pytestmark = pytest.mark.unit

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
