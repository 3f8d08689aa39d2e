"""Two send-backs of one failed handling: the second copy's cause in the attribution page."""

from __future__ import annotations

from pathlib import Path

import pytest

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
    repeats = analysed(builder.write(tmp_path / "run", manifest=False)).repeats
    found = [row["cause"] for row in repeats.to_pylist() if row["cls"] == "DUP"]
    assert found == [cause]
