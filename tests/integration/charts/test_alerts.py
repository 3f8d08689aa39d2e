"""The alerts as Prometheus evaluates them, where its promtool is installed.

The expressions are those of the rendered chart (its golden file), so a change of one meets these
series. Each case says at which minute which alert fires.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tests.support.processes import ROOT

pytestmark = pytest.mark.integration

GOLDEN = ROOT / "tests" / "data" / "charts" / "everything.yaml"
SLAVE = 'namespace="shop",cluster="demo",node_id="demo-0-1",node_type="slave"'
MASTER = 'namespace="shop",cluster="demo",node_id="demo-0-0",node_type="master"'
RUNNING = {'failback_run_active{namespace="shop",run="r1"}': "1x40"}
PAIR = 'namespace="shop",name="demo",pair="0"'

CASES: list[tuple[str, dict[str, str], str, set[str]]] = [
    (
        "a slave that has not synchronised for a minute",
        {f"rocketmq_slave_metadata_sync_age_seconds{{{SLAVE}}}": "31x40"},
        "2m",
        {"SlaveSyncStale"},
    ),
    (
        "a slave within three periods",
        {f"rocketmq_slave_metadata_sync_age_seconds{{{SLAVE}}}": "29x40"},
        "2m",
        set(),
    ),
    (
        "the same inside an experiment",
        {f"rocketmq_slave_metadata_sync_age_seconds{{{SLAVE}}}": "31x40", **RUNNING},
        "2m",
        set(),
    ),
    (
        "a master that came back half a minute ago, with a slave ahead",
        {
            f"rocketmq_broker_start_time_seconds{{{MASTER}}}": "90x40",
            'rocketmq_slave_offset_divergence_messages{cluster="demo",broker="demo-0"}': "500x40",
        },
        "2m",
        {"OffsetOverwriteImminent"},
    ),
    (
        "the same master, too old to overwrite",
        {
            f"rocketmq_broker_start_time_seconds{{{MASTER}}}": "0x40",
            'rocketmq_slave_offset_divergence_messages{cluster="demo",broker="demo-0"}': "500x40",
        },
        "2m",
        set(),
    ),
    (
        "offsets that are not written",
        {f"rocketmq_offset_persist_age_seconds{{{MASTER}}}": "16x40"},
        "1m",
        {"OffsetPersistStale"},
    ),
    (
        "a group that consumes two in a hundred again",
        {
            'rocketmq_reconsumed_messages_total{namespace="shop",consumer_group="g"}': "0+120x80",
            'rocketmq_messages_out_total{namespace="shop",consumer_group="g"}': "0+6000x80",
        },
        "70m",
        {"ReconsumeBudgetBurn"},
    ),
    (
        "a group within its budget",
        {
            'rocketmq_reconsumed_messages_total{namespace="shop",consumer_group="g"}': "0+60x80",
            'rocketmq_messages_out_total{namespace="shop",consumer_group="g"}': "0+6000x80",
        },
        "70m",
        set(),
    ),
    (
        "a fault whose run is over",
        {'failback_fault_active{run="r1",fault="f1",target="demo-0"}': "1x40"},
        "3m",
        {"FaultLeftActive"},
    ),
    (
        "a fault of a run that goes on",
        {'failback_fault_active{run="r1",fault="f1",target="demo-0"}': "1x40", **RUNNING},
        "3m",
        set(),
    ),
    (
        "two masters, also inside an experiment",
        {f"failback_operator_pair_masters{{{PAIR}}}": "2x40", **RUNNING},
        "1m",
        {"FailbackTwoMasters"},
    ),
    (
        "a pair without a master",
        {f"failback_operator_pair_writable{{{PAIR}}}": "0x40"},
        "2m",
        {"FailbackPairNotWritable"},
    ),
    (
        "an operation at one step for eleven minutes",
        {f'failback_operator_operation_active{{{PAIR},type="Roll",step="Wait"}}': "1x40"},
        "11m",
        {"FailbackOperationStuck"},
    ),
    (
        "an experiment that left something broken",
        {
            'failback_operator_condition{kind="ChaosExperiment",namespace="shop",name="x",'
            'type="Recovered",status="False"}': "1x40"
        },
        "6m",
        {"FailbackExperimentNotHealed"},
    ),
]


def rules() -> dict[str, Any]:
    documents = YAML(typ="safe").load_all(GOLDEN.read_text())
    found = [each for each in documents if each and each["kind"] == "PrometheusRule"]
    spec: dict[str, Any] = found[0]["spec"]
    return spec


def cases_for_promtool(at: str, series: dict[str, str], firing: set[str]) -> list[dict[str, Any]]:
    """Return one check per alert: it fires with any labels, or not at all."""
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    names = [alert["alert"] for group in rules()["groups"] for alert in group["rules"]]
    expressions = [
        {
            "expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)',
            "eval_time": at,
            "exp_samples": [{"labels": "{}", "value": int(name in firing)}],
        }
        for name in names
    ]
    return [{"interval": "1m", "input_series": inputs, "promql_expr_test": expressions}]


if shutil.which("promtool") is not None:  # a tool that nothing else needs is not asked for

    @pytest.mark.parametrize(
        ("series", "at", "firing"),
        [case[1:] for case in CASES],
        ids=[case[0] for case in CASES],
    )
    def test_an_alert_fires_when_it_should(
        series: dict[str, str], at: str, firing: set[str], tmp_path: Path
    ) -> None:
        (tmp_path / "rules.json").write_text(json.dumps(rules()))
        (tmp_path / "test.json").write_text(
            json.dumps(
                {
                    "rule_files": ["rules.json"],
                    "evaluation_interval": "15s",
                    "tests": cases_for_promtool(at, series, firing),
                }
            )
        )
        command = ["promtool", "test", "rules", "test.json"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_case_names_alerts_of_the_chart() -> None:
    names = {alert["alert"] for group in rules()["groups"] for alert in group["rules"]}
    assert set().union(*(case[3] for case in CASES)) <= names
