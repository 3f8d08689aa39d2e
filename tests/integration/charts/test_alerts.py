"""The alerts as Prometheus' promtool evaluates them, on series written down here.

The expressions are those of the rendered chart (its golden file), so a change of one meets these
series. Each case says at which minute which alerts fire; every other alert must be silent then.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.dashboard.alert_rules import alerts, prometheus_home, rules

_NODE = 'namespace="shop",cluster="demo",broker="demo-0",job="brokers",instance="b"'
SLAVE = f'{_NODE},node_id="demo-0-1",node_type="slave"'
MASTER = f'{_NODE},node_id="demo-0-0",node_type="master"'
GROUP = 'namespace="shop",cluster="demo",consumer_group="g"'
RUNNING = {'failback_run_active{namespace="shop",cluster="demo",run="r1"}': "1x90"}
ELSEWHERE = {'failback_run_active{namespace="shop",cluster="other",run="r1"}': "1x90"}
REPORTED = {'up{job="exporter",instance="e"}': "1x100"}
WATCHED = {'up{job="brokers",instance="b"}': "1x90"}
PAIR = 'namespace="shop",name="demo",pair="0"'
SYNC_AGE = f"rocketmq_slave_metadata_sync_age_seconds{{{SLAVE}}}"
PERSIST_AGE = f"rocketmq_offset_persist_age_seconds{{{MASTER}}}"
STARTED = f"rocketmq_broker_start_time_seconds{{{MASTER}}}"
SLAVE_STARTED = f"rocketmq_broker_start_time_seconds{{{SLAVE}}}"
DIVERGENCE = (
    'rocketmq_slave_offset_divergence_messages{namespace="shop",cluster="demo",broker="demo-0",'
    'member="demo-0-1",consumer_group="g",direction="%s"}'
)
REGRESSION = (
    f'rocketmq_offset_regression_messages_total{{{_NODE},node_role="slave",consumer_group="g",'
    'topic="T",source="%s"}'
)
EXPOSURE = f'rocketmq_reconsume_exposure_messages{{{GROUP},broker="demo-0"}}'
SHOWN = f'{GROUP},job="exporter",instance="e"'
AGAIN = f'rocketmq_reconsumed_messages_total{{{SHOWN},cause="rollback"}}'
ALL = f"failback_delivered_messages_total{{{SHOWN}}}"
STOPPED = f"failback_ha_stopped{{{SLAVE}}}"
GAPS = 'failback_log_gaps_total{run="r1",job="brokers",instance="b"}'
ASIDE = f"failback_put_aside_messages_total{{{MASTER}}}"
COPIED_ASIDE = f"failback_put_aside_messages_total{{{SLAVE}}}"
FAULT = 'failback_fault_active{run="r1",fault="f1",target="demo-0"}'
CONDITION = 'failback_operator_condition{kind="%s",namespace="shop",name="x",type="%s",status="%s"}'
AHEAD, BEHIND = DIVERGENCE % "slave_ahead", DIVERGENCE % "master_ahead"
BY_SYNC, BY_RESET = REGRESSION % "slave_sync", REGRESSION % "reset"
WAITS = 'failback_operator_role_switch_waiting{namespace="n",name="s",mode="%s",predicate="X"}'
STEP = f'failback_operator_operation_active{{{PAIR},type="Roll",step="Wait"}}'
UNHEALED = CONDITION % ("ChaosExperiment", "Recovered", "False")
UNAPPLIED = CONDITION % ("BrokerCluster", "ConfigApplied", "False")
APPLIED = CONDITION % ("BrokerCluster", "ConfigApplied", "True")

PASS_AGE = 'failback_operator_pass_age_seconds{kind="Topic",namespace="shop",name="t"}'
OPERATOR = 'failback_operator_info{version="1"}'

Series = dict[str, str]
Case = tuple[str, Series, str, set[str]]

CASES: list[Case] = [
    ("no sample of anything", {"up": "1x90"}, "30m", set()),
    ("a slave that is gone", {SYNC_AGE: "31x3 stale"}, "5m", set()),
    ("a master that is gone", {PERSIST_AGE: "100x3 stale"}, "5m", set()),
    ("a group that was deleted", {EXPOSURE: "99999x9 stale"}, "12m", set()),
    (
        "a group that was deleted while its master came back",
        {STARTED: "90x40", AHEAD: "500x1 stale"},
        "3m",
        set(),
    ),
    ("old copies", {SYNC_AGE: "31x40"}, "2m", {"SlaveSyncStale"}),
    ("old copies for half a minute", {SYNC_AGE: "0x5 31x40"}, "6m30s", set()),
    ("copies within three periods", {SYNC_AGE: "29x40"}, "2m", set()),
    ("old copies in an experiment", {SYNC_AGE: "31x40", **RUNNING}, "2m", set()),
    (
        "old copies beside an experiment on another cluster",
        {SYNC_AGE: "31x40", **ELSEWHERE},
        "2m",
        {"SlaveSyncStale"},
    ),
    (
        "a master that came back half a minute ago",
        {STARTED: "90x40", SLAVE_STARTED: "0x40", AHEAD: "500x40"},
        "2m",
        {"OffsetOverwriteImminent"},
    ),
    (
        "a slave that came back half a minute ago, and the master did not",
        {STARTED: "0x40", SLAVE_STARTED: "90x40", AHEAD: "500x40"},
        "2m",
        set(),
    ),
    ("a returned master that knows more", {STARTED: "90x40", BEHIND: "500x40"}, "2m", set()),
    ("a returned master, few messages", {STARTED: "90x40", AHEAD: "100x40"}, "2m", set()),
    (
        "a returned master in an experiment",
        {STARTED: "90x40", AHEAD: "500x40", **RUNNING},
        "2m",
        set(),
    ),
    ("offsets that went back", {BY_SYNC: "0x9 380x90", **WATCHED}, "11m", {"OffsetRegression"}),
    ("the same, in sight of nobody", {BY_SYNC: "0x9 380x90", **WATCHED}, "40m", set()),
    (
        "offsets that went back for the first time",
        {BY_SYNC: "_x9 380x90", **WATCHED},
        "11m",
        {"OffsetRegression"},
    ),
    (
        "a Prometheus that is new, and an old count",
        {BY_SYNC: "_x9 380x90", 'up{job="brokers",instance="b"}': "_x9 1x90"},
        "11m",
        set(),
    ),
    ("a reset", {BY_RESET: "0x9 380x90", **WATCHED}, "11m", set()),
    (
        "offsets that went back in an experiment",
        {BY_SYNC: "0x9 380x90", **WATCHED, **RUNNING},
        "11m",
        set(),
    ),
    (
        "offsets that went back in an experiment that has just ended",
        {BY_SYNC: "0x9 380x90", **WATCHED, next(iter(RUNNING)): "1x11 stale"},
        "13m",
        set(),
    ),
    (
        "offsets that went back after an experiment",
        {BY_SYNC: "0x29 380x90", **WATCHED, next(iter(RUNNING)): "1x11 stale"},
        "31m",
        {"OffsetRegression"},
    ),
    ("offsets that are not written", {PERSIST_AGE: "16x40"}, "1m", {"OffsetPersistStale"}),
    ("offsets that are written", {PERSIST_AGE: "14x40"}, "1m", set()),
    ("not written, in an experiment", {PERSIST_AGE: "16x40", **RUNNING}, "1m", set()),
    ("much to repeat", {EXPOSURE: "10001x40"}, "6m", {"ReconsumeExposureHigh"}),
    ("much to repeat, not for long", {EXPOSURE: "10001x40"}, "4m", set()),
    ("little to repeat", {EXPOSURE: "10000x40"}, "6m", set()),
    (
        "two in a hundred again",
        {AGAIN: "0+120x90", ALL: "0+6000x90"},
        "70m",
        {"ReconsumeBudgetBurn"},
    ),
    ("one in a hundred again", {AGAIN: "0+60x90", ALL: "0+6000x90"}, "70m", set()),
    ("many again, no longer", {AGAIN: "0+400x60 24000x30", ALL: "0+6000x90"}, "75m", set()),
    (
        "many again, in an experiment",
        {AGAIN: "0+120x90", ALL: "0+6000x90", **RUNNING},
        "70m",
        set(),
    ),
    (
        "a first report, of many again",
        {AGAIN: "_x9 400x90", ALL: "_x9 6000x90", **REPORTED},
        "13m",
        {"ReconsumeBudgetBurn"},
    ),
    (
        "a first report, of few again",
        {AGAIN: "_x9 40x90", ALL: "_x9 6000x90", **REPORTED},
        "13m",
        set(),
    ),
    (
        "one more report of none again, after many with repeats",
        {AGAIN: "400x99", ALL: "6000x9 9000x90", **REPORTED},
        "13m",
        set(),
    ),
    (
        "an exporter that is new, and old reports",
        {AGAIN: "_x9 400x90", ALL: "_x9 6000x90", 'up{job="exporter",instance="e"}': "_x9 1x90"},
        "13m",
        set(),
    ),
    ("a log that is another", {STOPPED: "0x2 1x40"}, "4m", {"ReplicationStopped"}),
    ("a log that is the master's", {STOPPED: "0x40"}, "4m", set()),
    ("a log that is another, in an experiment", {STOPPED: "1x40", **RUNNING}, "4m", set()),
    ("a first gap", {GAPS: "_x9 1x90", **WATCHED}, "12m", {"LogGaps"}),
    (
        "one more gap, in an experiment",
        {GAPS: "1x9 2x90", **WATCHED, **RUNNING},
        "12m",
        {"LogGaps"},
    ),
    ("an old gap", {GAPS: "1x90", **WATCHED}, "30m", set()),
    (
        "a message that was put aside, in an experiment",
        {ASIDE: "0x9 1x90", COPIED_ASIDE: "0x9 1x90", **RUNNING},
        "12m",
        {"MessagesPutAside"},
    ),
    ("a copy of it on a slave alone", {COPIED_ASIDE: "0x9 1x90"}, "12m", set()),
    ("a message that was put aside long ago", {ASIDE: "0x9 1x90"}, "25m", set()),
    ("a slave with old ones that became master", {ASIDE: "_x9 1x90", **WATCHED}, "12m", set()),
    ("a fault whose run is over", {FAULT: "1x40"}, "3m", {"FaultLeftActive"}),
    (
        "a fault while another run goes on",
        {FAULT: "1x40", 'failback_run_active{namespace="shop",cluster="demo",run="r2"}': "1x40"},
        "3m",
        {"FaultLeftActive"},
    ),
    ("a fault of a run that goes on", {FAULT: "1x40", **RUNNING}, "3m", set()),
    (
        "two masters, in an experiment",
        {f"failback_operator_pair_masters{{{PAIR}}}": "2x40", **RUNNING},
        "1m",
        {"FailbackTwoMasters"},
    ),
    ("one master", {f"failback_operator_pair_masters{{{PAIR}}}": "1x40"}, "1m", set()),
    (
        "a pair without a master",
        {f"failback_operator_pair_writable{{{PAIR}}}": "0x40"},
        "2m",
        {"FailbackPairNotWritable"},
    ),
    (
        "a pair without a master, in an experiment",
        {f"failback_operator_pair_writable{{{PAIR}}}": "0x40", **RUNNING},
        "2m",
        set(),
    ),
    (
        "a slave whose log is another",
        {f"failback_operator_slave_diverged{{{PAIR}}}": "1x40"},
        "1m",
        {"FailbackSlaveDiverged"},
    ),
    (
        "a slave whose log is its master's",
        {f"failback_operator_slave_diverged{{{PAIR}}}": "0x40"},
        "1m",
        set(),
    ),
    (
        "a slave that is far behind",
        {f"failback_operator_slave_lag_bytes{{{PAIR}}}": "300000000x40"},
        "6m",
        {"FailbackLagFallenBehind"},
    ),
    (
        "a slave that is far behind, in an experiment",
        {f"failback_operator_slave_lag_bytes{{{PAIR}}}": "300000000x40", **RUNNING},
        "6m",
        set(),
    ),
    ("an operation at one step for long", {STEP: "1x40"}, "11m", {"FailbackOperationStuck"}),
    ("an operation at one step", {STEP: "1x40"}, "9m", set()),
    ("a forced switch that waits", {WAITS % "Forced": "1x8"}, "2m", {"FailbackForcedSwitchWaits"}),
    ("a planned switch that waits", {WAITS % "Planned": "1x8"}, "2m", set()),
    (
        "a resource that nobody looks after",
        {PASS_AGE: "301x40", OPERATOR: "1x40"},
        "2m",
        {"FailbackOperatorStalled"},
    ),
    (
        "an operator that does not answer any more",
        {PASS_AGE: "10x10 stale", OPERATOR: "1x10 stale"},
        "17m",
        {"FailbackOperatorStalled"},
    ),
    (
        "an operator that has just gone",
        {PASS_AGE: "10x10 stale", OPERATOR: "1x10 stale"},
        "14m",
        set(),
    ),
    (
        "a resource that was deleted while the operator runs",
        {PASS_AGE: "10x10 stale", OPERATOR: "1x40"},
        "30m",
        set(),
    ),
    (
        "a resource that is looked after",
        {PASS_AGE: "60x40", OPERATOR: "1x40"},
        "2m",
        set(),
    ),
    ("another configuration", {UNAPPLIED: "1x40"}, "11m", {"FailbackConfigNotApplied"}),
    ("the configuration", {APPLIED: "1x40"}, "11m", set()),
    ("something left broken", {UNHEALED: "1x40"}, "6m", {"FailbackExperimentNotHealed"}),
    ("something broken while a run goes on", {UNHEALED: "1x40", **RUNNING}, "6m", set()),
]


def cases_for_promtool(case: Case) -> dict[str, Any]:
    """Return a check of which alerts fire, with any labels."""
    name, series, at, firing = case
    return {
        "name": name,
        "interval": "1m",
        "input_series": [{"series": key, "values": values} for key, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": at,
                "exp_samples": [
                    {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(firing)
                ],
            }
        ],
    }


def promtool(folder: Path, *arguments: str) -> str:
    command = [str(prometheus_home() / "promtool"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_alerts_fire_and_stay_silent_where_they_should(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(rules()))
    document = {
        "rule_files": ["rules.json"],
        "evaluation_interval": "30s",
        "tests": list(map(cases_for_promtool, CASES)),
    }
    (tmp_path / "test.json").write_text(json.dumps(document))
    assert promtool(tmp_path, "check", "rules", "rules.json") == ""
    assert promtool(tmp_path, "test", "rules", "test.json") == ""


def test_promtool_notices_a_wrong_expectation(tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps(rules()))
    wrong = ("wrong", {SYNC_AGE: "29x40"}, "2m", {"SlaveSyncStale"})
    document = {
        "rule_files": ["rules.json"],
        "evaluation_interval": "30s",
        "tests": [cases_for_promtool(wrong)],
    }
    (tmp_path / "test.json").write_text(json.dumps(document))
    assert "SlaveSyncStale" in promtool(tmp_path, "test", "rules", "test.json")


@pytest.mark.parametrize("alert", sorted(alerts()))
def test_every_alert_has_a_case_that_fires_it_and_one_that_does_not(alert: str) -> None:
    metrics = {name.partition("{")[0] for name in alerts()[alert]["expr"].split() if "{" in name}
    fired = [case for case in CASES if alert in case[3]]
    assert fired, metrics
    inputs = {name.partition("{")[0] for case in fired for name in case[1]}
    silent = [
        case
        for case in CASES
        if alert not in case[3] and inputs & {name.partition("{")[0] for name in case[1]}
    ]
    assert silent, "a silent case with the same metrics"


@pytest.mark.parametrize("alert", sorted(alerts()))
def test_every_alert_is_caused_on_real_processes(alert: str) -> None:
    """Where they fire; what is not provoked there is a promise that nobody has seen kept."""
    tests = Path(__file__).parents[2]
    files = [
        *tests.glob("integration/charts/test_alerts_*.py"),
        tests / "kube" / "test_alerts_of_clusters.py",
    ]
    waits = re.compile(
        rf'fires\("{alert}"|"{alert}" in \S*prometheus\.(fired|firing)|'
        rf'"{alert}" in await asyncio\.to_thread'
    )
    assert any(waits.search(file.read_text()) for file in files)
