"""Every field of every kind with what nobody should write: refused by its name, or one value.

What is taken is rendered: then it stands in each file, label and argument as it was written.
"""

from __future__ import annotations

import json
import re
from typing import Any

import javaproperties
import pytest

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.name_server import NameServer
from failback.operator.kinds.reconsumption_report import ReconsumptionReport
from failback.operator.planning.observed import facts
from failback.operator.render.context import kubernetes_context
from failback.operator.render.jobs import JobContext
from failback.operator.render.objects import render
from failback.operator.render.report_jobs import report_job
from failback.operator.schema.decoding import KINDS, Invalid, decode
from tests.support.operator.hostile_values import documents
from tests.support.operator.resources import resource

pytestmark = pytest.mark.foreign

LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
KEY = re.compile(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
IMAGE = re.compile(r"[!-~]+")
MAIN = decode(resource("NameServer", "main", replicas=1))


def named(path: str) -> list[str]:
    """Return the names of the fields on a path, outermost first."""
    return [part.removesuffix("[]") for part in path.split(".")]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_is_refused_by_its_field(kind: str) -> None:
    tried = refused = 0
    for path, value, made in documents(kind):
        tried += 1
        try:
            decode(made)
        except Invalid as error:
            refused += 1
            told = str(error)
            assert any(each in told for each in named(path)[1:]), (path, value, told)
            assert "\n" not in told.splitlines()[0]
    assert tried > 50
    assert refused > 20


def taken(kind: str) -> list[Any]:
    found = []
    for path, value, made in documents(kind):
        try:
            found.append((path, value, decode(made)))
        except Invalid:
            continue
    return found


@pytest.mark.parametrize("kind", ["NameServer", "BrokerCluster"])
def test_what_is_taken_is_rendered_as_one_value(kind: str) -> None:
    context = kubernetes_context("shop", "0.2.0")
    for path, value, model in taken(kind):
        items = [model] if isinstance(model, NameServer) else [MAIN, model]
        manifests = render(items, context)
        assert len(json.dumps(manifests)) < 512 * 1024, (path, value)
        for manifest in manifests:
            check_marks(manifest, (path, value))
        if isinstance(model, BrokerCluster):
            check_files(model, manifests, (path, value))


def check_marks(manifest: dict[str, Any], what: object) -> None:
    """See that Kubernetes takes names, labels, annotations and images of a manifest."""
    template = manifest.get("spec", {}).get("template", {})
    for metadata in (manifest["metadata"], template.get("metadata", {})):
        for key, label in metadata.get("labels", {}).items():
            assert KEY.fullmatch(key), what
            assert LABEL.fullmatch(label), what
        for key in metadata.get("annotations", {}):
            assert KEY.fullmatch(key), what
    pod = template.get("spec", {})
    for key, label in pod.get("nodeSelector", {}).items():
        assert KEY.fullmatch(key), what
        assert LABEL.fullmatch(label), what
    for container in (*pod.get("containers", ()), *pod.get("initContainers", ())):
        assert IMAGE.fullmatch(container["image"]), what
        assert not any("\x00" in each.get("value", "") for each in container.get("env", ()))


def check_files(cluster: BrokerCluster, manifests: list[dict[str, Any]], what: object) -> None:
    """See that broker.conf says to every reader what the spec says, and nothing else."""
    wanted = cluster.pair(0).config
    for manifest in manifests:
        text = manifest.get("data", {}).get("broker.conf")
        if text is None:
            continue
        ours, java = facts.properties(manifest), javaproperties.loads(text)
        assert ours == java, what
        assert {key: java.get(key) for key in wanted} == wanted, what
        assert java["brokerName"] == cluster.broker_name(0), what


def test_an_argument_of_a_job_is_never_an_option() -> None:
    context = JobContext("shop", "0.2.0")
    for path, value, model in taken("ReconsumptionReport"):
        assert isinstance(model, ReconsumptionReport)
        job = report_job(model, ["lab/base-000"], "runs", context)
        args = job["spec"]["template"]["spec"]["containers"][0]["args"]
        behind = args[args.index("--") + 1 :]
        assert behind == ["lab/base-000"], (path, value)
        if model.spec.artifact_uri:
            where = args[args.index("--out") + 1]
            assert where == model.spec.artifact_uri.removeprefix("file://")
            assert not where.startswith("-"), (path, value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a\\", "spec.config.regionId"),
        ("a\nb=c", "spec.config.regionId"),
        (" a", "spec.config.regionId"),
        ("a ", "spec.config.regionId"),
        ("${HOME}", "spec.config.regionId"),
        ("ä", "spec.config.regionId"),
        ("a\x0cb", "spec.config.regionId"),
    ],
)
def test_a_value_that_a_reader_reads_otherwise_is_refused(text: str, said: str) -> None:
    servers = {"nameServerRef": {"name": "main"}}
    with pytest.raises(Invalid, match=re.escape(said)):
        decode(resource("BrokerCluster", "orders", **servers, config={"regionId": text}))


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        ({"requests": {"cpus": "1"}}, "spec.resources.requests.cpus"),
        (
            {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}},
            "spec.resources.requests",
        ),
    ],
)
def test_what_no_pod_may_ask_for_is_refused(resources: dict[str, Any], said: str) -> None:
    servers = {"nameServerRef": {"name": "main"}}
    with pytest.raises(Invalid, match=re.escape(said)):
        decode(resource("BrokerCluster", "orders", **servers, resources=resources))
