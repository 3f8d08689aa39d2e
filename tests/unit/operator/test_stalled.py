"""``Stalled`` as kstatus reads it, and what a pass that died leaves behind."""

from __future__ import annotations

from typing import Any

import pytest

from failback.operator.planning.plan.stalled import with_stalled

NOW = 1_700_000_000.0


def entry(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "observedGeneration": 1,
        "lastTransitionTime": "2023-01-01T00:00:00Z",
    }


def judged(wanted: dict[str, Any], before: dict[str, Any] | None = None, failure: str = "") -> Any:
    return with_stalled(before or {}, wanted, now=NOW, generation=2, failure=failure)


def kstatus(status: dict[str, Any]) -> str:
    """What kstatus makes of a custom resource of generation 2."""
    if status.get("observedGeneration", 2) != 2:
        return "InProgress"
    for each in status["conditions"]:
        if each["type"] == "Reconciling" and each["status"] == "True":
            return "InProgress"
        if each["type"] == "Stalled" and each["status"] == "True":
            return "Failed"
    return "Current"


@pytest.mark.parametrize(
    "reason", ["InvalidSpec", "NameTaken", "Duplicate", "Rejected", "ApplyFailed"]
)
def test_what_only_a_person_ends_has_failed(reason: str) -> None:
    conditions = [entry("Ready", "False", reason, "why"), entry("Reconciling", "True", "Children")]
    found = judged({"observedGeneration": 1, "conditions": conditions})
    assert kstatus(found) == "Failed"
    by_type = {each["type"]: each for each in found["conditions"]}
    assert (by_type["Stalled"]["reason"], by_type["Stalled"]["message"]) == (reason, "why")


def test_what_goes_on_by_itself_has_not_failed() -> None:
    conditions = [entry("Ready", "False", "MasterDown")]
    wanted = {"observedGeneration": 1, "conditions": conditions}
    assert judged(wanted) == wanted, "nothing is written for nothing"
    before = judged({"conditions": [entry("Ready", "False", "InvalidSpec")]})
    after = judged({**before, "observedGeneration": 2, "conditions": conditions}, before)
    assert kstatus(after) == "Current"


def test_an_end_that_failed_has_failed() -> None:
    switch = {"phase": "Failed", "conditions": [entry("Failed", "True", "TimedOut", "late")]}
    assert kstatus(judged(switch)) == "Failed"
    report = {"phase": "Failed", "conditions": [entry("Complete", "False", "JobFailed")]}
    assert kstatus(judged(report)) == "Failed"


def test_a_pass_that_died_knows_nothing_of_ready() -> None:
    before = {"observedGeneration": 2, "conditions": [entry("Ready", "True", "AllReady")]}
    found = judged(before, before, failure="KeyError: 'mode'")
    by_type = {each["type"]: each for each in found["conditions"]}
    assert (by_type["Stalled"]["reason"], by_type["Stalled"]["message"]) == (
        "PassFailed",
        "KeyError: 'mode'",
    )
    assert (by_type["Ready"]["status"], by_type["Ready"]["reason"]) == ("Unknown", "PassFailed")
    again = judged(found, found, failure="KeyError: 'mode'")
    assert again == found, "the next pass that dies writes nothing"
