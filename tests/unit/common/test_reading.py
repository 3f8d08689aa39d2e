"""Numbers that peers and users write as text: what is none is never an error."""

from __future__ import annotations

import pytest

from failback.analytics.exporter.survey import BrokerAnswers
from failback.analytics.report.checks import value_at
from failback.chaos.cluster.broker_facts import boot_time
from failback.common.numbers import signed, whole
from failback.operator.planning.observed.facts import FALL_BEHIND_BYTES, fall_behind_bytes
from failback.operator.planning.observed.observed import Broker

NO_NUMBERS = [
    "", "-", "-5", "--5", "+5", "5 ", "5\n", "1e9", "0x1", "1_000", "nan",
    "\u00b2", "\u0663", "9" * 20, "9" * 5_000,
]  # fmt: skip


@pytest.mark.parametrize("text", ["0", "-1", "007", str(2**63 - 1), str(-(2**63))])
def test_a_whole_number_is_read(text: str) -> None:
    assert signed(text) == int(text)
    assert whole(text) == (None if text.startswith("-") else int(text))


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_what_a_broker_says_instead_of_a_number(text: str) -> None:
    assert whole(text) is None
    assert signed(text) in (None, -5)
    runtime = {"bootTimestamp": text}
    assert fall_behind_bytes(Broker("a:1", {"haSlaveFallbehindMax": text})) == FALL_BEHIND_BYTES
    assert boot_time(runtime) is None
    assert BrokerAnswers("c", "b", 0, "a:1", runtime=runtime).boot_ms == 0


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_path_of_a_figure_with_such_a_part_leads_nowhere(text: str) -> None:
    assert value_at({"groups": [{"group": "g"}]}, f"groups.{text}.dup") is None
