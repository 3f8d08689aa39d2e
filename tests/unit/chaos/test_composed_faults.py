"""Faults that are made of others become kills and restarts that wait for each other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from failback.chaos.experiment.generate import generate, validate
from failback.chaos.experiment.model import Fault
from failback.chaos.experiment.spec import ChaosExperiment
from failback.chaos.faults.catalogue import parse_experiment
from failback.protocol.errors import ConfigError

BOTH = {"pair": "demo-0", "group": "billing"}


def experiment(*faults: dict[str, Any], group: dict[str, Any] | None = None) -> ChaosExperiment:
    document = {
        "apiVersion": "failback.dev/v1alpha1",
        "kind": "ChaosExperiment",
        "metadata": {"name": "made-of-others"},
        "spec": {
            "clusterRef": {"name": "demo"},
            "workload": {
                "topics": [{"name": "orders"}],
                "groups": [{"name": "billing", "topic": "orders", **(group or {})}],
            },
            "faults": list(faults),
        },
    }
    return parse_experiment(json.dumps(document))


def parts(*faults: dict[str, Any]) -> dict[str, Fault]:
    return {each.id: each for each in experiment(*faults).arms[0].faults}


def refusal(*faults: dict[str, Any], group: dict[str, Any] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        experiment(*faults, group=group)
    return str(caught.value)


def fault(name: str, target: dict[str, Any] | None = None, **given: Any) -> dict[str, Any]:
    return {"id": "f1", "fault": name, "at": 7, "target": target or BOTH, "with": given}


def test_consumers_restart_after_the_return() -> None:
    found = parts(fault("kill-then-restart-consumers", downSeconds=12))
    assert list(found) == ["f1", "f1-consumers"]
    kill, consumers = found.values()
    assert (kill.fault, kill.at, kill.with_) == ("kill", 7, {"downSeconds": 12})
    assert kill.target.group == ""
    assert (consumers.fault, consumers.at, consumers.target.group) == (
        "kill-consumer",
        0.5,
        "billing",
    )
    assert consumers.with_ == {"signal": "KILL", "after": "accept:f1", "restartAfterSeconds": 1.0}


def test_consumers_restart_inside_the_outage() -> None:
    found = parts(fault("kill-and-restart-consumers-during", consumerSignal="TERM"))
    assert found["f1"].with_ == {"downSeconds": 60.0}
    assert found["f1-consumers"].at == 20
    assert found["f1-consumers"].with_["after"] == "gone:f1"
    assert found["f1-consumers"].with_["signal"] == "TERM"


def test_each_further_kill_waits_for_the_return_from_the_one_before() -> None:
    found = parts(fault("double-kill", {"pair": "demo-0"}, times=3, downSeconds=2))
    assert [(each.id, each.at, each.with_.get("after")) for each in found.values()] == [
        ("f1", 7, None),
        ("f1-again-1", 8, "accept:f1"),
        ("f1-again-2", 8, "accept:f1-again-1"),
    ]
    assert {each.target.role for each in found.values()} == {None}


def test_the_second_kill_can_hit_the_other_broker() -> None:
    found = parts(fault("double-kill", {"pair": "demo-0"}, times=3, second="Slave"))
    assert [each.target.role for each in found.values()] == [None, "slave", None]


def test_others_wait_for_the_first_kill_by_its_name() -> None:
    later = {
        "id": "f2",
        "fault": "kill-consumer",
        "target": {"group": "billing"},
        "with": {"after": "registered:f1"},
    }
    found = experiment(fault("double-kill", {"pair": "demo-0"}), later)
    method = generate(found, found.arms[0], 0, run_dir="x")
    validate(method)
    names = [each["name"] for each in method["method"]]
    assert names.index("f2-kill-consumer") > names.index("f1-kill")
    assert "f1-again-1-kill" in names


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            fault("kill-then-restart-consumers", {"pair": "demo-0"}),
            "spec.faults[0].target.group: is required",
        ),
        (
            fault("long-outage", {"group": "billing"}),
            "spec.faults[0].target.pair: give either pair or pairSelector",
        ),
        (
            fault("long-outage", {"pair": "demo-0", "group": "biling"}),
            'spec.faults[0].target.group: unknown "biling", did you mean "billing"',
        ),
        (
            fault("long-outage", downSeconds=4, returnAfterStopSeconds=5),
            "spec.faults[0].with.returnAfterStopSeconds: must be at most downSeconds, 4 (got 5)",
        ),
        (
            fault("kill-and-restart-consumers-during", consumerAtSeconds=60),
            "spec.faults[0].with.consumerAtSeconds: must be less than downSeconds, 60 (got 60)",
        ),
        (
            fault("kill-then-restart-consumers", consumerSignal="STOP"),
            'spec.faults[0].with.consumerSignal: unknown "STOP"',
        ),
        (
            fault("double-kill", {"pair": "demo-0"}, times=17),
            "spec.faults[0].with.times: must be a whole number from 1 to 16 (got 17)",
        ),
        (
            fault("double-kill", {"pair": "demo-0"}, second="other"),
            'spec.faults[0].with.second: unknown "other"',
        ),
        (
            fault("replace-offset-file", {"pair": "demo-0"}, content="old"),
            'spec.faults[0].with.content: unknown "old", did you mean "Older"',
        ),
        (
            fault("slow-handler", {"group": "billing"}),
            "spec.faults[0].with: changes nothing: give delayMs, failRatio or throwRatio",
        ),
        (
            fault("slow-handler", {"group": "billing"}, delayMs="50ms"),
            "spec.faults[0].with.delayMs: must be a number of milliseconds from 0 to 86400000",
        ),
        (
            fault("slow-handler", {"group": "billing"}, failRatio=1.5),
            "spec.faults[0].with.failRatio: must be a number from 0 to 1 (got 1.5)",
        ),
        (
            fault("slow-handler", {"group": "billing"}, throwRatio=0.5),
            "spec.faults[0].with.throwRatio: maxReconsumeTimes of billing must be 0 to 3",
        ),
    ],
)
def test_what_cannot_be_injected_is_refused_by_its_field(
    written: dict[str, Any], message: str
) -> None:
    assert message in refusal(written)


def test_shares_of_a_failing_handler_are_one_at_most() -> None:
    written = fault("slow-handler", {"group": "billing"}, failRatio=0.6, throwRatio=0.6)
    said = refusal(written, group={"maxReconsumeTimes": 1})
    assert "spec.faults[0].with.throwRatio: is more than 1 together with failRatio" in said


def test_the_parts_of_a_fault_overlap_with_others_like_single_ones() -> None:
    first = fault("double-kill", {"pair": "demo-0"}, downSeconds=30)
    second = {**fault("replace-offset-file", {"pair": "demo-0"}), "id": "f2", "at": 20}
    assert "spec.faults[1].at: f2 begins at 20 s while f1 is in effect" in refusal(first, second)


def test_a_pair_is_rolled_one_broker_after_the_other() -> None:
    pair = {"pair": "demo-0"}
    orders = {"SlaveFirst": "slave", "MasterFirst": "master", "Both": "slave"}
    for order, role in orders.items():
        found = parts(fault("roll-pair", pair, order=order, toVersion="5.3.3", gapSeconds=9))
        other = "slave" if role == "master" else "master"
        assert list(found) == ["f1", f"f1-{other}"]
        first, second = found.values()
        assert (first.fault, first.target.role, second.target.role) == ("terminate", role, other)
        waits = ("gone:f1", 0) if order == "Both" else ("registered:f1", 9)
        assert (second.with_["after"], second.at) == waits
        assert first.with_["toVersion"] == second.with_["toVersion"] == "5.3.3"


def test_a_version_that_is_none_is_refused() -> None:
    said = refusal(fault("roll-pair", {"pair": "demo-0"}, toVersion="five"))
    assert "toVersion: must be a version such as 5.3.3 (got 'five')" in said
