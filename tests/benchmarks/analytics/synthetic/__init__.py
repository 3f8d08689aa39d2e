"""Runs of any size with known answers: for tests of the engines and for races between them.

:func:`generate` writes a whole run folder, file by file in constant memory, and ``truth.json``:
per group and queue the duplicates by cause, windows, epochs and fates, known by construction.
Equal arguments give equal bytes.
"""

from tests.benchmarks.analytics.synthetic.generate import generate
from tests.benchmarks.analytics.synthetic.plan import SHAPES, Plan

__all__ = ["SHAPES", "Plan", "generate"]
