"""The library of experiments: read, generated, valid for Chaos Toolkit, and said what it asks."""

from __future__ import annotations

import json
import re
from pathlib import Path

from failback.analytics.report.measures.recovery import EFFECT_KINDS
from failback.chaos import discover
from failback.chaos.experiment.generate import generate, to_json, validate
from failback.chaos.faults.catalogue import KINDS, load_experiment
from failback.cli.shared.bundled import bundled_experiments, bundled_paths
from failback.operator.schema.loading import load_resources

ROOT = Path(__file__).parents[3]
LIBRARY = ROOT / "chaos/failback/chaos/scenarios"
PAGE = ROOT / "docs/reference/faults.md"


def test_every_experiment_is_generated_valid_and_made_of_functions_that_are_found() -> None:
    known = {each["name"] for each in discover()["activities"]}
    for name, path in bundled_paths().items():
        experiment = load_experiment(path)
        assert experiment.name == name
        for arm in experiment.arms:
            text = to_json(generate(experiment, arm, 0, run_dir="x"))
            validate(json.loads(text))
            method = json.loads(text)["method"]
            assert {each["provider"]["func"] for each in method} <= known, name


def test_every_experiment_says_what_it_asks_and_has_a_cluster() -> None:
    found = bundled_experiments()
    assert {each.path.stem for each in found[1:]} == {each.stem for each in LIBRARY.glob("*.yaml")}
    for each in found:
        assert each.question.endswith("?"), each.name
        assert each.expected, each.name
        assert each.source, each.name
        assert re.fullmatch(r"[0-9]+ min", each.lasts), each.name
        assert load_resources([each.cluster]).items, each.name


def test_every_fault_has_an_experiment_and_every_named_fault_is_in_it() -> None:
    found = {each.name: each for each in bundled_experiments()}
    assert [name for name in KINDS if name not in found] == []
    for name, kind in KINDS.items():
        (arm,) = load_experiment(found[name].path).arms
        assert name in {fault.fault for fault in arm.written}
        assert found[name].catalogue == kind.code
    for each in found.values():
        names = {f.fault for arm in load_experiment(each.path).arms for f in arm.written}
        codes = {KINDS[name].code for name in names}
        assert not each.catalogue or each.catalogue in codes, each.name


def test_the_page_names_every_fault_and_every_parameter() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in KINDS if f"`{name}`" not in page] == []
    names = {parameter.name for kind in KINDS.values() for parameter in kind.parameters}
    assert [name for name in sorted(names) if not re.search(f"`{name}[`:]", page)] == []


def test_a_report_knows_the_effect_of_every_fault() -> None:
    """The rows that the harness writes of an effect, and those that a report takes for one."""
    sources = "".join(
        each.read_text() for each in (ROOT / "chaos/failback/chaos/faults").glob("*.py")
    )
    wanted = set(re.findall(r'(?:finish_effect|effect_seen)\(session, \w+, "([A-Z_]+)"', sources))
    changes = re.findall(r'Change\("([a-z-]+)"', sources)
    wanted |= {each.upper().replace("-", "_") for each in changes}
    wanted |= set(re.findall(r'"(CLIENT_[KT]\w+)"', sources))
    assert {"KILL", "CLOCK", "SCALE", "CLIENT_TERM"} <= wanted == set(EFFECT_KINDS) - {"NONE"}
