"""Rights over our resources are rights over our resources: what they may name is on lists."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from failback.operator.kinds.permits import Permits, is_image_allowed, read_permits, repository
from failback.operator.schema.decoding import KINDS, decode
from failback.operator.schema.permitted import accepting, refusals, weaknesses
from tests.support.operator.commands import OPTIONS, S3A, SAFE_OPTIONS, VARIABLES
from tests.support.operator.rule_cases import BASES

DEFAULT = read_permits({})
EVERYTHING = Permits(
    images=("*",),
    pod_accounts=("*",),
    experiment_accounts=("*",),
    report_accounts=("*",),
    secrets=("*",),
    config_maps=("*",),
    environment=("*",),
    pod_annotations=("*",),
    pod_labels=("*",),
    service_annotations=("*",),
    java_options=("*",),
    pull_secrets=("*",),
    spark_settings=("*",),
    spark_masters=("*",),
    external_services=("LoadBalancer", "NodePort"),
    weak_security=True,
)
LISTS = {
    "allow.podAnnotations": "POD_ANNOTATIONS",
    "allow.podLabels": "POD_LABELS",
    "allow.serviceAnnotations": "SERVICE_ANNOTATIONS",
}
SECRET = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "db", "key": "p"}}}]
CONFIG = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "cm", "key": "p"}}}]
OWN = [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}]
POD_FIELDS: list[tuple[str, Any]] = [
    ("spec.engine.image", {"engine": {"image": "evil.example/x:1"}}),
    ("spec.engine.imagePullSecrets[0].name", {"engine": {"imagePullSecrets": [{"name": "db"}]}}),
    ("spec.podTemplate.serviceAccountName", {"podTemplate": {"serviceAccountName": "admin"}}),
    ("spec.podTemplate.env[0].valueFrom.secretKeyRef.name", {"podTemplate": {"env": SECRET}}),
    ("spec.podTemplate.env[0].valueFrom.configMapKeyRef.name", {"podTemplate": {"env": CONFIG}}),
    ("spec.external.type", {"external": {"type": "LoadBalancer"}}),
    (
        "spec.engine.logs.configMap",
        {"engine": {"type": "Apache", "version": "4.9.7", "logs": {"configMap": "cm"}}},
    ),
    *(
        ("spec.podTemplate.env[0].name", {"podTemplate": {"env": [{"name": name, "value": "x"}]}})
        for name in VARIABLES
    ),
    *(
        (
            "spec.engine.javaOptions",
            {"engine": {"type": "Apache", "version": "4.9.7", "javaOptions": f"-Xmx1g {option}"}},
        )
        for option in OPTIONS
    ),
    (
        "spec.podTemplate.securityContext.runAsUser",
        {"podTemplate": {"securityContext": {"runAsUser": 0}}},
    ),
    (
        "spec.podTemplate.annotations.container.apparmor.security.beta.kubernetes.io/broker",
        {
            "podTemplate": {
                "annotations": {
                    "container.apparmor.security.beta.kubernetes.io/broker": "unconfined"
                }
            }
        },
    ),
]
JOB_FIELDS: list[tuple[str, str, Any]] = [
    *(
        (
            "ReconsumptionReport",
            f"spec.spark.conf.spark.hadoop.fs.s3a.{key}",
            {"spark": {"conf": {f"spark.hadoop.fs.s3a.{key}": "x"}}},
        )
        for key in S3A
    ),
    ("ChaosExperiment", "spec.job.image", {"job": {"image": "evil.example/x:1"}}),
    ("ChaosExperiment", "spec.job.serviceAccountName", {"job": {"serviceAccountName": "admin"}}),
    ("ReconsumptionReport", "spec.job.image", {"job": {"image": "evil.example/x:1"}}),
    ("ReconsumptionReport", "spec.spark.image", {"spark": {"image": "evil.example/x:1"}}),
    (
        "ReconsumptionReport",
        "spec.spark.serviceAccountName",
        {"spark": {"serviceAccountName": "failback-chaos"}},
    ),
    (
        "ReconsumptionReport",
        "spec.spark.master",
        {"spark": {"master": "k8s://https://evil.example"}},
    ),
    (
        "ReconsumptionReport",
        "spec.spark.conf.spark.ui.filters",
        {"spark": {"conf": {"spark.ui.filters": "x"}}},
    ),
]
REFUSED: list[tuple[str, str, Any]] = [
    *((kind, *each) for kind in ("NameServer", "BrokerCluster") for each in POD_FIELDS),
    *JOB_FIELDS,
]


def fields(kind: str, spec: dict[str, Any], permits: Permits) -> list[str]:
    return [each.field for each in refusals(resource(kind, spec), permits)]


def resource(kind: str, spec: dict[str, Any]) -> Any:
    return decode(
        {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": "a"},
            "spec": {**BASES[kind], **spec},
        }
    )


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_on_no_list_is_refused_by_its_field(kind: str) -> None:
    for of, field, spec in REFUSED:
        if of == kind:
            assert (fields(kind, spec, DEFAULT), spec) == ([field], spec)
            assert (fields(kind, spec, EVERYTHING), spec) == ([], spec)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_resource_leaves_out_is_allowed(kind: str) -> None:
    assert fields(kind, {}, DEFAULT) == []


@pytest.mark.parametrize(
    "name", ["TZ", "LANG", "LC_ALL", "APP_MODE", "ROCKETMQ_HOME", "GOMAXPROCS"]
)
def test_variables_and_options_that_run_nothing_are_allowed(name: str) -> None:
    template = {"podTemplate": {"env": [{"name": name, "value": "x"}]}}
    assert fields("BrokerCluster", template, DEFAULT) == []
    engine = {"engine": {"type": "Apache", "version": "4.9.7", "javaOptions": SAFE_OPTIONS}}
    assert fields("BrokerCluster", engine, DEFAULT) == []


def test_keys_by_which_others_change_a_pod_need_a_list() -> None:
    for kind in ("NameServer", "BrokerCluster"):
        for where, of_chart, refused, harmless in (
            (
                "podTemplate.annotations",
                "allow.podAnnotations",
                (
                    "sidecar.istio.io/inject",
                    "vault.hashicorp.com/agent-inject",
                    "x.org/prometheus.io",
                ),
                ("team", "prometheus.io/scrape", "cluster-autoscaler.kubernetes.io/safe-to-evict"),
            ),
            (
                "podTemplate.labels",
                "allow.podLabels",
                ("azure.workload.identity/use", "sidecar.istio.io/inject"),
                ("team", "cost-center"),
            ),
            (
                "external.annotations",
                "allow.serviceAnnotations",
                ("external-dns.alpha.kubernetes.io/hostname", "eks.amazonaws.com/role-arn"),
                ("service.beta.kubernetes.io/aws-load-balancer-type", "metallb.io/address-pool"),
            ),
        ):
            part, field = where.split(".")
            base = {"type": "LoadBalancer"} if part == "external" else {}
            open_services = replace(DEFAULT, external_services=("LoadBalancer",))
            for key in refused:
                asked = resource(kind, {part: {**base, field: {key: "true"}}})
                (found,) = refusals(asked, open_services)
                assert found.field == f"spec.{where}.{key}"
                assert found.message == f"{key} is not in {of_chart} of the chart"
                assert not refusals(asked, accepting(open_services, asked)), "it goes on"
                named = f"FAILBACK_ALLOWED_{LISTS[of_chart]}"
                for entry in (key, f"{key[:6]}*"):
                    permits = read_permits(
                        {named: entry, "FAILBACK_ALLOWED_EXTERNAL_SERVICES": "LoadBalancer"}
                    )
                    assert not refusals(asked, permits)
            asked = resource(kind, {part: {**base, field: dict.fromkeys(harmless, "x")}})
            assert not refusals(asked, open_services)


def test_the_operators_own_account_is_on_no_list() -> None:
    permits = replace(EVERYTHING, own_account="mq-operator")
    job = {"job": {"serviceAccountName": "mq-operator"}}
    (found,) = refusals(resource("ChaosExperiment", job), permits)
    assert str(found).endswith(
        "spec.job.serviceAccountName: mq-operator is the operator's own account"
    )


def test_fields_of_the_pod_itself_are_no_secrets() -> None:
    assert fields("BrokerCluster", {"podTemplate": {"env": OWN}}, DEFAULT) == []


WORDS = ("image", "secret", "account", "conf", "volume", "security", "command", "args", "host")
HARMLESS = {
    "spec.config",  # keys of broker.conf and namesrv.conf, by their own rules
    "spec.pairOverrides.config",
    "spec.arms.brokerConfig",
    "spec.job.runVolume",  # a claim, on the page of rights
    "spec.engine.imagePullPolicy",
    "spec.restore.confirm",  # a word of the status
    "spec.acl.secretRef",  # files of fixed names, for the broker alone: nothing shows them
    "spec.tls.secretRef",
    "spec.job.accessSecretRef",  # the harness reads a key and certificates, and shows neither
}


def names_of(model: type[BaseModel], path: str) -> Iterator[str]:
    for name, info in model.model_fields.items():
        at = f"{path}.{info.alias or name}"
        yield at
        for part in models_in(info.annotation):
            yield from names_of(part, at)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from models_in(argument)


def test_a_new_field_that_sounds_like_a_pods_has_a_list_or_a_reason() -> None:
    tried = {(kind, field.replace("[0]", "").removesuffix(".name")) for kind, field, _ in REFUSED}
    for kind, model in KINDS.items():
        spec = typing.cast(Any, model).model_fields["spec"].annotation
        for path in names_of(spec, "spec"):
            word = path.rpartition(".")[2].lower()
            if not any(each in word for each in WORDS) or path.removesuffix(".name") in HARMLESS:
                continue
            assert any(which == kind and field.startswith(path) for which, field in tried), path


@pytest.mark.parametrize(
    ("image", "allowed"),
    [
        ("failback/broker", True),
        ("failback/broker:0.2.0", True),
        ("failback/broker@sha256:00", True),
        ("failback/broker-evil:1", False),
        ("failback/brokers", False),
        ("evil.example/failback/broker:1", False),
        ("failback/broker/../x", False),
        ("evil.example:5000/x", False),
        ("registry.example/team/mq:1", True),
        ("registry.example/teams/mq:1", False),
        ("registry.example:5000/mq:1", True),
        ("", False),
    ],
)
def test_an_image_is_allowed_by_its_repository(image: str, allowed: bool) -> None:
    lists = (*DEFAULT.images, "registry.example/team/", "registry.example:5000/mq")
    assert is_image_allowed(image, lists) is allowed


def test_the_charts_own_images_are_allowed_wherever_they_come_from() -> None:
    found = read_permits({"FAILBACK_IMAGE_BROKER": "registry.example:5000/mq/broker:7"})
    assert is_image_allowed("registry.example:5000/mq/broker:8", found.images)
    assert (
        repository("registry.example:5000/mq/broker@sha256:0") == "registry.example:5000/mq/broker"
    )


@pytest.mark.parametrize(
    ("context", "weak"),
    [
        ({}, []),
        ({"runAsUser": 1000, "fsGroup": 0, "runAsNonRoot": True}, []),
        ({"runAsNonRoot": None}, ["runAsNonRoot"]),
        ({"runAsNonRoot": False, "runAsUser": 0}, ["runAsNonRoot", "runAsUser"]),
        ({"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}, []),
        ({"seccompProfile": {"type": "Unconfined"}}, ["seccompProfile"]),
        ({"seccompProfile": None}, ["seccompProfile"]),
        ({"appArmorProfile": {"type": "Unconfined"}}, ["appArmorProfile"]),
        ({"seLinuxOptions": {"type": "spc_t"}}, ["seLinuxOptions"]),
        ({"seLinuxOptions": {"level": "s0:c1"}}, []),
        ({"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}, ["sysctls"]),
        ({"sysctls": [{"name": "net.ipv4.tcp_syncookies", "value": "1"}]}, []),
        ({"windowsOptions": {"hostProcess": True}}, ["windowsOptions"]),
    ],
)
def test_a_security_context_is_as_strict_as_restricted(
    context: dict[str, Any], weak: list[str]
) -> None:
    assert weaknesses(context) == weak
