"""Alerts of the chart fire in a real Prometheus because of what real brokers go through.

A master is killed, its slave takes commits meanwhile, and the master comes back with its old file:
the slave's progress is about to be overwritten, then it is.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from tools.dashboards import DASHBOARDS

from tests.support.prometheus_lab import AlertLab

EMPTY = {
    "Overwrite countdown": "over once the slave has copied",
    "In flight": "nobody pulls",
    "Messages out": "nobody pulls",
    "Dead letters": "there are none",
    "Budget burn": "no reports",
    "Consumed again, by cause": "no reports",
    "Share of all deliveries": "no reports",
    "Seconds of handlers wasted": "no reports",
    "Verdicts": "no reports",
    "Phases of a failover": "no reports",
    "Time to report": "no reports",
    "Runs and faults": "no run goes on",
}
"""Panels that have nothing to show in this test, and why."""
ELSEWHERE = {"ingest.json", "operator.json"}
"""Pages about components that do not run here."""
ROUNDS = 5


def expressions() -> list[tuple[str, str]]:
    """Return title and expression of every query of the pages, with its variables filled in."""
    return [
        (panel.title, filled(query))
        for name, page in DASHBOARDS.items()
        if name not in ELSEWHERE
        for panel in page.panels
        for query, _ in panel.queries
    ]


def filled(query: str) -> str:
    return re.sub(r"\$(cluster|pair|topic|consumer_group|namespace|run)\b", ".*", query).replace(
        "$__rate_interval", "1m"
    )


async def until_overwrite_is_announced(lab: AlertLab) -> None:
    """Let the master come back to a slave that knows more, until the alert has seen it.

    The slave may copy at once: then there was nothing to see, and it goes on.
    """
    before = 5000
    for _ in range(ROUNDS):
        await lab.commit(lab.master, before)
        await lab.holds(lab.slave, before)
        await lab.is_in_file(before)
        lab.master.kill()
        await lab.commit(lab.slave, before + 600)
        lab.master.start()
        await lab.holds(lab.slave, before)  # overwritten
        await asyncio.sleep(1)  # the last evaluation
        if "OffsetOverwriteImminent" in await asyncio.to_thread(lab.prometheus.fired):
            return
    raise AssertionError(f"not announced in {ROUNDS} rounds")


@pytest.mark.integration
async def test_what_is_overwritten_is_announced_and_counted(tmp_path: Path) -> None:
    async with AlertLab(tmp_path) as lab:
        await lab.commit(lab.master, 4000)
        await lab.holds(lab.slave, 4000)
        await lab.comes(
            lambda: len(lab.prometheus.query("rocketmq_slave_offset_divergence_messages")) == 2,
            "the exporter's figures",
            seconds=60,
        )
        await asyncio.sleep(5)  # nothing happens
        assert await asyncio.to_thread(lab.prometheus.fired) == set()
        await until_overwrite_is_announced(lab)
        await lab.fires("OffsetRegression")
        rows = await asyncio.to_thread(
            lab.prometheus.query, "sum by (source) (rocketmq_offset_regressions_total)"
        )
        found = {row["metric"]["source"]: float(row["value"][1]) for row in rows}
        assert found["slave_sync"] >= 1
        await dashboards_have_data(lab)


async def dashboards_have_data(lab: AlertLab) -> None:
    silent = []
    for title, query in expressions():
        found: list[Any] = await asyncio.to_thread(lab.prometheus.query, query)
        if not found and title not in EMPTY:
            silent.append((title, query))
    assert silent == []


@pytest.mark.integration
@pytest.mark.soak
async def test_a_file_that_is_not_written_and_a_master_that_is_away_are_told(
    tmp_path: Path,
) -> None:
    async with AlertLab(tmp_path) as lab:
        await lab.commit(lab.master, 4000)
        await lab.is_in_file(4000)
        await lab.holds(lab.slave, 4000)
        (lab.master.store / "config" / "consumerOffset.json.tmp").mkdir()
        await lab.fires("OffsetPersistStale")
        assert "SlaveSyncStale" not in await asyncio.to_thread(lab.prometheus.fired)
        lab.master.kill()
        await lab.fires("SlaveSyncStale")


@pytest.mark.integration
@pytest.mark.soak
async def test_a_fault_without_a_run_is_told(tmp_path: Path) -> None:
    """The ledger is that of a run whose harness was killed."""
    run = tmp_path / "runs" / "r1"
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps({"run": "r1", "experiment": "kill"}))
    entry = {"id": "u0001", "call": "release", "args": {"pod": "pair-0"}, "fid": "f1"}
    (run / "undo.jsonl").write_text(json.dumps(entry) + "\n")
    async with AlertLab(tmp_path / "lab", runs=tmp_path / "runs") as lab:
        await lab.fires("FaultLeftActive")
        healed = json.dumps({"id": "u0001", "healed": {}})
        with (run / "undo.jsonl").open("a") as ledger:
            ledger.write(healed + "\n")
        await lab.comes(
            lambda: not lab.prometheus.query("failback_fault_active"), "the heal", seconds=60
        )
