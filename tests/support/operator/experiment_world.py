"""A ChaosExperiment and what surrounds it, for tests of its planning: a world that plays along."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from failback.operator.kinds.chaos_experiment import ChaosExperiment
from failback.operator.planning.jobs.experiment import plan_experiment
from failback.operator.planning.observed.observed import ObservedExperiment
from failback.operator.planning.plan.types import Apply, Delete, Plan
from failback.operator.render.jobs import JobContext
from failback.operator.schema.decoding import decode

NOW = 1_700_000_000.0
CONTEXT = JobContext("shop", "0.1.0")
READY = [
    {"type": kind, "status": "True", "reason": "Fine"}
    for kind in ("Ready", "RolesConsistent", "ConfigApplied")
]


def experiment(metadata: Mapping[str, Any] | None = None, **spec: Any) -> ChaosExperiment:
    """A kill of the master of pair 0, with two arms."""
    found = decode(
        {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "ChaosExperiment",
            "metadata": {"name": "kill", "namespace": "shop", "uid": "u-1", **(metadata or {})},
            "spec": {
                "clusterRef": {"name": "orders"},
                "seed": 7,
                "arms": [{"name": "stay"}, {"name": "handover"}],
                "workload": {"topics": [{"name": "ORDERS"}]},
                "faults": [
                    {
                        "id": "f1",
                        "fault": "kill",
                        "at": 30,
                        "target": {"pair": "orders-0", "role": "Master"},
                        "with": {"downSeconds": 12},
                    }
                ],
                **spec,
            },
        }
    )
    assert isinstance(found, ChaosExperiment)
    return found


def summary(**changes: Any) -> dict[str, Any]:
    """What a run that went well leaves."""
    return {
        "exit": 0,
        "verdict": "Pass",
        "reasons": [],
        "recovered": True,
        "targets": [
            {
                "pair": "pair-0",
                "member": "0",
                "brokerId": 0,
                "address": "a:10911",
                "pod": "orders-0-0-0",
            }
        ],
        "faults": [
            {
                "id": "f1",
                "fault": "kill",
                "proved": True,
                "issued": 30.0,
                "effect": 30.1,
                "heal": 50.0,
            }
        ],
        "run": "kill-stay-0-0badcafe",
        "runSha256": "ab" * 32,
        "reportUri": "file:///runs/kill/stay-000/report",
        "truncated": False,
    } | changes


class World:
    """Objects around one experiment; :meth:`run` plans and carries out until nothing moves."""

    def __init__(self, found: ChaosExperiment) -> None:
        self.experiment = found
        self.status: dict[str, Any] = {}
        self.labels: dict[str, str] | None = {"failback.dev/chaos-allowed": "true"}
        self.cluster: dict[str, Any] | None = {
            "metadata": {"name": "orders"},
            "spec": {"pairs": 1},
            "status": {"conditions": [dict(each) for each in READY]},
        }
        self.config_maps = {"orders-0-0": {"data": {"broker.conf": "brokerId=0\n"}}}
        self.broker_pods: list[dict[str, Any]] = []
        self.lease: dict[str, Any] | None = None
        self.claim: dict[str, Any] | None = None
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.progress: dict[str, Any] | None = None
        self.settings: dict[str, Any] | None = None
        self.writes_per_life: int | None = None
        """After so many writes the operator dies in a pass; ``None`` = never."""
        self.events: list[tuple[str, str]] = []
        self.applied: list[tuple[str, str]] = []
        self.finished = False
        self.now = NOW
        self.refused_pods: dict[str, str] = {}

    def plan(self, *, deleting: bool = False) -> Plan:
        observed = ObservedExperiment(
            at=self.now,
            settings=self.settings,
            namespace_labels=self.labels,
            cluster=self.cluster,
            config_maps=self.config_maps,
            broker_pods=self.broker_pods,
            lease=self.lease,
            jobs=self.jobs,
            pods=self.pods,
            refused_pods=self.refused_pods,
            claim=self.claim,
            progress=self.progress,
        )
        return plan_experiment(
            self.experiment,
            self.status,
            observed,
            CONTEXT,
            self.now,
            drawn_seed=99,
            deleting=deleting,
        )

    def step(self, *, deleting: bool = False) -> Plan:
        """Plan once and carry it out, as an operator and the API server would."""
        found = self.plan(deleting=deleting)
        for number, action in enumerate(found.actions):
            if number == self.writes_per_life:
                return found
            match action:
                case Apply(manifest):
                    self._apply(dict(manifest))
                case Delete((kind, name), _, propagation):
                    assert kind == "Job"
                    if propagation == "Foreground":
                        self.jobs[name]["metadata"]["deletionTimestamp"] = "now"
                    else:
                        del self.jobs[name]
                case _:
                    raise AssertionError(action)
        if len(found.actions) == self.writes_per_life:
            return found
        self.events += [(each.reason, each.message) for each in found.events]
        self.status = json.loads(json.dumps(found.status))
        self.finished = deleting and found.finalizer is False
        return found

    def run(self, *, deleting: bool = False) -> None:
        """Go on until a pass changes nothing."""
        for _ in range(30):
            before = json.dumps([self.status, sorted(self.jobs)])
            found = self.step(deleting=deleting)
            if not found.actions and json.dumps([self.status, sorted(self.jobs)]) == before:
                return
            if self.finished:
                return
        raise AssertionError("the plan does not come to rest")

    def _apply(self, manifest: dict[str, Any]) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        self.applied.append((kind, name))
        if kind == "Job":
            manifest["metadata"]["uid"] = f"uid-{name}"
            self.jobs[name] = manifest
        elif kind == "PersistentVolumeClaim":
            self.claim = manifest
        elif kind == "ConfigMap":
            self.settings = manifest

    # --- what happens to Jobs --------------------------------------------------------------------

    def end(
        self, name: str, message: Mapping[str, Any] | str | None, code: int = 0, why: str = ""
    ) -> None:
        """Let a Job end, its pod's container with a message."""
        text = message if isinstance(message, str) else json.dumps(message) if message else ""
        failed = {"type": "Failed", "status": "True", "reason": why or "BackoffLimitExceeded"}
        complete = {"type": "Complete", "status": "True"}
        self.jobs[name]["status"] = {"conditions": [failed if code or why else complete]}
        if why:  # its node is lost: nobody wrote how the container ended
            self.pods.pop(name, None)
            return
        ended = {"exitCode": code, "message": text}
        self.pods[name] = {
            "status": {"containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}
        }

    def condition(self, kind: str) -> tuple[str, str]:
        found = next(each for each in self.status["conditions"] if each["type"] == kind)
        return found["status"], found["reason"]

    def message(self, kind: str) -> str:
        found = next(each for each in self.status["conditions"] if each["type"] == kind)
        return str(found["message"])
