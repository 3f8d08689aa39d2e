"""The fault that switches roles, carried out by a real operator and seen at name servers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.chaos.kube_cluster import allow, chaos_account, experiment_text
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.quick_pair import QuickPair, hasty_operator
from tests.support.processes.child_process import failback_command, failback_environment


@pytest.mark.alone  # a witness that is late beside other tests makes the run Inconclusive
def test_a_switch_is_proved_by_name_servers_and_healed_when_it_is_over(
    namespace: Namespace, node: NodeProcess, tmp_path: Path
) -> None:
    fault = {
        "id": "f1",
        "fault": "swap-roles",
        "at": 5,
        "target": {"pair": "orders-0"},
        "with": {"offsetPolicy": "CopyMax"},
    }
    with hasty_operator(namespace):
        pair = QuickPair(namespace)
        pair.create()
        pair.create_topic("ORDERS", "billing")
        pair.wait_settled()
        allow(namespace)
        kubeconfig = chaos_account(namespace).kubeconfig
        experiment = json.loads(experiment_text([fault], namespace))
        experiment["spec"]["clusterRef"]["name"] = "orders"
        for name, guard in (("refused", {}), ("allowed", {"consent": ["role-swap"]})):
            experiment["spec"]["guard"] = guard
            (tmp_path / f"{name}.yaml").write_text(json.dumps(experiment))
            done = subprocess.run(
                [
                    *failback_command("cli", "experiment", "run", str(tmp_path / f"{name}.yaml")),
                    *("--target", "kube", "--no-report", "--runs", str(tmp_path / name)),
                    *("--kubeconfig", str(kubeconfig)),
                ],
                env={**failback_environment(), "POD_IP": "127.0.0.1"},
                capture_output=True,
                text=True,
                timeout=600,
                check=False,
            )
            said = done.stdout + done.stderr
            assert ("needs guard.consent: [role-swap]" in said) is (name == "refused"), said
        assert done.returncode == 0, said
        (outcome,) = (tmp_path / "allowed").rglob("outcome.json")
        (found,) = json.loads(outcome.read_text())["faults"]
        assert (found["proved"], found["proof"]["ROUTES"], found["proof"]["K8"]) == (True,) * 3
        (switch,) = pair.api.list("RoleSwitch")
        assert switch["status"]["phase"] == "Complete"
        assert pair.wait_settled()["status"]["pairs"][0]["masterMember"] == 1
