"""The example of every fault: read, generated, and named after what it injects."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from failback.chaos.experiment.generate import generate, to_json, validate
from failback.chaos.faults.catalogue import KINDS, load_experiment

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(
    path for path in (ROOT / "examples/faults").glob("*.yaml") if path.stem != "cluster"
)
PAGE = ROOT / "docs/reference/faults.md"


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_injects_the_fault_it_is_named_after(file: Path) -> None:
    experiment = load_experiment(file)
    (arm,) = experiment.arms
    assert file.stem == experiment.name
    assert file.stem in {fault.fault for fault in arm.written}
    validate(json.loads(to_json(generate(experiment, arm, 0, run_dir="x"))))


def test_every_fault_has_its_section_and_an_example() -> None:
    page = PAGE.read_text(encoding="utf-8")
    missing = [name for name in KINDS if f"`{name}`" not in page]
    assert missing == []
    assert {file.stem for file in EXAMPLES} == set(KINDS)


def test_the_page_names_every_parameter() -> None:
    page = PAGE.read_text(encoding="utf-8")
    names = {parameter.name for kind in KINDS.values() for parameter in kind.parameters}
    assert [name for name in sorted(names) if not re.search(f"`{name}[`:]", page)] == []
