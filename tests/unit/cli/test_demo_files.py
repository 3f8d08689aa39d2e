"""The bundled demo: equal to the examples, valid, and changed only as options say."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from failback.chaos.faults.catalogue import load_experiment, parse_experiment
from failback.cli.experiment.demo import demo_resources, load_demo
from failback.cli.shared import output
from failback.cli.shared.bundled import EXPERIMENTS, bundled
from failback.cli.shared.verdicts import print_verdicts, row_of
from failback.operator.schema.decoding import BrokerCluster, NameServer, decode
from failback.operator.schema.loading import load_resources
from failback.protocol.errors import ConfigError
from tests.support.docs.yaml_examples import KUSTOMIZATIONS

EXAMPLES = Path(__file__).parents[3] / "examples"
FILES = sorted(set(EXAMPLES.rglob("*.yaml")) - set(KUSTOMIZATIONS))


@pytest.mark.parametrize("name", ["cluster.yaml", "experiment.yaml"])
def test_the_examples_show_what_the_demo_runs(name: str) -> None:
    assert (EXAMPLES / "demo" / name).read_bytes() == bundled(name).read_bytes()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_example_is_valid(file: Path) -> None:
    resources = load_resources([file])
    assert resources.warnings == ()
    for other in resources.others:
        assert decode(other.data).name == other.data["metadata"]["name"]
        if other.data["kind"] == "ChaosExperiment":
            assert load_experiment(file).name == other.data["metadata"]["name"]


def test_every_named_experiment_is_there() -> None:
    assert [load_experiment(bundled(file)).name for file in EXPERIMENTS.values()] == list(
        EXPERIMENTS
    )


def test_the_demo_s_experiment_fits_the_demo_s_cluster() -> None:
    experiment = load_demo(quick=False, engine="failback", rules="compat")
    name_server, cluster = demo_resources("stay", quick=False, engine="failback", rules="compat")
    assert isinstance(name_server, NameServer)
    assert isinstance(cluster, BrokerCluster)
    assert experiment.cluster == cluster.name
    assert [arm.name for arm in experiment.arms] == ["stay", "handover"]
    assert cluster.namespace == "demo-stay"
    assert cluster.spec.slave_read_enable
    assert cluster.spec.config == {}


def test_rules_are_those_of_the_brokers() -> None:
    _, plain = demo_resources("stay", quick=False, engine="failback", rules="compat")
    _, guarded = demo_resources("stay", quick=False, engine="failback", rules="guarded")
    assert isinstance(plain, BrokerCluster)
    assert isinstance(guarded, BrokerCluster)
    assert (plain.spec.engine.rules, guarded.spec.engine.rules) == (None, "guarded")
    with pytest.raises(ConfigError, match='--rules: must be compat or guarded, got "strict"'):
        load_demo(quick=False, engine="failback", rules="strict")
    with pytest.raises(ConfigError, match="--rules: needs engine failback"):
        load_demo(quick=False, engine="apache", rules="guarded")


def test_quick_scales_servers_and_experiment_alike() -> None:
    assert load_demo(quick=True, engine="failback", rules="compat").spec.time_scale == 0.1
    for item in demo_resources("stay", quick=True, engine="failback", rules="compat"):
        assert isinstance(item, (NameServer, BrokerCluster))
        assert item.spec.config == {"failbackTimeScale": "0.1"}


def test_engine_apache_is_apache_throughout() -> None:
    for item in demo_resources("stay", quick=False, engine="apache", rules="compat"):
        assert isinstance(item, (NameServer, BrokerCluster))
        assert (item.spec.engine.type, item.spec.engine.version) == ("Apache", "4.9.7")


def test_the_arm_carried_is_arm_handover_and_the_only_one_with_a_carry() -> None:
    options: dict[str, Any] = {"quick": False, "engine": "apache", "rules": "compat"}
    assert [arm.name for arm in load_demo(**options).arms] == ["stay", "handover"]
    experiment = load_demo(**options, carry=True)
    stay, handover, carried = experiment.arms
    assert (handover.name, carried.name) == ("handover", "carried")
    assert stay.faults != handover.faults == carried.faults
    assert parse_experiment(experiment.source).arms == experiment.arms
    modes = {}
    for arm in experiment.arms:
        _, cluster = demo_resources(arm.name, **options)
        assert isinstance(cluster, BrokerCluster)
        modes[arm.name] = cluster.spec.offset_carry.mode
    assert modes == {"stay": "Off", "handover": "Off", "carried": "Auto"}


@pytest.mark.parametrize(
    ("engine", "version", "seconds"),
    [("failback", "", 50), ("apache", "", 50), ("apache", "4.9.7", 50), ("apache", "5.1.4", 70)],
)
def test_a_master_of_5_x_is_held_for_longer(engine: str, version: str, seconds: int) -> None:
    experiment = load_demo(quick=False, engine=engine, version=version, rules="compat")
    assert {arm.faults[0].with_["downSeconds"] for arm in experiment.arms} == {seconds}


def test_brokers_of_failback_need_no_carry() -> None:
    with pytest.raises(ConfigError, match=r"--carry: needs --engine apache: .* --rules guarded"):
        load_demo(quick=False, engine="failback", rules="compat", carry=True)


def test_the_table_shows_the_report_s_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = {
        "run": "demo-1",
        "arm": "handover",
        "totals": {
            "delivered": 11602,
            "distinct": 7570,
            "dup": 4032,
            "dup_ratio": 0.5326,
            "lost": None,
        },
        "groups": [
            {"causes": {"ROLLBACK_RESTART": 192, "ROLLBACK_SLAVE_ONLY_PROGRESS": 3000}},
            {"causes": {"ROLLBACK_SLAVE_ONLY_PROGRESS": 840}},
        ],
        "bounds": [{"bound": 20000}, {"bound": 3869}],
        "rto": [
            {"produce_ms": 50416.2, "consume_ms": {"p50": 1.0, "max": 75397.3}},
            {"produce_ms": None, "consume_ms": None},
        ],
        "checks": [],
        "verdict": {"value": "Pass", "sentence": "s", "reasons": []},
    }
    file = tmp_path / "report.json"
    file.write_text(json.dumps(report))
    row = row_of(file)
    assert row["causes"] == {"ROLLBACK_SLAVE_ONLY_PROGRESS": 3840, "ROLLBACK_RESTART": 192}
    assert (row["bound"], row["produce_rto_ms"], row["consume_rto_ms"]) == (23869, 50416.2, 75397.3)
    print_verdicts(
        [row | {"dup_ratio": ratio, "consume_rto_ms": None} for ratio in (0.1, 0.4, 0.2)]
    )
    assert capsys.readouterr().out.splitlines()[-1] == (
        "handover, 3 runs, median (least to most): re-consumed 20.0 % (10.0 % to 40.0 %); "
        "send outage 50.4 s (50.4 s to 50.4 s); receive outage -"
    )
    print_verdicts([row | {"arm": None}])
    assert capsys.readouterr().out.splitlines()[1].startswith("demo-1  ")
    print_verdicts([row])
    assert re.split(" {2,}", capsys.readouterr().out.splitlines()[1]) == [
        "handover",
        "11,602",
        "7,570",
        "4,032",
        "53.3 %",
        "ROLLBACK_SLAVE_ONLY_PROGRESS 3,840, ROLLBACK_RESTART 192",
        "23,869",
        "-",
        "50.4 s",
        "75.4 s",
        "complete",
        "no limit set",
    ]


def test_a_narrow_terminal_has_an_arm_in_a_card_and_cuts_no_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = {
        "arm": "handover", "delivered": 1_385, "distinct": 863, "duplicates": 522,
        "dup_ratio": 0.6049, "rows_missing": False, "bound": 1_234, "lost": 0,
        "causes": {"ROLLBACK_SLAVE_ONLY_PROGRESS": 490, "ROLLBACK_RESTART": 32},
        "produce_rto_ms": 5_391.6, "consume_rto_ms": 1_094.5,
        "evidence": "Evidence: complete", "outcome_words": "Re-consumed 60.5 %: no limit set",
    }  # fmt: skip
    for width, arms_are_lines in ((80, False), (240, True)):
        wide = Console(force_terminal=True, width=width, file=io.StringIO(), color_system=None)
        monkeypatch.setattr(output, "console", wide)
        print_verdicts([row, row | {"arm": "stay", "causes": {}}])
        said = wide.file.getvalue()  # type: ignore[attr-defined]
        assert "…" not in said
        assert max(map(len, said.splitlines())) <= width
        figures = next(line for line in said.splitlines() if "1,385" in line)
        assert ("863" in figures) == arms_are_lines
        assert ("DELIVERED" in figures) != arms_are_lines
