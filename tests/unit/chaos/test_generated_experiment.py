"""What Chaos Toolkit gets: the same bytes every time, and functions that exist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from failback.chaos.experiment.generate import generate, run_folder_name, to_json, validate
from failback.chaos.faults.catalogue import load_experiment, parse_experiment

DATA = Path(__file__).parent / "data"
DEMO = Path(__file__).parents[3] / "operator/failback/cli/data/experiment.yaml"
FILES = [DATA / "kill-then-restart.yaml", DATA / "every-fault.yaml", DEMO]


def test_the_worked_example_is_generated_byte_by_byte() -> None:
    experiment = load_experiment(DATA / "kill-then-restart.yaml")
    generated = generate(
        experiment, experiment.arm("flush-5s"), 0, run_dir="runs/kill-then-restart/flush-5s-000"
    )
    golden = DATA / "kill-then-restart.flush-5s.0.json"  # one key per line
    assert to_json(generated) == golden.read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_arm_and_repetition_is_valid_and_reproducible(file: Path) -> None:
    experiment = load_experiment(file)
    for repetition in range(min(3, experiment.spec.repetitions)):
        for arm in experiment.arms:
            run_dir = f"runs/{experiment.name}/{run_folder_name(arm.name, repetition)}"
            first = generate(experiment, arm, repetition, run_dir=run_dir)
            again = parse_experiment(experiment.source)
            second = generate(again, again.arm(arm.name), repetition, run_dir=run_dir)
            assert to_json(first) == to_json(second)
            validate(json.loads(to_json(first)))


def test_a_fault_that_waits_follows_the_one_it_names() -> None:
    document = YAML(typ="safe").load((DATA / "kill-then-restart.yaml").read_text())
    document["spec"]["faults"].reverse()
    experiment = parse_experiment(json.dumps(document))
    names = [
        each["name"] for each in generate(experiment, experiment.arms[0], 0, run_dir="x")["method"]
    ]
    assert names == [
        "begin-faults",
        "f1-kill",
        "f2-kill-consumer",
        "recover",
        "drain",
        "scan-stores",
    ]


def test_the_handover_arm_names_its_milestones() -> None:
    experiment = load_experiment(DEMO)
    method = generate(experiment, experiment.arm("handover"), 0, run_dir="x")["method"]
    consumers = next(each for each in method if each["name"] == "f2-kill-consumer")
    arguments = consumers["provider"]["arguments"]
    assert arguments["after"] == "slave-serving:f1"
    assert arguments["restart_after"] == "registered:f1"
    assert arguments["signal"] == "TERM"
