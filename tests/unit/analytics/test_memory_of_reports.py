"""Memory of a whole report whose repeats are a range each: it grows by less than they do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from failback.analytics.analysis.counting.partials import resolution
from failback.analytics.analysis.engines import base, candidates, condensing, engine, local
from failback.analytics.lake.lake import CHUNK_ROWS, Lake
from failback.analytics.report.make_report import report_many
from tests.benchmarks.analytics.engine_race import answer_of, is_right
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.processes.peak_memory import peak_memory

MIB = 1 << 20
ROWS = 150_000
SCALE = 16
"""By so much what is kept in memory is less than it is for users, as runs are smaller."""


def report(payload: bytes) -> None:
    """Report on a run folder and hold the answer against the truth."""
    folder, every_range = json.loads(payload)
    never = 1 << 40
    for module, name, value in (
        (local, "MOST_PARTIALS", never if every_range else local.MOST_PARTIALS // SCALE),
        (condensing, "MOST_RANGES", never if every_range else condensing.MOST_RANGES // SCALE),
        (condensing, "BLOCK_BITS", condensing.BLOCK_BITS - SCALE.bit_length() + 1),
        (engine, "PART_ROWS", base.PART_ROWS // SCALE),
        (resolution, "EXACT_CANDIDATES", resolution.EXACT_CANDIDATES // SCALE),
        (candidates, "PIECE_ROWS", candidates.PIECE_ROWS // SCALE),
        (Lake.chunks, "__defaults__", (None, CHUNK_ROWS // SCALE, None)),
    ):
        setattr(module, name, value)
    (paths,) = report_many([folder], "local", pages=False)
    truth = json.loads(Path(folder, "truth.json").read_text())
    assert is_right(answer_of(json.loads(paths.json.read_text())), truth)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_four_times_as_many_scattered_repeats_take_about_the_same(tmp_path: Path) -> None:
    peaks: dict[tuple[int, bool], float] = {}
    for rows, every_range in ((ROWS, False), (4 * ROWS, False), (4 * ROWS, True)):
        folder = tmp_path / f"{rows}"
        if not folder.exists():
            plan = Plan(rows=rows, queues=2, dup_share=0.3, dup_shape="scattered")
            generate(plan, folder)
        with peak_memory(f"{__name__}:report") as child:
            found = child.measure(json.dumps([str(folder), every_range]).encode())
        assert found.error == ""
        peaks[rows, every_range] = found.peak_bytes / MIB
    few, many, ranges = peaks.values()
    assert many < 1.6 * few
    assert ranges > 2 * many  # what is measured is there
