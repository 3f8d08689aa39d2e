"""What a collector says of its runs and processes is what it received."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.analytics.ingest_lab import (
    BACKLOG,
    OPEN_RUN,
    WHOLE_RUN,
    IngestLab,
    filled_collector,
    proc_of,
)


@pytest.fixture(scope="module")
def received(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IngestLab]:
    with filled_collector(tmp_path_factory.mktemp("collector")) as lab:
        yield lab


def told(received: IngestLab, path: str) -> dict[str, Any]:
    status, document, _ = received.collector.ask("GET", path)
    assert status == 200, document
    return document


def test_every_process_has_what_was_sent_of_it(received: IngestLab) -> None:
    for (run, number), truth in received.truth.items():
        found = proc_of(told(received, f"/v1/runs/{run}/procs"), number)
        wanted = truth.figures(received.collector.lake)
        assert {name: found[name] for name in wanted} == wanted
        assert (found["host"], found["role"]) == ("h", "consumer")
        assert found["heard_ms"] > 0
    second = proc_of(told(received, f"/v1/runs/{OPEN_RUN}/procs"), 2)
    assert second["missing"] > 0
    assert (second["quarantined"], second["backlog_bytes"]) == (1, BACKLOG)


def test_a_run_is_the_sum_of_its_processes(received: IngestLab) -> None:
    assert told(received, "/v1/store")["refuses"] is None
    runs = {each["run"]: each for each in told(received, "/v1/runs")["runs"]}
    assert set(runs) == {OPEN_RUN, WHOLE_RUN}
    for name, run in runs.items():
        procs = told(received, f"/v1/runs/{name}/procs")["procs"]
        for figure in ("segments", "bytes", "deliveries", "missing", "quarantined"):
            assert run[figure] == sum(each[figure] for each in procs), figure
    assert (runs[WHOLE_RUN]["closed"], runs[OPEN_RUN]["closed"]) == (True, False)


def test_processes_come_in_pages(received: IngestLab) -> None:
    path = f"/v1/runs/{OPEN_RUN}/procs?limit=1"
    first = told(received, path)
    second = told(received, f"{path}&cursor={first['next']}")
    assert [each["proc_no"] for each in first["procs"] + second["procs"]] == [1, 2]
    assert second["next"] is None
    assert received.collector.ask("GET", "/v1/runs/nothing/procs")[0] == 404
