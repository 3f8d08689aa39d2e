"""A cluster of the local runtime for chaos tests, and small experiments for it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from failback.chaos.experiment.spec import ChaosExperiment
from failback.chaos.faults.catalogue import parse_experiment
from failback.chaos.run.outcome import RunOutcome
from failback.chaos.run.run import run_arm
from failback.chaos.targets.local import ControlSocket, LocalTarget
from failback.chaos.targets.location import Location
from failback.common.programs import find_program
from tests.support.processes.child_process import failback_command, failback_environment

TIME_SCALE = 0.1

RESOURCES = """
apiVersion: failback.dev/v1alpha1
kind: NameServer
metadata: {name: ns}
spec: {replicas: 1, config: {failbackTimeScale: "SCALE"}}
---
apiVersion: failback.dev/v1alpha1
kind: BrokerCluster
metadata: {name: demo}
spec:
  pairs: 1
  slavesPerPair: 1
  slaveReadEnable: true
  nameServerRef: {name: ns}
  config: {failbackTimeScale: "SCALE"}
"""


class LocalCluster:
    """One name server, one pair, timers at a tenth."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def target(self) -> LocalTarget:
        return LocalTarget(ControlSocket.of_root(self.root), "demo")

    def call(self, command: str, **arguments: Any) -> dict[str, Any]:
        return ControlSocket.of_root(self.root).call(command, **arguments)

    def state(self, pod: str) -> str:
        return self.target().pod_state(pod)

    def run(
        self, experiment: ChaosExperiment, run_dir: Path, arm: str = "base"
    ) -> tuple[RunOutcome, list[str]]:
        """Run one arm; returns its outcome and the lines of progress."""
        lines: list[str] = []
        where = Location(root=str(self.root))
        outcome = run_arm(
            experiment, arm, 0, location=where, run_dir=run_dir, progress=lines.append
        )
        return outcome, lines


@contextmanager
def local_cluster(
    folder: Path, *options: str, time_scale: float = TIME_SCALE
) -> Iterator[LocalCluster]:
    """One pair and its name server, running; ``options`` are those of ``failback up``."""
    resources = RESOURCES.replace("SCALE", str(time_scale))
    with running_cluster(folder, resources, *options) as cluster:
        yield cluster


@contextmanager
def running_cluster(folder: Path, resources: str, *options: str) -> Iterator[LocalCluster]:
    """The cluster of a resource file; stopped afterwards, whatever happened to it."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "cluster.yaml"
    file.write_text(resources)
    root = folder / "root"
    run_failback("up", "-f", str(file), "--root", str(root), "--detach", *options)
    try:
        yield LocalCluster(root)
    finally:
        run_failback("down", "--root", str(root))


def run_failback(*arguments: str) -> str:
    done = subprocess.run(
        failback_command("cli", *arguments),
        env=failback_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def experiment(
    faults: list[dict[str, Any]],
    *,
    topic: str,
    name: str = "lab",
    members: int = 1,
    time_scale: float = TIME_SCALE,
    **spec: Any,
) -> ChaosExperiment:
    """A short experiment; seconds in it are unscaled."""
    group = spec.pop("group", {})
    load = spec.pop("load", {})
    workload = spec.pop("workload", {})
    document = {
        "apiVersion": "failback.dev/v1alpha1",
        "kind": "ChaosExperiment",
        "metadata": {"name": name},
        "spec": {
            "clusterRef": {"name": "demo"},
            "seed": 42,
            "timeScale": time_scale,
            "workload": {
                "topics": [
                    {"name": topic, "queues": 4, "ratePerSecond": 100, "bodyBytes": 128, **load}
                ],
                "groups": [
                    {
                        "name": f"group-{topic}",
                        "topic": topic,
                        "members": members,
                        "start": {"spreadSeconds": 0},
                        "handler": {"meanMs": 1},
                        **group,
                    }
                ],
                **workload,
            },
            "faults": faults,
            "warmupSeconds": 5,
            "cooldownSeconds": 5,
            "steadyState": {"minProducePerSecond": 20, "holdSeconds": 5, "timeoutSeconds": 30},
            "drain": {"timeoutSeconds": 60, "quietSeconds": 5},
            "healDeadlineSeconds": 30,
            "recoverTimeoutSeconds": 40,
            **spec,
        },
    }
    return parse_experiment(json.dumps(document))


def run_arm_command(
    cluster: LocalCluster, wanted: ChaosExperiment, run_dir: Path, arm: str = "base"
) -> list[str]:
    """The command line of one repetition in a process that a test can kill."""
    run_dir.mkdir(parents=True, exist_ok=True)
    source = run_dir / "experiment.yaml"
    source.write_text(wanted.source)
    return [
        *(sys.executable, "-m", "failback.chaos", "run-arm", str(source)),
        *("--arm", arm, "--seed", str(wanted.seed)),
        *("--time-scale", str(wanted.spec.time_scale)),
        *("--run-dir", str(run_dir), "--location", Location(root=str(cluster.root)).to_json()),
    ]


def evidence(run_dir: Path, phase: str) -> dict[str, dict[str, Any]]:
    """The last evidence of every fault in a phase."""
    lines = (run_dir / "evidence.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return {each["fid"]: each for each in found if each["phase"] == phase}


def rows(run_dir: Path, table: str) -> list[dict[str, Any]]:
    """All rows of one table of a run."""
    files = sorted((run_dir / "lake" / f"table={table}").rglob("*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def duplicates(run_dir: Path) -> int:
    """Deliveries of a copy that its group was given before, after the warm-up, counted by hand."""
    run = json.loads((run_dir / "run.json").read_text())
    warm = run["zero"]["mono_ns"] + run["warmup_end_ns"]
    seen: set[tuple[Any, ...]] = set()
    repeats = 0
    for row in sorted(rows(run_dir, "deliver"), key=lambda row: row["bt"]):
        copy = (row["grp"], row["broker"], row["ptopic"], row["qid"], row["qoff"])
        repeats += copy in seen and row["bt"] >= warm
        seen.add(copy)
    assert seen, "nothing was delivered"
    return repeats


def lost(run_dir: Path) -> int:
    """Acknowledged messages that nobody was given."""
    acknowledged = {
        (row["lane"], row["lseq"])
        for row in rows(run_dir, "produce")
        if row["res"] in ("OK", "OK_DEGRADED")
    }
    delivered = {(row["lane"], row["lseq"]) for row in rows(run_dir, "deliver")}
    assert acknowledged, "nothing was acknowledged"
    return len(acknowledged - delivered)


def network_rules(cluster: LocalCluster) -> str:
    """Where rules of ours are in the namespaces of an isolated cluster; empty: nowhere."""
    names = json.loads((cluster.root / "network.json").read_text())["namespaces"]
    nsenter, nft = find_program("nsenter"), find_program("nft")
    shown = [
        subprocess.run(
            [str(nsenter), f"--net=/run/netns/{name}", "--", str(nft), "list", "ruleset"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in names
    ]
    lines = [line.strip() for text in shown for line in text.splitlines()]
    return "; ".join(line for line in lines if "failback_" in line or "queue" in line)
