"""Runs with very many repeats, each of another shape."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.histories import random_history
from tests.support.analytics.run_builder import merged

_PLANS: Final = {
    "windows": Plan(rows=9_000, groups=2, seed=5),
    "scattered": Plan(rows=9_000, groups=2, dup_shape="scattered", dup_share=0.3, seed=5),
    "truncated": Plan(
        rows=9_000, truncations=3, rate_skew="zipf:1.1", dup_share=0.2, foreign_share=0.1, seed=6
    ),
}
SHAPES: Final = (*_PLANS, "histories")


def repeating_run(shape: str, folder: Path) -> Path:
    """Write the run of one of :data:`SHAPES`, and return its folder."""
    if shape in _PLANS:
        generate(_PLANS[shape], folder)
        return folder
    histories = [random_history(Random(seed), warmup=False) for seed in range(20)]
    return merged(histories).write(folder, manifest=False)
