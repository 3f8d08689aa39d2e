"""An experiment from its first pass to its verdict, and every way in which it can end otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.operator.experiment_world import NOW, World, experiment, summary

STAY, HANDOVER, HEAL = "fbx-kill-stay-0", "fbx-kill-handover-0", "fbx-kill-heal"


def test_one_job_after_the_other_and_the_results_of_all() -> None:
    world = World(experiment())
    world.run()
    assert sorted(world.jobs) == [STAY]
    assert world.applied == [
        ("PersistentVolumeClaim", "failback-runs"),
        ("ConfigMap", "fbx-kill"),
        ("Job", STAY),
    ]
    assert (world.status["activeArm"], world.status["seed"]) == ("stay", 7)
    assert world.condition("Injected") == ("Unknown", "Running")

    world.end(STAY, summary())
    world.run()
    assert sorted(world.jobs) == [HANDOVER, STAY]
    assert world.status["activeArm"] == "handover"
    world.end(HANDOVER, summary(verdict="Fail", exit=1, reasons=["LOST: 3 messages"]))
    world.run()

    assert (world.status["phase"], world.status["verdict"]) == ("Completed", "Fail")
    assert "activeArm" not in world.status
    assert [(each["arm"], each["verdict"]) for each in world.status["runs"]] == [
        ("stay", "Pass"),
        ("handover", "Fail"),
    ]
    ended = world.status["runs"][0]
    assert ended["reportUri"] == "file:///runs/kill/stay-000/report"
    assert world.condition("Injected") == ("True", "Proved")
    assert world.condition("Recovered") == ("True", "Healed")
    assert world.condition("SteadyStateRestored") == ("True", "Held")
    assert [each["event"] for each in world.status["timeline"]][:3] == [
        "stay-0 f1 kill issued",
        "stay-0 f1 kill effect",
        "stay-0 f1 kill heal",
    ]
    assert world.status["resolvedTargets"] == summary()["targets"]
    assert [reason for reason, _ in world.events] == ["ExperimentStarted", "ExperimentFinished"]


@pytest.mark.parametrize("writes_per_life", [1, 2])
def test_an_operator_that_dies_again_and_again_gets_to_the_end(writes_per_life: int) -> None:
    world = World(experiment())
    world.writes_per_life = writes_per_life
    world.run()
    assert world.applied == [
        ("PersistentVolumeClaim", "failback-runs"),
        ("ConfigMap", "fbx-kill"),
        ("Job", STAY),
    ]
    for job in (STAY, HANDOVER):
        world.end(job, summary())
        world.run()
    assert world.status["phase"] == "Completed"
    assert [name for kind, name in world.applied if kind == "Job"] == [STAY, HANDOVER]


def test_settings_that_somebody_changed_are_put_right_before_a_job() -> None:
    world = World(experiment())
    world.run()
    assert world.settings is not None
    kept = world.settings["data"]
    world.jobs.clear()
    world.settings["data"] = {"experiment.yaml": "spec: {}"}
    world.run()
    assert world.settings["data"] == kept


def test_arms_rotate_by_repetition() -> None:
    world = World(experiment(repetitions=2))
    for name in (STAY, HANDOVER, "fbx-kill-handover-1", "fbx-kill-stay-1"):
        world.run()
        assert name in world.jobs
        world.end(name, summary())
    world.run()
    assert world.status["phase"] == "Completed"


def test_a_seed_is_drawn_once_and_kept() -> None:
    world = World(experiment(seed=None))
    world.run()
    assert world.status["seed"] == 99
    world.status["seed"] = 5
    world.run()
    assert world.status["seed"] == 5


def cluster_says(kind: str, status: str, reason: str) -> Any:
    def change(world: World) -> None:
        assert world.cluster is not None
        conditions = world.cluster["status"]["conditions"]
        found = next(each for each in conditions if each["type"] == kind)
        found |= {"status": status, "reason": reason}

    return change


def operation(world: World) -> None:
    assert world.cluster is not None
    world.cluster["status"]["currentOperation"] = {"type": "Roll"}


def held_lease(world: World) -> None:
    world.lease = {
        "metadata": {"name": "failback-orders-chaos"},
        "spec": {
            "holderIdentity": "other",
            "renewTime": "2023-11-14T22:13:15.000000Z",
            "leaseDurationSeconds": 30,
        },
    }


def unhealed_lease(world: World) -> None:
    note = {"failback.dev/run-dir": "/runs/old/base-000"}
    world.lease = {"metadata": {"name": "failback-orders-chaos", "annotations": note}}


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        (
            lambda world: world.labels.clear(),
            "NotAllowed",
            "namespace shop has no label failback.dev/chaos-allowed=true",
        ),
        (
            lambda world: setattr(world, "labels", None),
            "NotAllowed",
            "the labels of namespace shop can't be read",
        ),
        (
            lambda world: setattr(world, "cluster", None),
            "ClusterMissing",
            "there is no BrokerCluster orders",
        ),
        (
            cluster_says("Ready", "False", "SlaveDown"),
            "ClusterBusy",
            "cluster orders: Ready is False/SlaveDown",
        ),
        (
            cluster_says("RolesConsistent", "Unknown", "UnableToRetrieve"),
            "ClusterBusy",
            "cluster orders: RolesConsistent is Unknown/UnableToRetrieve",
        ),
        (operation, "ClusterBusy", "cluster orders: Roll is in progress"),
        (held_lease, "ClusterBusy", "lease failback-orders-chaos is held by other"),
        (
            unhealed_lease,
            "GuardRefused",
            "lease failback-orders-chaos: /runs/old/base-000 is not healed",
        ),
    ],
)
def test_a_guard_refuses_and_no_job_is_made(change: Any, reason: str, message: str) -> None:
    world = World(experiment())
    change(world)
    world.run()
    assert world.jobs == {}
    assert world.condition("Injected") == ("False", reason)
    assert world.message("Injected") == message
    assert world.status["phase"] == "Pending"
    assert world.events == [("ExperimentRefused", message)]


def test_what_no_waiting_changes_is_refused_by_name() -> None:
    fault = {"id": "p", "fault": "pause", "target": {"pair": "orders-0"}}
    world = World(experiment(faults=[{**fault, "with": {"durationSeconds": 90}}]))
    probe = {"periodSeconds": 10, "failureThreshold": 6}
    world.broker_pods = [{"spec": {"containers": [{"name": "broker", "livenessProbe": probe}]}}]
    world.run()
    assert world.message("Injected") == (
        "p: a pause of 90 s is longer than the liveness window of 60 s: "
        "set lifecycle.livenessProbe: false"
    )
    world = World(experiment(faults=[{"id": "x", "fault": "kill", "target": {"pair": "orders-7"}}]))
    world.run()
    assert world.message("Injected") == "x: there is no pair orders-7, there is orders-0"
    world = World(experiment(faults=[{"id": "s", "fault": "swap-roles"}]))
    world.run()
    assert world.message("Injected") == "s: swap-roles needs guard.consent: [role-swap]"
    world = World(experiment(job={"runVolume": {"claimName": "mine"}}))
    world.run()
    assert world.message("Injected") == "there is no PersistentVolumeClaim mine"


def test_an_experiment_never_consents_for_its_namespace() -> None:
    world = World(experiment(guard={"requireNamespaceLabel": True}))
    world.labels = {}
    world.run()
    assert world.jobs == {}
    assert (
        world.message("Injected") == "namespace shop has no label failback.dev/chaos-allowed=true"
    )
    world.labels = {"failback.dev/chaos-allowed": "true"}
    world.run()
    assert STAY in world.jobs
    assert "FieldIgnored" in [reason for reason, _ in world.events]


def test_a_refused_experiment_begins_when_the_guard_gives_way() -> None:
    world = World(experiment())
    world.labels = {}
    world.run()
    world.labels = {"failback.dev/chaos-allowed": "true"}
    world.run()
    assert STAY in world.jobs


def test_an_arm_is_in_force_before_its_job() -> None:
    arms = [{"name": "stay", "brokerConfig": {"flushConsumerOffsetInterval": "1000"}}]
    world = World(experiment(arms=arms))
    world.run()
    assert world.jobs == {}
    assert world.status["activeArm"] == "stay"
    assert world.condition("Injected") == ("False", "ApplyingArm")
    assert "ConfigMap orders-0-0 has no flushConsumerOffsetInterval=1000" in world.message(
        "Injected"
    )
    cluster_says("ConfigApplied", "False", "OutOfSync")(world)
    text = "brokerId=0\nflushConsumerOffsetInterval=1000\n"
    world.config_maps["orders-0-0"]["data"]["broker.conf"] = text
    world.run()
    assert world.jobs == {}
    cluster_says("ConfigApplied", "True", "Fine")(world)
    world.run()
    assert STAY in world.jobs


def test_a_slip_in_an_arm_is_refused_and_nothing_changes() -> None:
    arms = [{"name": "stay", "brokerConfig": {"flushConsumerOffsetIntervall": "1000"}}]
    world = World(experiment(arms=arms))
    world.run()
    assert world.condition("Injected") == ("False", "UnknownKey")
    near = 'did you mean "flushConsumerOffsetInterval"'
    assert near in world.message("Injected")
    assert "activeArm" not in world.status
    accepted = {"failback.dev/accept-unknown-key": "flushConsumerOffsetIntervall"}
    assert world.cluster is not None
    world.cluster["metadata"]["annotations"] = accepted
    world.run()
    assert world.status["activeArm"] == "stay"


def test_progress_is_shown_while_a_job_runs() -> None:
    world = World(experiment())
    world.run()
    target = summary()["targets"][0]
    world.progress = {"phase": "SteadyState", "fault": None, "resolvedTargets": [], "t": None}
    world.run()
    assert world.status["phase"] == "SteadyState"
    world.progress = {"phase": "Injecting", "fault": "f1", "resolvedTargets": [target], "t": 3.0}
    world.run()
    assert world.status["phase"] == "Injecting"
    assert world.status["resolvedTargets"] == [target]
    world.progress = None  # unreachable: the phase stays
    world.run()
    assert world.status["phase"] == "Injecting"
    world.progress = {"phase": "Recovering", "fault": None, "resolvedTargets": [target], "t": 9.0}
    world.run()
    assert [reason for reason, _ in world.events] == [
        "ExperimentStarted",
        "FaultInjected",
        "FaultHealed",
    ]
    assert world.status["resolvedTargets"] == [target]


def test_an_image_that_cannot_be_pulled_is_named() -> None:
    world = World(experiment())
    world.run()
    waiting = {"reason": "ImagePullBackOff", "message": "not found"}
    status = {"name": "main", "image": "failback/chaos:9", "state": {"waiting": waiting}}
    world.pods[STAY] = {"status": {"containerStatuses": [status]}}
    world.run()
    assert world.condition("Injected") == ("False", "ImagePullError")
    assert world.message("Injected") == "failback/chaos:9: ImagePullBackOff: not found"
    world.pods.clear()
    world.refused_pods = {STAY: "exceeded quota: q"}
    world.run()
    assert world.condition("Injected") == ("False", "PodRefused")
    world.refused_pods = {}
    world.run()
    assert world.condition("Injected") == ("Unknown", "Running")


def test_a_fault_that_was_not_proved_stays_said() -> None:
    world = World(experiment())
    world.run()
    fault = {**summary()["faults"][0], "proved": False}
    world.end(STAY, summary(faults=[fault], verdict="Inconclusive", exit=3), code=3)
    world.run()
    world.end(HANDOVER, summary())
    world.run()
    assert world.condition("Injected") == ("False", "NotProved")
    assert world.message("Injected") == "stay-0: FAULT_NOT_PROVED: f1"
    assert world.status["verdict"] == "Inconclusive"


def test_a_run_whose_harness_died_proved_nothing() -> None:
    world = World(experiment())
    world.run()
    died = summary(run="", faults=[], verdict="Inconclusive", exit=3, reasons=["it ended with 1"])
    world.end(STAY, died, code=3)
    world.run()
    world.end(HANDOVER, summary())
    world.run()
    assert world.condition("Injected") == ("False", "JobFailed")
    assert world.message("Injected") == "stay-0: it ended with 1"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (None, "SummaryInvalid: the Job left no termination message"),
        ("no json", "SummaryInvalid: the termination message is no JSON"),
        ("[1]", "SummaryInvalid: the termination message is no JSON object"),
        ({"verdict": "Pass"}, "SummaryInvalid: exit is missing or no int"),
        (summary(verdict="Great"), "SummaryInvalid: verdict is 'Great'"),
        (summary(faults=[{}]), "SummaryInvalid: a fault has no id"),
    ],
)
def test_a_job_without_a_summary_is_healed_and_inconclusive(message: Any, why: str) -> None:
    world = World(experiment())
    world.run()
    world.end(STAY, message)
    world.run()
    assert world.condition("Recovered") == ("False", "HealPending")
    assert HANDOVER not in world.jobs
    world.end(HEAL, None)
    world.run()
    assert world.status["runs"][0]["verdict"] == "Inconclusive"
    assert world.status["runs"][0]["reasons"][0].startswith(why)
    assert world.condition("Recovered") == ("True", "Healed")
    assert HEAL not in world.jobs
    assert HANDOVER in world.jobs


def test_the_node_of_a_job_is_lost() -> None:
    world = World(experiment())
    world.run()
    world.end(STAY, None, why="DeadlineExceeded")
    world.run()
    world.end(HEAL, None)
    world.run()
    assert "(DeadlineExceeded)" in world.status["runs"][0]["reasons"][0]


def test_a_heal_that_fails_ends_the_experiment_and_says_what_to_type() -> None:
    world = World(experiment())
    world.run()
    world.end(STAY, summary(exit=5, verdict="Inconclusive"), code=5)
    world.run()
    world.end(HEAL, None, code=5)
    world.run()
    assert world.status["phase"] == "Failed"
    assert world.condition("Recovered") == ("False", "HealFailed")
    text = "fbx-kill-heal ended with exit code 5: type failback experiment heal /runs/kill"
    assert world.message("Recovered") == text
    assert ("HealFailed", text) in world.events
    assert HANDOVER not in world.jobs


@pytest.mark.parametrize(("code", "reason"), [(4, "GuardRefused"), (2, "JobFailed")])
def test_a_run_that_was_refused_ends_the_experiment(code: int, reason: str) -> None:
    world = World(experiment())
    world.run()
    refused = {"faults": [], "targets": [], "run": "", "verdict": "Inconclusive"}
    world.end(STAY, summary(exit=code, reasons=["DiskFree: 95 % full"], **refused), code=code)
    world.run()
    assert world.status["phase"] == "Failed"
    assert world.condition("Injected") == ("False", reason)
    assert world.message("Injected") == "stay-0: DiskFree: 95 % full"


def test_abort_stops_the_job_heals_and_ends() -> None:
    world = World(experiment())
    world.run()
    world.experiment = experiment(abort=True)
    world.run()
    assert world.jobs[STAY]["metadata"]["deletionTimestamp"]
    assert HEAL not in world.jobs, "the run still heals by itself"
    assert world.status.get("phase") != "Aborted"
    del world.jobs[STAY]
    world.run()
    assert world.condition("Recovered") == ("False", "HealPending")
    world.end(HEAL, None)
    world.run()
    assert world.status["phase"] == "Aborted"
    assert world.condition("Recovered") == ("True", "Healed")
    assert "activeArm" not in world.status
    assert [reason for reason, _ in world.events][1:] == ["ExperimentAborted"]


def test_abort_before_anything_began_heals_nothing() -> None:
    world = World(experiment(abort=True))
    world.run()
    assert world.jobs == {}
    assert world.status["phase"] == "Aborted"


@pytest.mark.parametrize("deleting", [False, True])
def test_a_job_that_the_status_does_not_tell_of_is_stopped_and_healed(deleting: bool) -> None:
    world = World(experiment())
    world.run()
    del world.status["startedAt"]  # the operator died between the Job and the status
    world.experiment = experiment(metadata=deleted(0)) if deleting else experiment(abort=True)
    world.run(deleting=deleting)
    assert world.jobs[STAY]["metadata"]["deletionTimestamp"]
    assert not world.finished
    del world.jobs[STAY]
    world.run(deleting=deleting)
    assert HEAL in world.jobs
    world.end(HEAL, None)
    world.run(deleting=deleting)
    assert world.finished or world.status["phase"] == "Aborted"


def deleted(seconds_ago: float) -> dict[str, str]:
    assert seconds_ago in (0, 1000)
    stamp = "2023-11-14T22:13:20Z" if seconds_ago == 0 else "2023-11-14T21:56:40Z"
    return {"deletionTimestamp": stamp}


def test_deletion_waits_for_the_stop_and_the_heal() -> None:
    world = World(experiment())
    world.run()
    world.experiment = experiment(metadata=deleted(0))
    world.run(deleting=True)
    assert world.jobs[STAY]["metadata"]["deletionTimestamp"]
    assert not world.finished
    del world.jobs[STAY]
    world.run(deleting=True)
    assert HEAL in world.jobs
    world.end(HEAL, None, code=5)
    world.step(deleting=True)
    assert HEAL not in world.jobs, "it is tried again"
    world.run(deleting=True)
    world.end(HEAL, None)
    world.run(deleting=True)
    assert world.finished


def test_deletion_gives_up_after_its_time_and_says_so() -> None:
    world = World(experiment())
    world.run()
    world.experiment = experiment(metadata=deleted(1000))
    world.now = NOW
    world.run(deleting=True)
    assert world.finished
    assert world.events[-1][0] == "HealFailed"


@pytest.mark.parametrize("phase", ["Completed", None])
def test_deletion_of_what_left_nothing_is_immediate(phase: str | None) -> None:
    world = World(experiment())
    if phase is not None:
        world.status = {"phase": phase, "startedAt": "2023-11-14T22:13:20Z"}
    world.run(deleting=True)
    assert world.finished
    assert world.jobs == {}


def test_a_finished_experiment_changes_nothing() -> None:
    world = World(experiment())
    world.status = {"phase": "Completed", "runs": []}
    found = world.plan()
    assert (found.actions, found.events, found.status) == ((), (), world.status)


def test_a_paused_experiment_makes_no_job_and_follows_the_one_it_has() -> None:
    paused = {"annotations": {"failback.dev/pause-reconciliation": "true"}}
    world = World(experiment(metadata=paused))
    world.run()
    assert world.jobs == {}
    assert world.condition("Paused") == ("True", "Requested")


def test_the_timeline_ends_at_its_limit() -> None:
    world = World(experiment())
    world.run()
    world.status["timeline"] = [{"t": 0, "event": "x"}] * 199
    world.end(STAY, summary())
    world.run()
    assert len(world.status["timeline"]) == 200
    assert world.status["timelineTruncated"] is True


def test_a_finalizer_waits_for_a_run_that_has_begun_and_for_its_heal() -> None:
    world = World(experiment())
    assert world.step().finalizer is False, "nothing was injected yet"
    world.run()
    assert world.plan().finalizer is True, "its Job runs"
    for job in (STAY, HANDOVER):
        world.end(job, summary())
        world.run()
    assert world.status["phase"] == "Completed"
    assert world.plan().finalizer is False
    world.status["conditions"] = [
        {"type": "Recovered", "status": "False", "reason": "HealFailed", "message": ""}
    ]
    assert world.plan().finalizer is True, "somebody has to heal"


def test_a_phase_never_goes_back_to_pending() -> None:
    world = World(experiment())
    world.step()
    assert world.status["phase"] == "Pending", "nothing has begun"
    world.run()
    world.progress = {"phase": "Pending", "resolvedTargets": summary()["targets"]}
    world.run()
    seen = [world.status["phase"]]
    for phase in ("SteadyState", "Injecting", "Recovering", "Draining"):
        world.progress = {"phase": phase}
        world.run()
        seen.append(world.status["phase"])
    world.progress = None
    world.end(STAY, summary())
    seen.append(world.step().status["phase"])
    world.run()
    seen.append(world.status["phase"])
    order = ["Preparing", "SteadyState", "Injecting", "Recovering", "Draining"]
    assert seen == [*order, "Preparing", "Preparing"]
