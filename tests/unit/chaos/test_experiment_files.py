"""Experiment files: merged per arm, and refused with the path of the field that is wrong."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from failback.chaos.experiment.model import FaultTarget
from failback.chaos.experiment.spec import ChaosExperiment, check_engine
from failback.chaos.faults.catalogue import load_experiment, parse_experiment
from failback.protocol.errors import ConfigError, ConfigErrors

EXAMPLE = Path(__file__).parent / "data" / "kill-then-restart.yaml"
DEMO = Path(__file__).parents[3] / "operator/failback/cli/data/experiment.yaml"


def example() -> dict[str, Any]:
    loaded: dict[str, Any] = YAML(typ="safe").load(EXAMPLE.read_text())
    return copy.deepcopy(loaded)


def parse(document: dict[str, Any]) -> ChaosExperiment:
    import io

    text = io.StringIO()
    YAML().dump(document, text)
    return parse_experiment(text.getvalue())


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(document)
    return str(caught.value)


def test_the_example_is_read_with_its_defaults() -> None:
    experiment = load_experiment(EXAMPLE)
    assert (experiment.name, experiment.namespace, experiment.cluster) == (
        "kill-then-restart",
        "lab",
        "demo",
    )
    assert [arm.name for arm in experiment.arms] == ["flush-5s", "flush-1s"]
    assert experiment.arms[1].broker_config == {"flushConsumerOffsetInterval": "1000"}
    assert experiment.spec.drain.timeout_seconds == 120
    assert experiment.arms[0].workload.groups[0].handler.mean_ms == 1.0


def test_the_demo_has_two_arms_that_differ_by_one_fault() -> None:
    stay, handover = load_experiment(DEMO).arms
    assert [fault.id for fault in stay.faults] == ["f1"]
    assert [fault.id for fault in handover.faults] == ["f1", "f2"]
    assert stay.workload == handover.workload


def test_an_arm_changes_only_what_it_names() -> None:
    document = example()
    document["spec"]["arms"] = [
        {
            "name": "four",
            "workload": {"groups": [{"name": "billing", "members": 4}]},
            "clientSwitches": {"fail_inflight_on_eof": True},
        }
    ]
    arm = parse(document).arms[0]
    assert arm.workload.groups[0].members == 4
    assert arm.workload.groups[0].topic == "orders"
    assert arm.workload.topics[0].rate_per_second == 400
    assert arm.workload.switches == {"fail_inflight_on_eof": True}


def test_a_seed_is_drawn_when_none_is_given() -> None:
    document = example()
    del document["spec"]["seed"]
    assert parse(document).seed != parse(document).seed


def test_arms_take_turns_at_coming_first() -> None:
    experiment = load_experiment(EXAMPLE)
    assert [arm.name for arm in experiment.arm_order(0)] == ["flush-5s", "flush-1s"]
    assert [arm.name for arm in experiment.arm_order(3)] == ["flush-1s", "flush-5s"]


def set_in(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    current: Any = document
    *parents, last = path.split("/")
    for part in parents:
        current = current[int(part) if part.isdigit() else part]
    current[int(last) if last.isdigit() else last] = value
    return document


@pytest.mark.few(10)
@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("spec/faults/1/fault", "kil", 'spec.faults[1].fault: unknown "kil", did you mean "kill"'),
        (
            "spec/faults/0/with/downSecond",
            12,
            'spec.faults[0].with.downSecond: unknown "downSecond", did you mean "downSeconds"',
        ),
        (
            "spec/faults/0/with/down",
            12,
            'spec.faults[0].with.down: unknown "down", did you mean "downSeconds"',
        ),
        ("spec/faults/0/at", -1, "spec.faults[0].at: must be at least 0"),
        ("spec/faults/0/at", "soon", "spec.faults[0].at: must be a number"),
        (
            "spec/faults/0/with/downSeconds",
            "12s",
            "spec.faults[0].with.downSeconds: must be a number of seconds from 0 to 86400",
        ),
        ("spec/steadystate", {}, 'spec.steadystate: unknown "steadystate", did you mean'),
        ("spec/workload/topics/0/rate", 5, 'spec.workload.topics[0].rate: unknown "rate"'),
        ("spec/repetitions", 0, "spec.repetitions: must be at least 1"),
        ("spec/timeScale", 2, "spec.timeScale: must be at most 1"),
        ("spec/seed", -1, "spec.seed: must be at least 0"),
        ("apiVersion", "failback.dev/v1", 'apiVersion: unknown "failback.dev/v1", did you mean'),
        (
            "spec/faults/0/target/role",
            "mastr",
            'spec.faults[0].target.role: unknown "mastr", did you mean "Master"',
        ),
        (
            "spec/faults/1/target/group",
            "biling",
            'spec.faults[1].target.group: unknown "biling", did you mean "billing"',
        ),
        (
            "spec/faults/1/with/after",
            "accept:f9",
            'spec.faults[1].with.after: unknown "f9"',
        ),
        (
            "spec/faults/1/with/after",
            "accepted:f1",
            'spec.faults[1].with.after: unknown milestone "accepted"',
        ),
        (
            "spec/faults/1/with/after",
            "gone:f2",
            "spec.faults[1].with.after: waits for itself",
        ),
        ("spec/faults/1/with/signal", "HUP", 'spec.faults[1].with.signal: unknown "HUP"'),
        ("spec/faults/1/id", "f1", 'spec.faults[1].id: "f1" is used twice'),
        (
            "spec/workload/groups/0/topic",
            "order",
            'spec.workload.groups[0].topic: unknown "order", did you mean "orders"',
        ),
        (
            "spec/workload/groups/0/handler/failRatio",
            0.5,
            "spec.workload.groups[0].maxReconsumeTimes: must be 0 to 3",
        ),
        ("spec/faults/0/target/pair", "", "spec.faults[0].target.pair: give either pair or"),
        (
            "spec/faults/0/target/mode",
            "All",
            "spec.faults[0].target.mode: kill takes One only (got All)",
        ),
        (
            "spec/faults/0/target/mode",
            "one",
            'spec.faults[0].target.mode: unknown "one", did you mean "One"?',
        ),
        (
            "spec/faults/0/with",
            {"second": "same"},
            'spec.faults[0].with.second: unknown "same", did you mean "Same"?',
        ),
        (
            "spec/faults/1",
            {
                "id": "f2",
                "fault": "unsubscribe",
                "target": {"group": "billing", "mode": "One"},
            },
            "spec.faults[1].target.mode: unsubscribe takes All only (got One)",
        ),
        (
            "spec/faults/0",
            {
                "id": "f1",
                "fault": "terminate",
                "target": {"pair": "demo-0"},
                "with": {"restart": False},
            },
            'spec.faults[1].with.after: f1 never reaches "accept": it has restart false',
        ),
    ],
)
def test_bad_input_is_refused_with_the_path_of_the_field(
    path: str, value: Any, message: str
) -> None:
    assert message in refusal(set_in(example(), path, value))


def test_a_missing_field_is_named() -> None:
    document = example()
    del document["spec"]["clusterRef"]
    assert refusal(document) == "spec.clusterRef: is required"


def test_two_faults_at_once_on_one_victim_are_refused() -> None:
    document = example()
    document["spec"]["faults"].append(
        {"id": "f3", "fault": "pause", "at": 35, "target": {"pair": "demo-0"}}
    )
    assert refusal(document) == (
        "spec.faults[2].at: f3 begins at 35 s while f1 is in effect on the same victim until 42 s"
    )


def test_faults_after_each_other_on_one_victim_are_allowed() -> None:
    document = example()
    document["spec"]["faults"].append(
        {"id": "f3", "fault": "pause", "at": 42, "target": {"pair": "demo-0"}}
    )
    assert len(parse(document).arms[0].faults) == 3


def test_a_circle_of_waiting_faults_is_refused() -> None:
    document = example()
    faults = document["spec"]["faults"]
    faults[0]["with"]["after"] = "gone:f3"
    faults.append(
        {"id": "f3", "fault": "kill", "target": {"pair": "demo-0"}, "with": {"after": "gone:f1"}}
    )
    assert "waits in a circle" in refusal(document)


def test_a_fault_of_an_arm_is_named_by_the_arm() -> None:
    document = example()
    document["spec"]["arms"][1]["faults"] = [{"id": "f9", "fault": "paus"}]
    assert refusal(document).startswith('spec.arms[1].faults[0].fault: unknown "paus"')


def test_the_file_is_named_when_it_is_no_experiment(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("kind: Pod\n")
    with pytest.raises(ConfigError, match=r"x\.yaml: kind: need exactly one ChaosExperiment"):
        load_experiment(file)
    file.write_text("kind: [")
    with pytest.raises(ConfigError, match=r"x\.yaml:1:8: YAML: "):
        load_experiment(file)
    with pytest.raises(ConfigError, match="no such file or folder"):
        load_experiment(tmp_path / "absent.yaml")


def test_a_time_scale_needs_our_own_engine() -> None:
    experiment = load_experiment(EXAMPLE).with_time_scale(0.1)
    check_engine(experiment, experiment.arms[0], "failback")
    with pytest.raises(ConfigError, match=r"spec.timeScale: 0.1 needs engine Failback"):
        check_engine(experiment, experiment.arms[0], "apache")


def test_an_unknown_arm_is_named() -> None:
    with pytest.raises(ConfigError, match='arm: unknown "flush-2s", did you mean "flush-'):
        load_experiment(EXAMPLE).arm("flush-2s")


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (FaultTarget(), "nobody"),
        (FaultTarget(pair="demo-0"), "master of demo-0"),
        (FaultTarget.model_validate({"pairSelector": "any", "role": "Slave"}), "slave of any"),
        (FaultTarget(group="billing"), "group billing"),
        (FaultTarget(pair="demo-0", group="billing"), "master of demo-0 and group billing"),
    ],
)
def test_a_plan_says_who_is_hit(target: FaultTarget, words: str) -> None:
    assert target.in_words() == words


OK = {"metric": "totals.lost", "op": "==", "value": 0}


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ({"arm": "flush-5"}, 'spec.expect[0].arm: unknown "flush-5", did you mean "flush-5s"'),
        ({"group": "biling"}, 'spec.expect[0].group: unknown "biling", did you mean "billing"'),
        ({"value": None}, "spec.expect[0].value: must be a number for ==, got None"),
        ({"value": [1, 2]}, "spec.expect[0].value: must be a number for =="),
        ({"op": "Between"}, "spec.expect[0].value: must be two numbers [LOW, HIGH] for Between"),
        ({"op": "Between", "value": [2, 1]}, "spec.expect[0].value: 2 is above 1"),
        ({"op": "WithinBound"}, "spec.expect[0].value: must be left out"),
    ],
)
def test_an_expectation_that_nothing_can_meet_is_refused(wish: dict[str, Any], told: str) -> None:
    document = example()
    document["spec"]["expect"] = [{**OK, **wish}]
    assert told in refusal(document)


def test_an_arm_s_own_expectations_are_checked_alike() -> None:
    document = example()
    document["spec"]["arms"][1]["expect"] = [OK, {**OK, "arm": "flush-5s"}]
    assert "spec.arms[1].expect[1].arm" in refusal(document)
    document["spec"]["arms"][1]["expect"] = [OK, {**OK, "group": "biling"}]
    assert "spec.arms[1].expect[1].group" in refusal(document)


def test_expectations_have_their_places() -> None:
    document = example()
    document["spec"]["expect"] = [OK]
    document["spec"]["arms"][1]["expect"] = [OK]
    with pytest.raises(ConfigErrors) as refused:
        parse_experiment(json.dumps(document), metric_problem=no_figure)
    assert [str(each) for each in refused.value.errors] == [
        "spec.expect[0].metric: is no figure",
        "spec.arms[1].expect[0].metric: is no figure",
    ]


def no_figure(metric: str, *, of_group: bool = False) -> str:
    return "is no figure"


def test_names_are_checked_beside_fields_that_are_wrong() -> None:
    document = example()
    spec = document["spec"]
    spec["repetitions"] = "two"
    spec["faults"] = [
        {"id": "f1", "fault": "kil", "at": "10s"},
        {"fault": "pause", "with": {"durationSecond": 4, "durationSeconds": "4"}},
        "kill",
    ]
    spec["arms"] = [{"name": "a", "faults": [{"fault": 7}], "expect": [{"metric": "x"}]}, "b"]
    spec["expect"] = {"metric": "x"}
    with pytest.raises(ConfigErrors) as refused:
        parse_experiment(json.dumps(document), metric_problem=no_figure)
    told = {each.field: each.problem for each in refused.value.errors}
    assert told["spec.repetitions"] == 'must be a whole number, got "two"'
    assert told["spec.faults[0].at"] == 'must be a number, got "10s"'
    assert told["spec.faults[0].fault"] == 'unknown "kil", did you mean "kill"?'
    assert told["spec.faults[1].id"] == "is required"
    assert told["spec.faults[1].with.durationSecond"].endswith('did you mean "durationSeconds"?')
    assert told["spec.faults[1].with.durationSeconds"].startswith("must be a number of seconds")
    assert told["spec.arms[0].expect[0].metric"] == "is no figure"


def test_what_needs_two_fields_is_told_at_once_too() -> None:
    document = example()
    spec = document["spec"]
    spec["workload"]["groups"][0]["topic"] = "nope"
    spec["arms"][1]["name"] = spec["arms"][0]["name"]
    spec["faults"][0]["fault"] = "kil"
    with pytest.raises(ConfigErrors) as refused:
        parse_experiment(json.dumps(document))
    assert [each.field for each in refused.value.errors] == [
        "spec.workload.groups[0].topic",
        "spec.arms[1].name",
        "spec.faults[0].fault",
    ]


def test_a_name_without_its_unit_means_the_one_with_it() -> None:
    document = example()
    load = document["spec"]["workload"]["topics"][0]
    load["rate"] = load.pop("ratePerSecond", 1)
    assert 'unknown "rate", did you mean "ratePerSecond"?' in refusal(document)
