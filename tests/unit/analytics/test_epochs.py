"""A copy has one epoch, wherever it is delivered and whoever serves it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.analytics.run.epochs import FOREVER, Queue, QueueEvents, Start, find_events
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import MS, ZERO_WALL_NS, RunBuilder

WALL_MS = ZERO_WALL_NS // MS
QUEUE = Queue("broker-a", "T", 0)


@given(
    boots=st.lists(st.integers(0, 100), unique=True, max_size=4),
    store=st.integers(0, 100),
)
def test_an_epoch_counts_the_starts_before_the_copy(boots: list[int], store: int) -> None:
    events = QueueEvents(tuple(sorted(boots)), tuple(0 for _ in boots), tuple(sorted(boots)))
    assert events.epoch_of(np.array([store])).tolist() == [sum(b <= store for b in boots)]


def test_a_copy_lives_until_an_event_cuts_at_or_below_it() -> None:
    events = QueueEvents((10, 20), (5, 3), (10, 20))
    offsets, epochs = np.array([2, 3, 4, 5, 9, 9]), np.array([0, 0, 0, 0, 0, 2])
    assert events.last_epoch_of(offsets, epochs).tolist() == [FOREVER, 1, 1, 0, 0, FOREVER]


def test_a_master_that_starts_with_all_it_had_is_no_event() -> None:
    starts = [Start("broker-a", 50, 500)]
    assert not find_events(starts, {(QUEUE, 50): 7}, {(QUEUE, 50): 7})
    found = find_events(starts, {(QUEUE, 50): 6}, {(QUEUE, 50): 7})
    assert found[QUEUE] == QueueEvents((50,), (6,), (500,))


def reused(missed: bool) -> RunBuilder:
    """Offsets 3 and 4 are delivered, lost by the master, and used again by other messages."""
    b = RunBuilder("reuse")
    b.assign(0, 0, end=(100, "REBALANCE"))
    b.run_of(range(5), 10)
    if not missed:
        b.queue_sample(50, 5, binc=WALL_MS - 1000)
        b.queue_sample(150, 3, binc=WALL_MS + 140)
    b.assign(200, 3, proc=2)
    for qoff in (3, 4):
        b.deliver(qoff, 210, 215, proc=2, lid=qoff + 30, omid=qoff + 300, store_ms=WALL_MS + 180)
    return b


def test_a_seen_truncation_keeps_the_messages_apart(tmp_path: Path) -> None:
    analysis = analysed(reused(missed=False).write(tmp_path / "r"))
    assert not analysis.rows.num_rows
    assert analysis.history.events[QUEUE].cut == (3,)


def test_a_missed_truncation_is_a_conflict_and_no_duplicate(tmp_path: Path) -> None:
    from failback.analytics.report.measures.lookups import Figures
    from failback.analytics.report.measures.offsets import divergence_figures

    analysis = analysed(reused(missed=True).write(tmp_path / "r"))
    assert set(analysis.rows.column("cls").to_pylist()) == {"PRIMARY"}
    found = divergence_figures(Figures(analysis))
    assert (found["conflicts"], found["truncation_artefacts"]) == (2, 2)


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", range(5))
def test_a_spurious_event_splits_no_copy(tmp_path: Path, seed: int) -> None:
    r = Random(seed)
    with_event, without = RunBuilder("a"), RunBuilder("a")
    for b in (with_event, without):
        r = Random(seed)
        b.assign(0, 0, end=(100, "REBALANCE"))
        b.run_of(range(6), 10)
        b.assign(200, 2, proc=2)
        b.run_of(range(2, 6), 210, proc=2)
        b.commit(60, r.randrange(6))
    # The sampler was wrong about the maximum: nothing was lost.
    with_event.queue_sample(50, 9, binc=WALL_MS - 1000)
    with_event.queue_sample(150, 6 + r.randrange(2), binc=WALL_MS + 140)
    found = [analysed(b.write(tmp_path / str(i))) for i, b in enumerate((with_event, without))]
    assert found[0].history.events
    classes = [Counter(a.rows.column("cls").to_pylist()) for a in found]
    assert classes[0] == classes[1] == Counter(PRIMARY=4, DUP=4)
