"""What a race of the engines measures."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from failback.analytics.jobs import bench
from failback.analytics.synthetic import Plan, generate

pytestmark = pytest.mark.unit

MIB = 1 << 20


def take_and_give_back(size: int) -> None:
    """Have so many bytes resident for a moment."""
    with mmap.mmap(-1, size) as memory:
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1


def test_a_peak_that_is_over_is_forgotten() -> None:
    take_and_give_back(256 * MIB)
    before = bench.peak_mib()
    bench.forget_peaks()
    assert bench.peak_mib() < before - 128
    take_and_give_back(64 * MIB)
    assert bench.peak_mib() > 64


def test_a_lap_has_its_own_peak_and_says_whether_its_answer_is_right(tmp_path: Path) -> None:
    generate(Plan(rows=5_000, queues=2), tmp_path / "run")
    bench.forget_peaks()
    resident = bench.peak_mib()
    take_and_give_back(512 * MIB)
    (best,) = bench.race(tmp_path / "run", ["local-counts"], 2).values()
    assert best.right
    assert 0 < best.peak_mib < resident + 256
    assert best.cpu_seconds > 0
