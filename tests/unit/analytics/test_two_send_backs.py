"""Two send-backs of one failed handling: the second copy's cause in the attribution page."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.support.analytics.oracle import Oracle
from tests.support.analytics.oracle_check import assert_agrees
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import RunBuilder

RETRY = "%RETRY%g"


@pytest.mark.parametrize(
    ("answered", "cause"),
    [(True, "SENDBACK_DUP"), (False, "DELAY_REPLAY")],
    ids=["both-answered", "first-answer-lost"],
)
def test_the_second_copy_has_the_cause_that_the_answers_tell(
    tmp_path: Path, answered: bool, cause: str
) -> None:
    builder = RunBuilder("two")
    builder.assign(0, 0)
    builder.assign(0, 0, pqe=2, ptopic=RETRY)
    builder.deliver(0, 10, 15, status="LATER")
    builder.sendback(0, 16, path="BROKER", ok=answered)
    builder.sendback(0, 18, path="PRODUCER")
    for number, at in enumerate((30, 50)):
        builder.deliver(number, at, at + 5, pqe=2, topic=RETRY, lid=0, rt=1)
    repeats = analysed(builder.write(tmp_path / "run", manifest=False)).rows
    found = [row["cause"] for row in repeats.to_pylist() if row["cls"] == "DUP"]
    assert found == [cause]


def handled_again(process: int = 1, *, holdings: int = 2, repeats: int = 1) -> RunBuilder:
    """m0 fails under each holding and is sent back; each retry copy is delivered once, in order.

    ``repeats``: rows of each send-back that say the same.
    """
    b = RunBuilder("again")
    b.assign(0, 0, pqe=100, ptopic=RETRY, proc=9)
    for number in range(holdings):
        start, proc = 60 * number, 1 if number == 0 else process
        b.assign(start, 0, proc=proc, pqe=number + 1, end=(start + 50, "REBALANCE"))
        b.deliver(0, start + 10, start + 15, proc=proc, pqe=number + 1, status="LATER")
        for repeat in range(repeats):
            b.sendback(0, start + 16 + repeat, proc=proc)
    for number in range(holdings):
        at = 1000 + 10 * number
        b.deliver(number, at, at + 5, proc=9, pqe=100, topic=RETRY, lid=0, rt=1)
    return b


@pytest.mark.few(4)
@pytest.mark.parametrize("process", [1, 2], ids=["same-process", "another-process"])
@pytest.mark.parametrize("holdings", [2, 3, 4])
@pytest.mark.parametrize("repeats", [1, 2])
def test_an_echo_of_a_repeat_has_its_cause(
    process: int, holdings: int, repeats: int, tmp_path: Path
) -> None:
    b = handled_again(process, holdings=holdings, repeats=repeats)
    analysis = analysed(b.write(tmp_path / "run", manifest=False))
    rows = analysis.rows.to_pylist()
    causes = Counter(row["cause"] for row in rows if row["cls"] == "DUP")
    assert causes == {"TAIL_REBALANCE": 2 * (holdings - 1)}
    assert sum(row["inherited"] for row in rows) == holdings - 1
    assert sum(row["cls"] == "RETRY" for row in rows) == 1
    assert_agrees(analysis, Oracle(b))


def test_an_echo_may_have_an_echo(tmp_path: Path) -> None:
    """Both retry copies fail in turn, and theirs are delivered."""
    b = handled_again()
    for row in b.rows["deliver"][2:]:
        row["status"] = "LATER"
    for number in range(2):
        b.sendback(0, 1006 + 10 * number, proc=9, rt_next=2)
    for number in range(2, 4):
        at = 2000 + 10 * number
        b.deliver(number, at, at + 5, proc=9, pqe=100, topic=RETRY, lid=0, rt=2)
    analysis = analysed(b.write(tmp_path / "run", manifest=False))
    rows = analysis.rows.to_pylist()
    causes = Counter(row["cause"] for row in rows if row["cls"] == "DUP")
    assert causes == {"TAIL_REBALANCE": 3}
    assert sum(row["inherited"] for row in rows) == 2
    assert_agrees(analysis, Oracle(b))
