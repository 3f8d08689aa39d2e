"""What was freed leaves the process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from failback.analytics.analysis.arrays.memory import give_back

MIB = 1 << 20


def resident() -> int:
    """Bytes of this process in memory: proc(5), ``statm``, pages."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_what_malloc_and_arrow_kept_is_given_back() -> None:
    # Pieces too small for pages of their own; the last one lies above all others and stays.
    pieces = [np.ones(8_000) for _ in range(4_000)]
    last = np.ones(8_000)
    arrow = [pa.array(np.ones(8_000)).take(pa.array(np.arange(8_000))) for _ in range(2_000)]
    full = resident()
    del pieces, arrow
    give_back()
    assert last.size
    assert full - resident() > 300 * MIB
