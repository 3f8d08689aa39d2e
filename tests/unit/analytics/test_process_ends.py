"""A killed consumer is gone, whoever tells it: its uncommitted tail is TAIL_CRASH."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.analytics.histories import random_history_seen_by_witnesses
from tests.support.analytics.oracle import Oracle
from tests.support.analytics.oracle_check import assert_agrees
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import MS, RunBuilder
from tests.support.common.counts import each_seed

A = (1).to_bytes(16, "big").hex()
CLIENT: dict[str, Any] = {"addr": None, "broker": None, "bid": None, "role": None, "pair": None}
AS_UUID = f"{A[:8]}-{A[8:12]}-{A[12:16]}-{A[16:20]}-{A[20:]}".upper()


def killed(
    *steps: dict[str, Any], exits: dict[str, int] | None = None, closed: bool = True
) -> RunBuilder:
    """Two messages uncommitted by process 1, which ended; process 2 takes the queue at 150 ms."""
    b = RunBuilder("killed")
    b.assign(0, 0)
    b.run_of(range(3), 10)
    b.deliver(3, 40)
    b.commit(35, 2)
    b.assign(150, 2, proc=2, at=(0, 1))
    b.run_of((2, 3), 160, proc=2)
    assert b.closed is not None
    b.closed["exits"] = {proc: {"signal": 9, "t_ns": t * MS} for proc, t in (exits or {}).items()}
    if not closed:
        b.closed = None
    for step in steps:
        b.fault(**{"kind": "CLIENT_KILL", "t": 100, **CLIENT, **step})
    return b


def causes(b: RunBuilder, folder: Path) -> dict[str, int]:
    found = analysed(b.write(folder)).rows.to_pylist()
    return dict(Counter(row["cause"] for row in found if row["cls"] == "DUP"))


TOLD: dict[str, RunBuilder] = {
    "hex": killed({"proc_ref": A}),
    "upper-case": killed({"proc_ref": AS_UUID}),
    "number": killed({"detail": json.dumps({"proc_no": 1})}),
    "detail-hex": killed({"detail": json.dumps({"proc": A, "planned": False})}),
    "reference-of-a-pod": killed({"proc_ref": "p/7/12", "detail": json.dumps({"proc_no": 1})}),
    "terminated": killed({"kind": "CLIENT_TERM", "proc_ref": A}),
    "wait-status": killed(exits={"1": 100}),
    "both": killed({"proc_ref": A}, exits={"1": 101}),
    "seen-before-waited-for": killed({"proc_ref": A}, exits={"1": 200}),
    "waited-for-before-seen": killed({"proc_ref": A, "t": 200}, exits={"1": 100}),
    "seen-twice": killed({"proc_ref": A, "t": 200}, {"proc_ref": A}),
    "harness-died": killed({"proc_ref": A}, closed=False),
}
NOT_TOLD: dict[str, RunBuilder] = {
    "nothing": killed(),
    "another-process": killed({"proc_ref": (2).to_bytes(16, "big").hex()}),
    "nobody-saw-it": killed({"proc_ref": A, "observed": None}),
    "only-started": killed({"kind": "CLIENT_START", "proc_ref": A}),
    "a-broker": killed({"kind": "KILL", "proc_ref": "b/1/2"}),
    "unreadable-detail": killed({"detail": "{"}),
    "detail-of-another-kind": killed({"detail": "[1]"}),
    "a-flag-for-a-number": killed({"detail": json.dumps({"proc_no": True})}),
    "later-than-the-next-owner": killed({"proc_ref": A, "t": 151}),
}


SPELT_AS_CLIENTS_DO = sorted(
    TOLD.keys() - {"upper-case", "detail-hex"} | {"only-started", "nobody-saw-it"}
)


@pytest.mark.few(4)
@pytest.mark.parametrize("name", TOLD)
def test_either_source_gives_the_end(name: str, tmp_path: Path) -> None:
    assert causes(TOLD[name], tmp_path / "run") == {"TAIL_CRASH": 2}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", NOT_TOLD)
def test_who_was_not_seen_to_end_holds_its_queue(name: str, tmp_path: Path) -> None:
    assert causes(NOT_TOLD[name], tmp_path / "run") == {"OVERLAP": 2}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", SPELT_AS_CLIENTS_DO)
def test_the_oracle_says_so_too(name: str, tmp_path: Path) -> None:
    builder = (TOLD | NOT_TOLD)[name]
    assert_agrees(analysed(builder.write(tmp_path / "run")), Oracle(builder))


def test_an_end_that_a_client_logged_stands(tmp_path: Path) -> None:
    b = killed({"proc_ref": A})
    b.add("assign_end", proc=1, inc=1, pqe=1, broker="broker-a", ptopic="T", qid=0, end_t=60,
          end_reason="SHUTDOWN")  # fmt: skip
    assert causes(b, tmp_path / "run") == {"TAIL_SHUTDOWN": 2}


def test_a_member_that_was_seen_to_go_is_alive_no_more(tmp_path: Path) -> None:
    """The new owner saw one member of one: nothing partial about that view."""
    b = killed({"proc_ref": A})
    b.add("rebalance", proc=2, grp="g", inc=2, ltopic="T", t=149, trigger="TIMER",
          members=["c2"], queues=1, result=1)  # fmt: skip
    taken = [a for a in analysed(b.write(tmp_path / "run")).history.assignments if a.inc == 2]
    assert [a.partial_view for a in taken] == [False]


@pytest.mark.full
@each_seed(25)
def test_random_histories_with_witnesses_agree(seed: int, tmp_path: Path) -> None:
    builder = random_history_seen_by_witnesses(Random(seed))
    written = builder.write(tmp_path / str(seed), manifest=False)
    assert_agrees(analysed(written), Oracle(builder))
