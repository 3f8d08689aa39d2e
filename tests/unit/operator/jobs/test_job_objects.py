"""The rendered Jobs: what they start, as whom, and what they can reach."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML

from failback.analytics.analysis.engines.spark.pods import TEMPLATE
from failback.chaos.experiment.schedule import plan_run
from failback.chaos.faults.catalogue import parse_experiment
from failback.chaos.run.run import default_run_dir
from failback.cli.app import app
from failback.operator.kinds.reconsumption_report import ReconsumptionReport
from failback.operator.render.common import object_name
from failback.operator.render.experiment_jobs import (
    experiment_config_map,
    experiment_job,
    heal_job,
    longest_seconds,
)
from failback.operator.render.jobs import RUNS, JobContext, run_claim, run_folder
from failback.operator.render.report_jobs import (
    report_job,
    spark_application,
    spark_submit_arguments,
)
from failback.operator.schema.decoding import decode
from tests.support.operator.experiment_world import experiment
from tests.support.processes.child_process import ROOT

CONTEXT = JobContext("shop", "0.1.0")


def pod_of(job: dict[str, Any]) -> dict[str, Any]:
    return dict(job["spec"]["template"]["spec"])


def report(**spec: Any) -> ReconsumptionReport:
    found = decode(
        {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "ReconsumptionReport",
            "metadata": {"name": "kill", "namespace": "shop", "uid": "u"},
            "spec": {"experimentRef": {"name": "kill"}, **spec},
        }
    )
    assert isinstance(found, ReconsumptionReport)
    return found


def test_the_file_of_a_run_is_read_by_the_harness_as_it_was_written() -> None:
    wanted = experiment(timeScale="0.5", thresholds={"maxDuplicateRatio": "0.01"}, job={})
    text = experiment_config_map(wanted, 1234, CONTEXT)["data"]["experiment.yaml"]
    read = parse_experiment(text)
    assert (read.name, read.namespace, read.cluster, read.seed) == ("kill", "shop", "orders", 1234)
    assert [arm.name for arm in read.arms] == ["stay", "handover"]
    assert read.spec.time_scale == 0.5
    assert read.spec.thresholds.max_duplicate_ratio == 0.01
    assert read.arms[0].faults[0].with_ == {"downSeconds": 12}


def test_operator_and_harness_agree_on_folders_and_limits() -> None:
    wanted = experiment()
    text = experiment_config_map(wanted, 1, CONTEXT)["data"]["experiment.yaml"]
    read = parse_experiment(text)
    from pathlib import Path

    assert run_folder("kill", "stay", 3) == str(default_run_dir(Path(RUNS), read, "stay", 3))
    schedule = plan_run(read, read.arm("stay"), 0)
    assert longest_seconds(wanted, "stay") >= 2 * schedule.longest_seconds


def test_a_run_has_time_to_heal_and_is_never_repeated() -> None:
    job = experiment_job(experiment(), "stay", 0, CONTEXT)
    assert job["metadata"]["name"] == "fbx-kill-stay-0"
    assert job["spec"]["backoffLimit"] == 0
    pod = pod_of(job)
    assert (pod["restartPolicy"], pod["terminationGracePeriodSeconds"]) == ("Never", 330)
    assert pod["serviceAccountName"] == "failback-chaos"
    (container,) = pod["containers"]
    assert container["image"] == "failback/chaos:0.1.0"
    assert [*container["command"], *container["args"]] == [
        *("failback-init", "--", "failback", "experiment", "run", "/etc/failback/experiment.yaml"),
        *("--target", "kube", "--namespace", "shop", "--arm", "stay", "--repetition", "0"),
        *("--runs", "/runs"),
    ]
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert mounts["/runs"] == "runs"
    assert mounts["/etc/failback"] == "experiment"
    assert {each["name"] for each in pod["volumes"]} == set(mounts.values())


@pytest.mark.parametrize(
    "job",
    [
        experiment_job(experiment(), "stay", 0, CONTEXT),
        heal_job(experiment(), CONTEXT),
        report_job(
            report(
                definitions={"key": "MessageID", "window": "15m", "ignoreRetryTopics": True},
                thresholds={"maxDuplicateRatio": "0.01", "maxLost": 0, "maxOutOfOrder": 0},
                artifactUri="file:///runs/pages",
            ),
            ["/runs/kill/stay-000"],
            "failback-runs",
            CONTEXT,
        ),
    ],
    ids=["run", "heal", "report"],
)
def test_jobs_type_what_the_help_shows(job: dict[str, Any]) -> None:
    command: Any = typer.main.get_command(app)
    (container,) = pod_of(job)["containers"]
    words = list(container["args"])
    while commands := getattr(command, "commands", None):
        command = commands[words.pop(0)]
        assert not command.hidden
    command.make_context(command.name, words)  # raises where an option is wrong


def test_every_job_is_restricted_and_owned() -> None:
    for job in (
        experiment_job(experiment(), "stay", 0, CONTEXT),
        heal_job(experiment(), CONTEXT),
        report_job(report(), ["/runs/kill/stay-000"], "failback-runs", CONTEXT),
    ):
        pod = pod_of(job)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        (owner,) = job["metadata"]["ownerReferences"]
        assert owner["controller"] is True
        assert job["spec"]["activeDeadlineSeconds"] > 0


def test_the_run_volume_belongs_to_nobody() -> None:
    claim = run_claim("failback-runs", JobContext("shop", "0.1.0", runs_storage_class="fast"))
    assert "ownerReferences" not in claim["metadata"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert "storageClassName" not in run_claim("failback-runs", CONTEXT)["spec"]


def test_a_report_has_no_account_unless_spark_starts_executors() -> None:
    runs = ["/runs/kill/stay-000"]
    plain = pod_of(report_job(report(), runs, "failback-runs", CONTEXT))
    assert plain["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in plain
    spark = report(engine="Spark", spark={"master": "k8s://https://api", "conf": {"a.b": "c d"}})
    pod = pod_of(report_job(spark, runs, "failback-runs", CONTEXT))
    assert pod["serviceAccountName"] == "failback-spark"
    (container,) = pod["containers"]
    values = {each["name"]: each.get("value") for each in container["env"]}
    words = shlex.split(str(values["PYSPARK_SUBMIT_ARGS"]))
    assert words[:4] == ["--master", "k8s://https://api", "--deploy-mode", "client"]
    assert words[-1] == "pyspark-shell"
    assert "a.b=c d" in words
    assert "spark.executor.instances=2" in words
    assert "spark.kubernetes.container.image=failback/analytics:0.1.0" in words
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.runs"
    assert f"{volume}.options.claimName=failback-runs" in words
    assert f"{volume}.mount.path=/runs" in words
    assert container["args"][:3] == ["report", "--engine", "spark"]
    assert container["args"][-1 - len(runs) :] == ["--", *runs]


@pytest.mark.parametrize(
    ("requests", "cores", "memory"),
    [
        ({"cpu": "1", "memory": "2Gi"}, "1", "2048m"),
        ({"cpu": "500m", "memory": "1.5Gi"}, "1", "1536m"),
        ({"cpu": "2500m", "memory": "2147483648"}, "3", "2048m"),
        ({"cpu": 4, "memory": "1G"}, "4", "953m"),
    ],
)
def test_resources_of_executors_are_said_in_sparks_words(
    requests: dict[str, Any], cores: str, memory: str
) -> None:
    resources = {"requests": requests, "limits": {"cpu": "4"}}
    spark = {"master": "k8s://https://api", "executor": {"resources": resources}}
    words = spark_submit_arguments(report(engine="Spark", spark=spark), "i", "runs")
    assert f"spark.executor.cores={cores}" in words
    assert f"spark.kubernetes.executor.request.cores={requests['cpu']}" in words
    assert "spark.kubernetes.executor.limit.cores=4" in words
    assert f"spark.executor.memory={memory}" in words
    application = report(engine="Spark", spark={**spark, "mode": "SparkApplication"})
    found = spark_application(application, ["/runs/a"], "runs", CONTEXT)["spec"]["executor"]
    assert (str(found["cores"]), found["memory"]) == (cores, memory)


def test_a_spark_application_names_main_file_runs_and_executors() -> None:
    wanted = report(engine="Spark", spark={"mode": "SparkApplication"})
    found = spark_application(wanted, ["/runs/a"], "failback-runs", CONTEXT)
    spec = found["spec"]
    assert spec["mainApplicationFile"] == "local:///opt/failback/bin/spark_main.py"
    assert spec["arguments"][-2:] == ["--", "/runs/a"]
    assert (spec["executor"]["instances"], spec["executor"]["memory"]) == (2, "2048m")
    assert f"pyspark=={spec['sparkVersion']}" in (ROOT / "constraints.txt").read_text().split()


def test_pods_of_a_spark_application_are_as_strict_as_those_of_a_report() -> None:
    wanted = report(engine="Spark", spark={"mode": "SparkApplication"})
    spec = spark_application(wanted, ["/runs/a"], "failback-runs", CONTEXT)["spec"]
    pod = pod_of(report_job(report(), ["/runs/a"], "failback-runs", CONTEXT))
    template = YAML(typ="safe").load(TEMPLATE)["spec"]
    for each in (spec["driver"], spec["executor"]):
        assert each["podSecurityContext"] == pod["securityContext"]
        mine = {**pod["containers"][0]["securityContext"], "readOnlyRootFilesystem": False}
        assert each["securityContext"] == mine
        assert template["securityContext"].items() <= pod["securityContext"].items()
        assert template["containers"][0]["securityContext"].items() <= mine.items()


def test_long_names_stay_within_the_limit_and_apart() -> None:
    one, two = (object_name("fbx", "x" * 60, arm, "0") for arm in ("arm-a", "arm-b"))
    assert len(one) == len(two) == 63
    assert one != two
    assert object_name("fbx", "kill", "stay", "0") == "fbx-kill-stay-0"


def test_equal_input_gives_equal_objects() -> None:
    first, second = (
        json.dumps(
            [
                experiment_job(experiment(), "stay", 0, CONTEXT),
                experiment_config_map(experiment(), 7, CONTEXT),
            ]
        )
        for _ in range(2)
    )
    assert first == second


def test_who_names_no_account_gets_the_one_that_the_release_made() -> None:
    made = {"FAILBACK_CHAOS_ACCOUNT": "r1-chaos", "FAILBACK_SPARK_ACCOUNT": "r1-spark"}
    context = JobContext.of_environment(made, "shop", "0.1.0", "cluster.local")
    for account, chosen in ((None, "r1-chaos"), ("mine", "mine")):
        own = {} if account is None else {"serviceAccountName": account}
        run = experiment_job(experiment(job=own), "stay", 0, context)
        assert pod_of(run)["serviceAccountName"] == chosen
    spark = report(engine="Spark", spark={"master": "k8s://https://kubernetes.default.svc"})
    counted = pod_of(report_job(spark, ["/runs/a"], "runs", context))
    assert counted["serviceAccountName"] == "r1-spark"
    (words,) = (
        each["value"]
        for each in counted["containers"][0]["env"]
        if each["name"] == "PYSPARK_SUBMIT_ARGS"
    )
    assert "driver.serviceAccountName=r1-spark" in words
    application = spark_application(spark, ["/runs/a"], "runs", context)
    assert application["spec"]["driver"]["serviceAccount"] == "r1-spark"
