"""``failback predict``: its table, its JSON, its exit codes, and the demo's measured figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.api import Run, predict
from failback.analytics.predict.faults import FAULTS
from failback.analytics.predict.prediction_document import schema
from failback.chaos.faults.catalogue import load_experiment
from failback.cli.__main__ import main
from failback.cli.shared.bundled import bundled

EXAMPLES = Path(__file__).parents[3] / "examples"
HANDOVERS = {"Failback": (2_848, 2_816, 3_200), "Apache 4.9.7": (3_392, 3_680)}
"""Duplicates that single runs of the demo's arm `handover` ended with, at real timers."""


def shown(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["predict", *words]) == code
    return capsys.readouterr().out


def asked(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shown(capsys, *words, "--json", code=code))
    assert found["schema"] == schema()["$id"]
    return found


def of_case(document: dict[str, Any], name: str) -> dict[str, Any]:
    (case,) = (each for each in document["cases"] if each["name"] == name)
    return dict(case["predictions"][0])


def test_the_demo_s_arms_are_predicted_from_its_files(capsys: pytest.CaptureFixture[str]) -> None:
    files = (
        str(EXAMPLES / "demo/experiment.yaml"),
        "--cluster",
        str(EXAMPLES / "demo/cluster.yaml"),
    )
    document = asked(capsys, *files)
    assert {case["name"] for case in document["cases"]} == {"stay/billing", "handover/billing"}
    stay, handover = of_case(document, "stay/billing"), of_case(document, "handover/billing")
    assert (stay["max"], stay["worst"], stay["causes"]) == (0, 0, {})
    assert set(handover["causes"]) == {"ROLLBACK_RESTART", "ROLLBACK_SLAVE_ONLY_PROGRESS"}
    assert list(handover["report_groups"]) == ["rollback"]
    bundled_one = asked(capsys, "failback-demo", "--top", "0")
    assert of_case(bundled_one, "handover/billing") == handover


def test_measured_handovers_lie_under_the_worst_case_and_mostly_in_the_band(
    capsys: pytest.CaptureFixture[str],
) -> None:
    predicted = of_case(asked(capsys, "failback-demo", "--arm", "handover"), "handover/billing")
    measured = [value for values in HANDOVERS.values() for value in values]
    assert (
        max(measured) <= predicted["worst"] <= 22_465
    )  # the bound of the report that printed 2,848
    inside = [value for value in measured if predicted["p5"] <= value <= predicted["p95"]]
    assert set(inside) >= {2_848, 2_816, 3_200, 3_392}


def test_the_readme_s_figures_lie_under_the_worst_case(
    capsys: pytest.CaptureFixture[str],
) -> None:
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in readme.splitlines()
            if re.search(r"\| (stay|handover) \|", line)]  # fmt: skip
    assert {row[0] for row in rows} >= {"Failback", "Apache 4.9.7"}
    for row in rows:
        rules = "guarded" if "guarded" in row[0] else "compat"
        document = asked(
            capsys, "failback-demo", "--arm", row[1], "--set", f"failbackRules={rules}"
        )
        duplicates = int(row[4].replace(",", ""))
        assert duplicates <= of_case(document, f"{row[1]}/billing")["worst"], row


def test_guarded_rules_prevent_the_demo_s_duplicates(capsys: pytest.CaptureFixture[str]) -> None:
    document = asked(capsys, "failback-demo", "--arm", "handover", "--set", "failbackRules=guarded")
    assert of_case(document, "handover/billing")["p95"] == 0


def test_the_table_says_what_the_json_says(capsys: pytest.CaptureFixture[str]) -> None:
    document = asked(capsys, "failback-demo")
    printed = shown(capsys, "failback-demo")
    lines = {
        line.split("  ")[0]: re.split(r"\s{2,}", line)
        for line in printed.split("\n\n")[0].splitlines()
    }
    for case in document["cases"]:
        found = case["predictions"][0]
        _, fault, median, band, _, worst, causes = lines[case["name"]]
        assert fault == found["fault"]
        assert median == f"{found['median']:,}"
        assert band == f"{found['p5']:,} to {found['p95']:,}"
        assert worst == f"{found['worst']:,}"
        assert all(cause in causes for cause in found["causes"])
    knob = document["cases"][-1]["knobs"][0]
    assert f"{knob['predicted_reduction']:+,.0f}" in printed
    assert knob["cost"] in printed


def test_options_alone_say_everything(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--rate", "100", "--members", "4", "--queues", "2", "--backlog", "0", "--down", "30")
    document = asked(capsys, *words, "--fault", "kill", "--fault", "handover", "--set", "I_b=1")
    (case,) = document["cases"]
    assert [each["fault"] for each in case["predictions"]] == ["kill", "handover"]
    assert case["settings"]["flushConsumerOffsetInterval"] == 1000
    assert (case["settings"]["members"], case["settings"]["queues"]) == (4, 2)
    again = asked(capsys, *words, "--fault", "kill", "--fault", "handover", "--set", "I_b=1")
    assert again == document
    assert asked(capsys, *words, "--seed", "43")["cases"] != document["cases"]


def test_a_cluster_gives_its_broker_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = (EXAMPLES / "two-pairs.yaml").read_text(encoding="utf-8")
    file = tmp_path / "cluster.yaml"
    file.write_text(text.replace('flushConsumerOffsetInterval: "5000"',
                                 'flushConsumerOffsetInterval: "2000"'))  # fmt: skip
    (case,) = asked(capsys, str(file), "--top", "0")["cases"]
    assert case["name"] == "orders: pair-0 to pair-1 (2 alike)"
    assert case["settings"]["flushConsumerOffsetInterval"] == 2000
    assert (case["settings"]["pairs"], case["settings"]["queues"]) == (2, 8)


@pytest.mark.parametrize(("version", "copied"), [("4.9.7", 10_000), ("5.3.3", 63_000)])
def test_a_cluster_of_apache_s_has_the_timers_of_its_version(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, version: str, copied: int
) -> None:
    file = tmp_path / "cluster.yaml"
    text = (EXAMPLES / "apache.yaml").read_text(encoding="utf-8")
    file.write_text(text.replace("4.9.7", version))
    (case,) = asked(capsys, str(file), "--top", "0")["cases"]
    assert case["settings"]["slaveSyncInterval"] == copied


def test_of_5_5_0_faults_are_left_out_that_rest_on_what_its_slave_never_copies(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "cluster.yaml"
    text = (EXAMPLES / "apache.yaml").read_text(encoding="utf-8")
    file.write_text(text.replace("4.9.7", "5.5.0"))
    (case,) = asked(capsys, str(file), "--top", "0")["cases"]
    predicted = {each["fault"] for each in case["predictions"]}
    left_out = {note.split(":")[0] for note in case["notes"]}
    assert left_out == {"restart-on-slave", "switch-none", "switch-waitsync"}
    assert predicted == set(FAULTS) - left_out


def run_folder(folder: Path, duplicates: int | None) -> str:
    """A run of the arm `handover` as a run folder has it, with the figures that are read."""
    experiment = load_experiment(bundled("experiment.yaml"))
    arm = experiment.arm("handover")
    run = {
        "arm": "handover",
        "engine": "failback",
        "time_scale": 1.0,
        "system": {"flush_interval_ms": 5000, "rules": "compat"},
        "topology": {"pairs": [{"members": [{}, {}]}]},
        "workload": arm.workload.model_dump(mode="json", by_alias=True),
        "faults": [each.model_dump(mode="json", by_alias=True) for each in arm.faults],
        "switches": {"drain_on_shutdown_ms": 30_000},
        "warmup_seconds": experiment.spec.warmup_seconds,
        "steady_state": experiment.spec.steady_state.model_dump(mode="json"),
    }
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(run))
    if duplicates is not None:
        (folder / "report").mkdir()
        report = {"groups": [{"group": "billing", "dup": duplicates}]}
        (folder / "report" / "report.json").write_text(json.dumps(report))
    return str(folder)


def test_a_run_is_compared_with_what_its_report_counted(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = of_case(asked(capsys, run_folder(tmp_path / "a", 2_848)), "handover/billing")
    assert (found["observed"], found["inside"]) == (2_848, True)
    assert "2,848 (inside)" in shown(capsys, str(tmp_path / "a"))
    found = of_case(asked(capsys, run_folder(tmp_path / "b", None)), "handover/billing")
    assert (found["observed"], found["inside"]) == (None, None)
    above = asked(capsys, run_folder(tmp_path / "c", 1_000_000), code=1)
    assert above["cases"][0]["exceeded"] is True


def test_every_run_of_a_demo_s_folder_is_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name, duplicates in (("handover", 2_848), ("other", None)):
        run_folder(tmp_path / name, duplicates)
        (tmp_path / name / "closed.json").write_text("{}")
    cases = asked(capsys, str(tmp_path))["cases"]
    assert [case["predictions"][0]["observed"] for case in cases] == [2_848, None]


def test_a_run_that_says_no_steady_state_has_unknown_phases(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = Path(run_folder(tmp_path / "a", None))
    run = json.loads((folder / "run.json").read_text())
    del run["steady_state"]
    (folder / "run.json").write_text(json.dumps(run))
    (case,) = asked(capsys, str(folder))["cases"]
    assert case["settings"]["clientUptimeSeconds"] is None
    assert "all phases are taken as unknown" in case["notes"][0]


def test_a_run_tells_itself_how_long_its_clients_ran(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """By the command and from Python."""
    folder = Path(run_folder(tmp_path / "a", None))
    wanted = asked(capsys, str(folder))["cases"]
    run = json.loads((folder / "run.json").read_text())
    assert wanted[0]["settings"]["clientUptimeSeconds"] is not None
    of_lake = Run("a", run, closed=True, folder=None, lake="lake")
    assert predict(of_lake).document["cases"] == wanted


def test_faults_and_settings_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    listed = shown(capsys, "--list")
    for name in ("restart-after-return", "switch-copymax", "persistConsumerOffsetInterval"):
        assert name in listed
    assert json.loads(shown(capsys, "--schema"))["$id"] == "failback.predict/1"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nowhere.yaml"], "nowhere.yaml: no such file or folder"),
        (["--fault", "handovr"], '--fault: unknown "handovr", did you mean "handover"'),
        (["--set", "flushConsumerOffsetIntervall=1"], "did you mean"),
        (["--set", "members"], '--set: must be KEY=VALUE, got "members"'),
        (["--members", "0"], "members: must be between 1 and 1024, got 0"),
        (["--draws", "0"], "--draws: must be between 1 and 1000000, got 0"),
        (["--seed", "-1"], "--seed: must not be negative, got -1"),
        (["--top", "-1"], "--top: must not be negative, got -1"),
        (["--down", "0"], "--down: must be above 0"),
        (["--arm", "stay"], "--arm: there is none in options alone"),
        (["failback-demo", "--arm", "sty"], 'arm: unknown "sty", did you mean "stay"'),
        (["failback-demo", "--group", "biling"], '--group: no group "biling", there is billing'),
        (["failback-demo", "--cluster", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_field(
    capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert main(["predict", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.startswith("error: ")
    assert len(error.splitlines()) == 1


def test_a_run_folder_that_is_none_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["predict", str(tmp_path)]) == 2
    assert "it has no run.json" in capsys.readouterr().err
    (tmp_path / "run.json").write_text("[]")
    assert main(["predict", str(tmp_path)]) == 2
    assert "run.json: must hold an object" in capsys.readouterr().err
    (tmp_path / "run.json").write_text("{}")
    assert main(["predict", str(tmp_path)]) == 2
    assert "run.json: workload: is missing" in capsys.readouterr().err


def test_a_file_without_anything_to_predict_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "server.yaml"
    file.write_text("apiVersion: failback.dev/v1alpha1\nkind: NameServer\n")
    assert main(["predict", str(file)]) == 2
    assert "neither a ChaosExperiment nor a BrokerCluster" in capsys.readouterr().err
