"""TAIL_RESET is not a cause that our client can bring about: docs/explanation/attribution.md.

A holder that ends by a reset hands nothing out any more. So what repeats was delivered before
the reset, which is OFFSET_RESET, unless a later commit went past it, and then it is a rollback.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.analytics.histories import random_history
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import RunBuilder, merged

HISTORIES = 40


def causes_of(builder: RunBuilder, folder: Path) -> Counter[str | None]:
    classified = analysed(builder.write(folder, manifest=False)).rows
    return Counter(classified.column("cause").to_pylist())


def histories() -> list[RunBuilder]:
    """Every holder that ends, ends by a reset."""
    builders = [random_history(Random(seed), warmup=False) for seed in range(HISTORIES)]
    for builder in builders:
        builder.run["warmup_end_ns"] = None
        for row in builder.rows["assign"]:
            row["end_reason"] = "RESET" if row["end_t"] is not None else None
    return builders


def hand_nothing_out_after_a_reset(builder: RunBuilder) -> None:
    """Take away deliveries that begin after their own holder was reset."""

    def holder(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["ptopic"], row["qid"], row["inc"], row["pqe"]

    ends = {
        holder(row): row["end_t"] for row in builder.rows["assign"] if row["end_reason"] == "RESET"
    }
    builder.rows["deliver"] = [
        row
        for row in builder.rows["deliver"]
        if holder(row) not in ends or row["bt"] <= ends[holder(row)]
    ]


@pytest.mark.full
def test_it_takes_a_holder_that_hands_out_after_its_reset(tmp_path: Path) -> None:
    assert causes_of(merged(histories()), tmp_path / "any")["TAIL_RESET"] > 0
    possible = histories()
    for builder in possible:
        hand_nothing_out_after_a_reset(builder)
    found = causes_of(merged(possible), tmp_path / "possible")
    assert found["OFFSET_RESET"] > 0
    assert found["TAIL_RESET"] == 0
