"""Bad resource files: one sentence that names file, line, object and field."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest

from failback.operator.schema.loading import load_resources
from failback.protocol.errors import ConfigError

HEAD = """\
apiVersion: failback.dev/v1alpha1
kind: NameServer
metadata: {name: main}
---
apiVersion: failback.dev/v1alpha1
kind: BrokerCluster
metadata: {name: demo}
spec:
  nameServerRef: {name: main}
"""


def refusal(tmp_path: Path, text: str) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_resources([file])
    told = str(caught.value).replace(f"{tmp_path}/", "")
    return re.sub(r"^(cluster\.yaml:\d+):\d+: (?=\w+/)", r"\1: ", told, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("pairz: 2", '10: BrokerCluster/demo: spec.pairz: unknown field, did you mean "pairs"?'),
        (
            "slaveReadEnabled: true",
            "10: BrokerCluster/demo: spec.slaveReadEnabled: unknown field,"
            ' did you mean "slaveReadEnable"?',
        ),
        ("frob: 1", "10: BrokerCluster/demo: spec.frob: unknown field"),
        (
            "storage: {sizes: 20Gi}",
            '10: BrokerCluster/demo: spec.storage.sizes: unknown field, did you mean "size"?',
        ),
        ('pairs: "2"', '10: BrokerCluster/demo: spec.pairs: must be an integer, got "2"'),
        ("pairs: 0", "10: BrokerCluster/demo: spec.pairs: must be at least 1, got 0"),
        ("pairs: 65", "10: BrokerCluster/demo: spec.pairs: must be at most 64, got 65"),
        (
            'slaveReadEnable: "yes"',
            '10: BrokerCluster/demo: spec.slaveReadEnable: must be true or false, got "yes"',
        ),
        (
            "config: {fileReservedTime: 48}",
            "10: BrokerCluster/demo: spec.config.fileReservedTime: must be a string, got 48;"
            " put it in quotes",
        ),
        (
            'config: {fileReservedTime: "soon"}',
            '10: BrokerCluster/demo: spec.config.fileReservedTime: must be an integer, got "soon"',
        ),
        (
            'config: {brokerRole: "SYNC_MASTER"}',
            "10: BrokerCluster/demo: spec.config.brokerRole: key is managed by the operator;"
            " use the spec field",
        ),
        (
            'config: {brokerId: "0"}',
            "10: BrokerCluster/demo: spec.config.brokerId: key is managed by the operator;"
            " use the spec field",
        ),
        (
            'config: {storePathIndex: "/x"}',
            "10: BrokerCluster/demo: spec.config.storePathIndex: key is managed by the operator;"
            " use the spec field",
        ),
        (
            "pairOverrides: [{index: 0}, {index: 0, masterMember: 1}]",
            "10: BrokerCluster/demo: spec.pairOverrides[1].index: 0 is used twice",
        ),
        (
            "pairOverrides: [{index: 0, masterMember: 2}]",
            "10: BrokerCluster/demo: spec.pairOverrides[0]: masterMember has no such member",
        ),
        (
            "masterRole: SLAVE",
            '10: BrokerCluster/demo: spec.masterRole: must be "ASYNC_MASTER" or "SYNC_MASTER",'
            ' got "SLAVE"',
        ),
        (
            "masterRole: SYNC_MASTER\n  slavesPerPair: 0",
            "10: BrokerCluster/demo: spec.masterRole: SYNC_MASTER needs a slave",
        ),
        (
            "engine: {type: Apache}",
            "10: BrokerCluster/demo: spec.engine.type: apache needs version 4.9.x or 5.x.y;"
            " javaOptions and logs are for apache, rules for failback",
        ),
        (
            "engine: {javaOptions: -Xmx1g}",
            "10: BrokerCluster/demo: spec.engine.javaOptions: apache needs version 4.9.x or"
            " 5.x.y; javaOptions and logs are for apache, rules for failback",
        ),
        (
            'nameServerAddresses: ["127.0.0.1:9876"]',
            "9: BrokerCluster/demo: spec.nameServerRef: exactly one of nameServerRef and"
            " nameServerAddresses",
        ),
        (
            "lifecycle: {terminationGracePeriodSeconds: 30, drainSeconds: 25}",
            "10: BrokerCluster/demo: spec.lifecycle.drainSeconds: drain must end 10 s before the"
            " grace period",
        ),
        (
            "storage: {size: much}",
            "10: BrokerCluster/demo: spec.storage.size: must be a quantity such as 500m or 1Gi,"
            ' got "much"',
        ),
        (
            "resources: {limits: {memory: 512m}}",
            "10: BrokerCluster/demo: spec.resources.limits.memory: memory must be at least 32Mi"
            " (512Mi; m is a thousandth)",
        ),
        (
            "storage: {size: 1Gi}",
            "10: BrokerCluster/demo: spec.storage.size: storage must be at least 4Gi,"
            " ephemeral at least 64Mi",
        ),
        (
            "podTemplate: {env: [{name: POD_IP, value: x}]}",
            "10: BrokerCluster/demo: spec.podTemplate.env[0]: environment name is set by the"
            " operator",
        ),
    ],
)
def test_a_wrong_field_is_named(tmp_path: Path, spec: str, sentence: str) -> None:
    assert refusal(tmp_path, f"{HEAD}  {spec}\n") == f"cluster.yaml:{sentence}"


def test_a_missing_name_server_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path, HEAD.replace("Ref: {name: main}", "Ref: {name: mian}")) == (
        'cluster.yaml:9: BrokerCluster/demo: spec.nameServerRef.name: there is no NameServer "mian"'
        ' in these files, did you mean "main"?'
    )


def test_two_clusters_with_one_broker_name_are_two_masters(tmp_path: Path) -> None:
    second = dedent("""\
        ---
        apiVersion: failback.dev/v1alpha1
        kind: BrokerCluster
        metadata: {name: other}
        spec: {nameServerRef: {name: main}, brokerNamePrefix: demo}
    """)
    assert refusal(tmp_path, HEAD + second) == (
        "cluster.yaml:14: BrokerCluster/other: spec.brokerNamePrefix: two masters: broker name"
        " demo-0 belongs to BrokerCluster/demo already"
    )


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (
            "{kind: Topic, metadata: {name: t}, spec: {clusterRef: {name: dmo}}}",
            '10: Topic/t: spec.clusterRef.name: there is no BrokerCluster "dmo" in these files,'
            ' did you mean "demo"?',
        ),
        (
            "{kind: Topic, metadata: {name: t}, spec: {clusterRef: {name: demo}, pairs: [demo-1]}}",
            '10: Topic/t: spec.pairs[0]: BrokerCluster/demo has no pair "demo-1",'
            ' did you mean "demo-0"?',
        ),
        (
            "{kind: Topic, metadata: {name: t},"
            " spec: {clusterRef: {name: demo}, writeQueueNums: 9}}",
            "10: Topic/t: spec.readQueueNums: reads must cover writes",
        ),
        (
            "{kind: Topic, metadata: {name: t},"
            " spec: {clusterRef: {name: demo}, topicName: TBW102}}",
            "10: Topic/t: spec.topicName: is a system topic",
        ),
        (
            "{kind: SubscriptionGroup, metadata: {name: g},"
            " spec: {clusterRef: {name: demo}, removeOffsets: true}}",
            "10: SubscriptionGroup/g: spec.deletionPolicy: removeOffsets needs deletionPolicy"
            " Delete",
        ),
        (
            "{kind: BrokerClusters, metadata: {name: x}}",
            '10: BrokerClusters/x: kind: unknown kind "BrokerClusters",'
            ' did you mean "BrokerCluster"?',
        ),
        (
            "{kind: NameServer, metadata: {name: main}}",
            "10: NameServer/main: metadata.name: is already defined in cluster.yaml:1",
        ),
        ("{kind: NameServer, metadata: {name: Main}}", "10: NameServer/Main: metadata.name: must"),
        ("{kind: NameServer, metadata: {}}", "10: NameServer/?: metadata.name: is required"),
    ],
)
def test_a_wrong_second_object_is_named(tmp_path: Path, document: str, sentence: str) -> None:
    text = f"{HEAD}--- {document.replace('{kind', '{apiVersion: failback.dev/v1alpha1, kind', 1)}\n"
    assert refusal(tmp_path, text).startswith(f"cluster.yaml:{sentence}")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [1, 2", "cluster.yaml:1:9: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\na: 2\n", 'cluster.yaml:2:1: found duplicate key "a" with value "2"'),
        ("- 1\n", "cluster.yaml:1: must be a mapping with apiVersion, kind and metadata"),
        ("\n", "cluster.yaml: resources: no object found"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n",
            'cluster.yaml:1: Pod/x: apiVersion: must be failback.dev/v1alpha1, got "v1"',
        ),
    ],
)
def test_a_broken_file_is_refused_with_its_place(tmp_path: Path, text: str, sentence: str) -> None:
    assert refusal(tmp_path, text).startswith(sentence)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: no such file or folder"):
        load_resources([tmp_path / "none.yaml"])


EXPERIMENT = """\
---
apiVersion: failback.dev/v1alpha1
kind: ChaosExperiment
metadata: {name: kill}
spec:
  clusterRef: {name: demo}
  workload: {topics: [{name: orders}]}
"""


def test_objects_that_are_not_run_are_checked_and_handed_back(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(HEAD + EXPERIMENT)
    resources = load_resources([file])
    assert [item.label for item in resources.items] == ["NameServer/main", "BrokerCluster/demo"]
    assert resources.others[0].data["spec"]["workload"] == {"topics": [{"name": "orders"}]}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("repetition: 2", 'spec.repetition: unknown field, did you mean "repetitions"?'),
        (
            "timeScale: 0.5",
            'spec.timeScale: must be a decimal number in quotes such as "0.05", got 0.5',
        ),
        ('timeScale: "2"', "spec.timeScale: timeScale must be from 0.05 to 1.0"),
        (
            "faults: [{id: f1, fault: kill, with: {downSecond: 3}}]",
            'spec.faults[0].with.downSecond: unknown field, did you mean "downSeconds"?',
        ),
        (
            "faults: [{id: f1, fault: kill}, {id: f1, fault: kill}]",
            "spec.faults[1]: fault ids are unique",
        ),
        ("arms: [{name: a}, {name: a}]", 'spec.arms[1].name: "a" is used twice'),
    ],
)
def test_a_wrong_field_of_an_experiment_is_named(tmp_path: Path, spec: str, sentence: str) -> None:
    text = f"{HEAD}{EXPERIMENT}  {spec}\n"
    assert refusal(tmp_path, text) == f"cluster.yaml:17: ChaosExperiment/kill: {sentence}"


def test_everything_that_is_wrong_is_told_at_once_with_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(HEAD + "  pairz: 2\n  storage: {sizes: 1}\n")
    other = tmp_path / "other.yaml"
    other.write_text(HEAD.replace("kind: NameServer", "kind: NameServr"))
    with pytest.raises(ConfigError) as caught:
        load_resources([file, other])
    assert str(caught.value).replace(f"{tmp_path}/", "").splitlines() == [
        'cluster.yaml:10:3: BrokerCluster/demo: spec.pairz: unknown field, did you mean "pairs"?',
        "cluster.yaml:11:13: BrokerCluster/demo: spec.storage.sizes: unknown field,"
        ' did you mean "size"?',
        'other.yaml:2:1: NameServr/main: kind: unknown kind "NameServr",'
        ' did you mean "NameServer"?',
    ]


def test_what_is_legal_but_unwise_gives_warnings(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        HEAD.replace("{name: demo}", "{name: demo, annotations: {failback.dev/restrat: x}}")
        + '  config: {fileReservedTimes: "48"}\n  pairOverrides: [{index: 3}]\n'
        + "  slavesPerPair: 0\n  slaveReadEnable: true\n"
    )
    assert load_resources([file]).warnings == (
        "BrokerCluster/demo: metadata.annotations: unknown annotation failback.dev/restrat,"
        ' did you mean "failback.dev/restart"?',
        "BrokerCluster/demo: spec.pairOverrides[0]: there is no pair 3; the cluster has 1",
        "BrokerCluster/demo: spec.config: fileReservedTimes is not a broker.conf key of failback,"
        ' did you mean "fileReservedTime"?',
        "BrokerCluster/demo: spec.slaveReadEnable: there is no slave to read from",
    )


def test_anchors_lists_and_merge_keys_are_understood(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(
        dedent("""\
        apiVersion: v1
        kind: List
        items:
        - apiVersion: failback.dev/v1alpha1
          kind: NameServer
          metadata: {name: main}
          spec: &spec {replicas: 1}
        - apiVersion: failback.dev/v1alpha1
          kind: NameServer
          metadata: {name: second}
          spec: {<<: *spec, port: 9999}
        """)
    )
    first, second = load_resources([file]).items
    assert (first.name, second.name) == ("main", "second")
    assert second.model_dump(by_alias=True, exclude_unset=True)["spec"] == {
        "replicas": 1,
        "port": 9999,
    }
