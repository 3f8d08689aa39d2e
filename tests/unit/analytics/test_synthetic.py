"""Generated runs: what they are said to hold is what is found, and equal plans give equal bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from failback.analytics.analysis.counting import families
from failback.analytics.report.measures.groups import group_figures
from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.loss import losses_of
from failback.analytics.report.measures.queues import queue_figures
from failback.protocol.errors import ConfigError
from tests.benchmarks.analytics.engine_race import duckdb_counts, is_right, local_counts
from tests.benchmarks.analytics.synthetic import SHAPES, Plan, generate
from tests.support.analytics.run_analysis import analysed

PLANS = {shape: Plan(rows=12_000, groups=2, dup_shape=shape, seed=5) for shape in SHAPES} | {
    "truncated": Plan(rows=12_000, truncations=3, rate_skew="zipf:1.1", seed=6),
    "foreign": Plan(rows=12_000, dup_shape="scattered", foreign_share=0.1, seed=7),
    "two hosts": Plan(rows=12_000, clock_error_ms=300, members=3, jumble=7, seed=8),
    "all at once": Plan(rows=12_000, groups=2, truncations=1, foreign_share=0.02,
                        rate_skew="zipf:1.1", clock_error_ms=200, jumble=1, seed=9),
}  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("name", PLANS)
def test_the_local_engine_finds_the_truth(name: str, tmp_path: Path) -> None:
    truth = generate(PLANS[name], tmp_path / "run")
    figures = Figures(analysed(tmp_path / "run"))
    counts, _ = losses_of(figures)
    assert set(counts) == set(truth["groups"])
    for group, wanted in truth["groups"].items():
        found = group_figures(figures, group, counts)
        assert {key: found[key] for key in ("delivered", "dup", "causes")} == {
            key: wanted[key] for key in ("delivered", "dup", "causes")
        }
        assert {k: v for k, v in counts[group].items() if v} == wanted["fates"]
    queues, truncated = queue_figures(figures)
    assert not truncated
    assert len(queues) == sum(len(group["queues"]) for group in truth["groups"].values())
    for queue in queues:
        wanted = truth["groups"][queue["group"]]["queues"][str(queue["qid"])]
        assert (queue["dup"], queue["epochs"]) == (wanted["dup"], wanted["epochs"])
        assert windows(queue) == windows(wanted)
    assert not any(figures.group_sums(families.AMBIGUOUS).values())


def windows(queue: dict[str, Any]) -> list[tuple[int, int, str]]:
    return sorted((each["lo"], each["hi"], each["cause"]) for each in queue["windows"])


@pytest.mark.few(2)
@pytest.mark.parametrize("name", PLANS)
def test_counts_of_offsets_are_those_of_duckdb_and_of_the_truth(name: str, tmp_path: Path) -> None:
    truth = generate(PLANS[name], tmp_path / "run")
    counted = local_counts(tmp_path / "run", None)
    assert counted == duckdb_counts(tmp_path / "run", None)
    assert is_right(counted, truth)
    counted["g0"]["queues"]["0"]["repeated_offsets"] += 1
    assert not is_right(counted, truth)


def test_equal_plans_give_equal_bytes(tmp_path: Path) -> None:
    files = []
    for folder in ("a", "b"):
        generate(PLANS["all at once"], tmp_path / folder)
        files.append(
            {
                path.relative_to(tmp_path / folder): path.read_bytes()
                for path in (tmp_path / folder).rglob("*")
                if path.is_file()
            }
        )
    assert files[0] == files[1]
    assert Plan(seed=1).run != Plan(seed=2).run


def test_a_process_writes_the_rows_of_many_queues_into_one_file(tmp_path: Path) -> None:
    generate(Plan(rows=4_000, queues=100, seed=2), tmp_path / "run")
    for table in ("deliver", "produce", "scan"):
        files = sorted((tmp_path / "run" / "lake" / f"table={table}").rglob("*.parquet"))
        assert len({path.name.split("-")[1] for path in files}) == len(files)
        rows = [pq.read_table(path, columns=["qid", "seq"], partitioning=None) for path in files]
        assert all(len(set(found.column("qid").to_pylist())) > 1 for found in rows)
        for found in rows:
            seq = sorted(found.column("seq").to_pylist())
            assert seq == list(range(seq[0], seq[0] + len(seq)))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"rows": 0}, "rows"),
        ({"dup_share": 0.9}, "dup_share"),
        ({"dup_shape": "clouds"}, "dup_shape"),
        ({"truncations": 9}, "truncations"),
        ({"rate_skew": "zipf:much"}, "rate_skew"),
        ({"clock_error_ms": 500}, "clock_error_ms"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_by_name(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Plan(**changed)
