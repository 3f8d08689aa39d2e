"""Links of Apache's own brokers are cut like ours: 4.9.7, whose pods have networks of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from failback.operator.local.network import missing
from tests.support.chaos.chaos_lab import experiment, lost, network_rules, running_cluster
from tests.support.java.apache import server_home

RESOURCES = """
apiVersion: failback.dev/v1alpha1
kind: NameServer
metadata: {name: ns}
spec: {replicas: 1, engine: {type: Apache, version: 4.9.7}}
---
apiVersion: failback.dev/v1alpha1
kind: BrokerCluster
metadata: {name: demo}
spec:
  slaveReadEnable: true
  nameServerRef: {name: ns}
  engine: {type: Apache, version: 4.9.7}
"""


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_java_pair_is_cut_from_itself_and_from_clients(tmp_path: Path) -> None:
    server_home()
    faults = [
        {
            "id": name,
            "fault": name,
            "at": 1,
            "target": {"pair": "demo-0"},
            "with": {"durationSeconds": 8, **after},
        }
        for name, after in (
            ("cut-replication", {}),
            ("cut-clients", {"after": "accept:cut-replication"}),
        )
    ]
    wanted = experiment(
        faults,
        topic="java",
        time_scale=1.0,
        warmupSeconds=2,
        cooldownSeconds=1,
        steadyState={"minProducePerSecond": 20, "holdSeconds": 1, "timeoutSeconds": 60},
        drain={"timeoutSeconds": 60, "quietSeconds": 2},
        recoverTimeoutSeconds=120,
    )
    run_dir = tmp_path / "run"
    with running_cluster(tmp_path, RESOURCES, "--isolate-network") as cluster:
        outcome, said = cluster.run(wanted, run_dir)
        assert outcome.passed, (outcome, said)
        assert network_rules(cluster) == ""
    lines = [json.loads(line) for line in (run_dir / "evidence.jsonl").read_text().splitlines()]
    healed = {each["fid"]: each["proof"]["LINK"] for each in lines if each["phase"] == "heal"}
    assert "its slaves' stood still" in healed["cut-replication"]
    assert "a client gets no answer" in healed["cut-clients"]
    assert lost(run_dir) == 0
