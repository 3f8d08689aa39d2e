"""What ``failback predict`` says of the demo holds for the demo that was run."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.demo_run import ARMS, Demo, run_command

pytestmark = pytest.mark.sample


def predicted(demo: Demo, arm: str) -> dict[str, Any]:
    done = run_command("predict", str(demo.run_dir(arm)), "--json", "--top", "0")
    assert done.code == 0, done.output + done.errors
    (case,) = json.loads(done.output)["cases"]
    (found,) = case["predictions"]
    assert found["observed"] == demo.report(arm)["totals"]["dup"]
    return dict(found)


@pytest.mark.parametrize("arm", ARMS)
def test_observed_duplicates_are_not_above_the_predicted_worst_case(demo: Demo, arm: str) -> None:
    found = predicted(demo, arm)
    assert found["observed"] <= found["worst"]


def test_a_consumer_that_stays_was_predicted_to_get_nothing_twice(demo: Demo) -> None:
    assert predicted(demo, "stay")["worst"] == 0


def test_a_handover_s_duplicates_are_of_the_predicted_size_and_causes(demo: Demo) -> None:
    """At a tenth of the timers a pause of the machine counts ten times: the band is widened."""
    found = predicted(demo, "handover")
    assert found["p5"] / 10 <= found["observed"] <= 3 * found["p95"]
    (group,) = demo.report("handover")["groups"]
    assert max(group["causes"], key=group["causes"].get) == max(
        found["causes"], key=found["causes"].get
    )
