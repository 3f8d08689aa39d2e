"""The CustomResourceDefinitions on a real API server: installed, explained, listed, scaled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from failback.kube.resources import RESOURCES
from failback.operator.schema.crds import crd_of
from failback.operator.schema.decoding import KINDS, decode
from tests.support.docs.yaml_examples import EXAMPLE_FILES
from tests.support.kube_lab.api import ApiError
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.operator.rule_cases import BASES

NOW = "2026-01-01T00:00:00Z"


def document(kind: str, name: str = "sample", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "failback.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {**BASES[kind], **spec},
    }


@pytest.mark.sample
@pytest.mark.parametrize("kind", KINDS)
def test_a_definition_is_served_as_it_was_written(control_plane: ControlPlane, kind: str) -> None:
    name = f"{RESOURCES[kind][2]}.failback.dev"
    stored = control_plane.api.get("CustomResourceDefinition", name)
    conditions = {each["type"]: each["status"] for each in stored["status"]["conditions"]}
    assert conditions == {"NamesAccepted": "True", "Established": "True"}
    assert stored["spec"] == crd_of(kind)["spec"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_server_s_defaults_are_the_model_s(namespace: Namespace, kind: str) -> None:
    manifest = document(kind)
    stored = namespace.api.create(manifest)
    ours = decode({**manifest, "metadata": {"name": "sample", "namespace": namespace.name}})
    theirs = decode(stored)
    assert theirs.model_dump(include={"spec"}) == ours.model_dump(include={"spec"})


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ("brokercluster.spec.slaveReadEnable", ("FIELD: slaveReadEnable <boolean>", "live")),
        ("fbc.spec.pairOverrides.masterMember", ("FIELD: masterMember <integer>", "brokerId 0")),
        ("nameserver.spec.engine.rules", ("ENUM:\n    compat\n    guarded", "4.9.8")),
        ("fbx.spec.faults.with", ("FIELD: with <Object>", "downSeconds\t<number>")),
        ("roleswitch.spec", ("offsetPolicy\t<string>", "-required-")),
        ("brokerclusters.failback.dev.status.pairs.members.lag", ("FallenBehind",)),
    ],
)
def test_kubectl_explains_a_field(namespace: Namespace, field: str, told: tuple[str, ...]) -> None:
    shown = namespace.kubectl("explain", field).out
    assert [words for words in told if words not in shown] == [], shown


def test_kubectl_lists_all_kinds_by_the_category(namespace: Namespace) -> None:
    for kind in KINDS:
        namespace.api.create(document(kind))
    listed = namespace.kubectl("get", "failback").out
    assert [kind for kind in KINDS if f"{kind.lower()}.failback.dev/sample" not in listed] == []


def test_columns_show_spec_and_status(namespace: Namespace) -> None:
    namespace.api.create(document("BrokerCluster", pairs=2))
    status = {
        "readyPairs": 1,
        "masters": "sample-0-0,-",
        "currentOperation": {"id": "1", "type": "Roll", "step": "Evict"},
        "conditions": [
            {
                "type": "Ready",
                "status": "False",
                "reason": "SlaveDown",
                "message": "",
                "lastTransitionTime": NOW,
            }
        ],
    }
    namespace.api.patch("BrokerCluster", "sample", {"status": status}, subresource="status")
    header, row = namespace.kubectl("get", "fbc", "-o", "wide").out.strip().splitlines()
    assert header.split() == [
        "NAME", "READY", "REASON", "PAIRS", "READY-PAIRS", "MASTERS", "OPERATION", "STEP",
        "ROLE", "FLUSH", "SLAVEREAD", "ENGINE", "AGE",
    ]  # fmt: skip
    assert row.split()[:-1] == [
        "sample", "False", "SlaveDown", "2", "1", "sample-0-0,-", "Roll", "Evict",
        "ASYNC_MASTER", "ASYNC_FLUSH", "false", "Failback",
    ]  # fmt: skip


def test_pairs_are_scaled_by_kubectl(namespace: Namespace) -> None:
    namespace.api.create(document("BrokerCluster"))
    namespace.api.create(document("NameServer"))
    namespace.kubectl("scale", "fbc/sample", "--replicas=3")
    namespace.kubectl("scale", "fns/sample", "--replicas=1")
    assert namespace.api.get("BrokerCluster", "sample")["spec"]["pairs"] == 3
    assert namespace.api.get("NameServer", "sample")["spec"]["replicas"] == 1


def test_objects_are_found_by_their_cluster(namespace: Namespace) -> None:
    namespace.api.create(document("Topic", "a", clusterRef={"name": "one"}))
    namespace.api.create(document("Topic", "b", clusterRef={"name": "two"}))
    found = namespace.api.list("Topic", fields="spec.clusterRef.name=two")
    assert [each["metadata"]["name"] for each in found] == ["b"]


def test_status_is_written_apart_from_the_spec(namespace: Namespace) -> None:
    namespace.api.create(document("Topic"))
    patch = {"spec": {"readQueueNums": 9}, "status": {"topicName": "sample"}}
    changed = namespace.api.patch("Topic", "sample", patch, subresource="status")
    assert (changed["spec"]["readQueueNums"], changed["status"]["topicName"]) == (8, "sample")
    changed = namespace.api.patch("Topic", "sample", {"status": {"topicName": "other"}})
    assert changed["status"]["topicName"] == "sample"
    assert changed["metadata"]["generation"] == 1


def test_unknown_fields_are_refused_by_kubectl_and_free_ones_are_kept(
    namespace: Namespace,
) -> None:
    experiment = document(
        "ChaosExperiment",
        arms=[{"name": "a", "workload": {"any": {"depth": [1]}}, "clientSwitches": {"x": 1.5}}],
        expect=[{"metric": "totals.dup", "op": "Between", "value": [1, 2.5]}],
    )
    stored = namespace.api.create(experiment)["spec"]
    assert stored["arms"][0]["workload"] == {"any": {"depth": [1]}}
    assert stored["arms"][0]["clientSwitches"] == {"x": 1.5}
    assert stored["expect"][0]["value"] == [1, 2.5]
    with pytest.raises(ApiError, match=r'unknown field \\?"spec\.slaveReadEnabled'):
        namespace.api.request(
            "POST",
            f"/apis/failback.dev/v1alpha1/namespaces/{namespace.name}/brokerclusters",
            document("BrokerCluster", slaveReadEnabled=True),
            query={"fieldValidation": "Strict"},
        )


@pytest.mark.parametrize("file", EXAMPLE_FILES, ids=str)
def test_every_example_is_accepted(namespace: Namespace, file: Path) -> None:
    documents = YAML(typ="safe", pure=True).load_all(file.read_text())
    ours = [each for each in documents if each["apiVersion"] == "failback.dev/v1alpha1"]
    for each in ours:
        each["metadata"]["namespace"] = namespace.name
        folder = f"/apis/failback.dev/v1alpha1/namespaces/{namespace.name}"
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        path = f"{folder}/{RESOURCES[each['kind']][2]}"
        assert namespace.api.request("POST", path, each, query=query)["metadata"]["uid"]
    assert ours
