"""The page's spark-submit on Kubernetes: driver and executors are pods, and one executor dies.

Spark's own program talks to the API server as somebody with few rights; its driver works with those
that the chart gives `failback-spark`, reads a lake in an S3 store with the keys of a Secret, and
writes the report into a claim. The words of the command are those of the page.
"""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pyspark
import pytest

from failback.analytics.analysis.engines.spark.pods import TEMPLATE
from failback.analytics.analysis.engines.spark.session import why_not
from failback.analytics.report.compare import differences
from failback.analytics.report.make_report import read_report, report
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.kube.test_report_life import create_report, wait_for
from tests.support.analytics.s3_server import BUCKET, S3Server, put_run, s3_server
from tests.support.analytics.spark_events import events_in, noted_at_once, removed, tasks_of
from tests.support.common.polling import wait_until
from tests.support.docs.pages import blocks
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Identity, Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import chart_rules, operator
from tests.support.operator.rights import Right, asked, rights_of
from tests.support.processes.child_process import ROOT, TestProcess, disposing

PAGE = ROOT / "docs" / "howto" / "spark-cluster.md"
LAKE = f"s3://{BUCKET}/lake"
PLAN = Plan(rows=2_000, groups=2, truncations=1, foreign_share=0.01, seed=3)
ACCOUNT, CLAIM = "failback-spark", "failback-runs"
MAY_SUBMIT = [
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "get", "watch"]},
    {"apiGroups": [""], "resources": ["services", "configmaps"], "verbs": ["create", "patch"]},
    {
        "apiGroups": ["networking.k8s.io"],
        "resources": ["networkpolicies"],
        "verbs": ["create", "patch"],
    },
]
"""What the page says that one needs who types the command."""
EXECUTORS = 2


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path / "s3") as server:
        yield server


def words_of_the_page() -> list[str]:
    (block,) = (each for each in blocks(PAGE) if "--master k8s://" in each.text)
    return shlex.split(block.text.replace("\\\n", " "))


def submission(namespace: Namespace, s3: S3Server, events: str) -> list[str]:
    """The command of the page, for this cluster and store, with what a small machine needs."""
    here = {
        "https://api.example:6443": namespace.control_plane.url,
        "namespace=failback": f"namespace={namespace.name}",
        "s3://messaging/lake": LAKE,
        "eu-central-1": s3.environment["AWS_REGION"],
        "=pod.yaml": f"={TEMPLATE}",
    }
    words = words_of_the_page()
    for told, meant in here.items():
        assert any(told in word for word in words), told
        words = [word.replace(told, meant) for word in words]
    words[words.index("--run") + 1] = PLAN.run
    more = {
        f"spark.kubernetes.driverEnv.{name}": value
        for name, value in s3.environment.items()
        if not name.startswith(("AWS_ACCESS_KEY", "AWS_SECRET", "AWS_REGION"))
    }
    more["spark.local.dir"] = "/home/rocketmq/scratch"  # else a new folder of this machine per pod
    settings = [word for pair in more.items() for word in ("--conf", "=".join(pair))]
    program, *rest = words
    return [
        str(Path(pyspark.__file__).parent / "bin" / program),
        *("--driver-memory", "512m", "--executor-memory", "512m"),
        *settings,
        *noted_at_once(events),
        *rest,
    ]


def create_claim(namespace: Namespace, node: NodeProcess) -> Path:
    """Make the claim that is mounted at /runs; return its folder."""
    namespace.create_claim(CLAIM)
    namespace.api.wait(
        "PersistentVolumeClaim", CLAIM, lambda item: item["status"].get("phase") == "Bound"
    )
    return node.claim_folder(namespace.name, CLAIM)


def create_secret(namespace: Namespace, s3: S3Server) -> None:
    """Make the Secret with the keys of the store."""
    keys = {"id": "AWS_ACCESS_KEY_ID", "key": "AWS_SECRET_ACCESS_KEY"}
    data = {
        key: base64.b64encode(s3.environment[name].encode()).decode() for key, name in keys.items()
    }
    namespace.api.create(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "lake"}, "data": data}
    )


def executors(namespace: Namespace) -> dict[str, Object]:
    """The pods of executors, by Spark's number."""
    found = namespace.api.list("Pod", labels="spark-role=executor")
    return {pod["metadata"]["labels"]["spark-exec-id"]: pod for pod in found}


def kill_one(namespace: Namespace, node: NodeProcess, submit: TestProcess, noted: Path) -> str:
    """Kill an executor when all have worked; return its number once another is in its place."""

    def all_have_worked() -> bool:
        assert submit.alive, submit.errors()[-4000:]
        return len(tasks_of(events_in(noted))) == EXECUTORS

    wait_until(all_have_worked, "a task of each executor", 240)
    victim = min(tasks_of(events_in(noted)))
    node.kill_container(namespace.name, executors(namespace)[victim]["metadata"]["name"])
    wait_until(lambda: str(EXECUTORS + 1) in executors(namespace), "another executor", 60)
    return victim


def needed(control_plane: ControlPlane, mark: int, identity: Identity) -> set[Right]:
    """The rights that somebody made use of; nothing was refused."""
    requests = control_plane.audit.requests(identity.user, since=mark)
    assert [each for each in requests if each.code == HTTPStatus.FORBIDDEN] == []
    return asked(requests)


@pytest.mark.soak
@pytest.mark.skipif(bool(why_not()), reason=f"Spark can't start: {why_not()}")
def test_an_executor_that_dies_is_replaced_and_the_report_is_the_same(
    namespace: Namespace,
    node: NodeProcess,
    control_plane: ControlPlane,
    s3: S3Server,
    tmp_path: Path,
) -> None:
    generate(PLAN, tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:  # who submits has no keys of the store
        for name, value in s3.environment.items():
            patch.setenv(name, value)
        put_run(tmp_path / "run", LAKE)
    local = read_report(report(tmp_path / "run", "local", tmp_path / "local").json)
    create_secret(namespace, s3)
    volume = create_claim(namespace, node)
    noted = volume / "events"
    noted.mkdir()
    given = chart_rules(namespace, account=ACCOUNT)
    driver, person = namespace.identity(ACCOUNT, given), namespace.identity("person", MAY_SUBMIT)
    mark = control_plane.audit.mark()
    submit = TestProcess(
        "submit",
        submission(namespace, s3, "file:///runs/events"),
        tmp_path / "submit",
        environment={"KUBECONFIG": str(person.kubeconfig)},
    )
    with disposing([submit]):
        submit.start()
        victim = kill_one(namespace, node, submit, noted)
        assert submit.wait(300) == 0, submit.errors()[-4000:]
    assert victim in removed(events_in(noted))
    (pod,) = namespace.api.list("Pod")
    (container,) = pod["status"]["containerStatuses"]
    by_pods = read_report(volume / "trial-7" / "report.json")
    assert container["state"]["terminated"]["exitCode"] == 1, "the exit code of the report"
    assert (by_pods["engine"], by_pods["totals"]["dup"] > 0) == ("spark", True)
    assert differences(local, by_pods) == []
    assert needed(control_plane, mark, driver) == rights_of(given)
    assert needed(control_plane, mark, person) == rights_of(MAY_SUBMIT)


@pytest.mark.skipif(bool(why_not()), reason=f"Spark can't start: {why_not()}")
@pytest.mark.soak
def test_a_report_in_a_pod_counts_with_executors_in_pods_of_their_own(
    namespace: Namespace, node: NodeProcess, control_plane: ControlPlane, tmp_path: Path
) -> None:
    volume = create_claim(namespace, node)
    generate(PLAN, volume / "old" / PLAN.run)
    local = read_report(report(volume / "old" / PLAN.run, "local", tmp_path / "local").json)
    given = chart_rules(namespace, account=ACCOUNT)
    driver = namespace.identity(ACCOUNT, given)
    mark = control_plane.audit.mark()
    resources = {"requests": {"cpu": "1", "memory": "512Mi"}}
    with operator(namespace):
        create_report(
            namespace,
            "pods",
            inputs={"claimName": CLAIM, "runs": [f"old/{PLAN.run}"]},
            engine="Spark",
            spark={
                "master": "k8s://https://kubernetes.default.svc",
                "executor": {"instances": EXECUTORS, "resources": resources},
            },
            artifactUri="file:///runs/pods",
        )
        wait_for(namespace, "pods", "Counted", seconds=240)
    (found,) = (volume / "pods").rglob("report.json")
    assert differences(local, read_report(found)) == []
    made = control_plane.audit.writes(since=mark, user=driver.user, resource="pods")
    assert [each.verb for each in made].count("create") == EXECUTORS
    assert needed(control_plane, mark, driver) <= rights_of(given)
