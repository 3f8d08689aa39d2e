"""What a resource names that the chart's lists do not allow: the field, and which list it is.

Every field of every kind that ends in a pod is here. CEL refuses in the CRD what no chart may
allow. ``templates/admission.yaml`` of the chart has the same lists for the API server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from failback.operator.kinds.base import Engine, PodTemplate, Resource
from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.kinds.chaos_experiment import ChaosExperiment
from failback.operator.kinds.external import External, NameServerExternal
from failback.operator.kinds.name_server import NameServer
from failback.operator.kinds.permits import (
    COMMAND_VARIABLES,
    JAVA_OPTION,
    Permits,
    is_image_allowed,
    is_named,
)
from failback.operator.kinds.reconsumption_report import ReconsumptionReport
from failback.operator.schema.rules import Violation, violations

_PROFILES: Final = ("RuntimeDefault", "Localhost")
_SAFE_SYSCTLS: Final = (
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
)
_SELINUX_TYPES: Final = (
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
)
_OLD_PROFILES: Final = (
    "container.apparmor.security.beta.kubernetes.io/",
    "seccomp.security.alpha.kubernetes.io/",
    "container.seccomp.security.alpha.kubernetes.io/",
)


def broken(resource: Resource, permits: Permits | None) -> list[Violation]:
    """Return the rules that a resource breaks, the chart's lists among them.

    Args:
        permits: ``None``: nothing is on a list, as in the local runtime.
    """
    return [*violations(resource), *refusals(resource, permits)]


def refusals(resource: Resource, permits: Permits | None) -> list[Violation]:
    """Return what a resource names that no list allows."""
    if permits is None:
        return []
    match resource:
        case BrokerCluster() | NameServer():
            return [
                *_engine(resource.spec.engine, permits),
                *_pod_template(resource.spec.pod_template, permits),
                *_external(resource.spec.external, permits),
            ]
        case ChaosExperiment():
            job = resource.spec.job
            account = job.service_account_name
            return [
                *_image("spec.job.image", job.image, permits),
                *_account("spec.job", account, permits.experiment_accounts, permits),
            ]
        case ReconsumptionReport():
            return list(_report(resource, permits))
        case _:
            return []


def _refused(field: str, problem: str) -> Violation:
    return Violation("permits", field, problem, field, problem)


def _unlisted(field: str, value: str, of_chart: str) -> Violation:
    return _refused(field, f"{value} is not in {of_chart} of the chart")


def _image(field: str, image: str | None, permits: Permits) -> Iterator[Violation]:
    if image is not None and not is_image_allowed(image, permits.images):
        yield _unlisted(field, image, "allow.images")


def _account(
    path: str, name: str | None, allowed: tuple[str, ...], permits: Permits
) -> Iterator[Violation]:
    if name is None:
        return
    field = f"{path}.serviceAccountName"
    if name == permits.own_account:
        yield _refused(field, f"{name} is the operator's own account")
    elif not is_named(name, allowed):
        yield _unlisted(field, name, "allow.serviceAccounts")


def accepting(permits: Permits | None, kept: BrokerCluster | NameServer) -> Permits | None:
    """Return the lists with what a spec that was carried out has beside them: it goes on."""
    if permits is None:
        return None
    options = (kept.spec.engine.java_options or "").split()
    names = (variable.name for variable in kept.spec.pod_template.env)
    outside = {} if kept.spec.external is None else kept.spec.external.annotations
    return replace(
        permits,
        environment=(*permits.environment, *names),
        java_options=(*permits.java_options, *options),
        pod_annotations=(*permits.pod_annotations, *kept.spec.pod_template.annotations),
        pod_labels=(*permits.pod_labels, *kept.spec.pod_template.labels),
        service_annotations=(*permits.service_annotations, *outside),
    )


def _engine(engine: Engine, permits: Permits) -> Iterator[Violation]:
    yield from _image("spec.engine.image", engine.image, permits)
    for option in (engine.java_options or "").split():
        if not re.match(JAVA_OPTION, option) and not is_named(option, permits.java_options):
            yield _unlisted("spec.engine.javaOptions", option, "allow.javaOptions")
    file = engine.logs.config_map
    if file is not None and not is_named(file, permits.config_maps):
        yield _unlisted("spec.engine.logs.configMap", file, "allow.configMaps")
    for position, secret in enumerate(engine.image_pull_secrets):
        if not is_named(secret.name, permits.pull_secrets):
            field = f"spec.engine.imagePullSecrets[{position}].name"
            yield _unlisted(field, secret.name, "allow.pullSecrets")


def _keys(
    field: str, keys: Iterable[str], allowed: tuple[str, ...], of_chart: str
) -> Iterator[Violation]:
    """By a key with a prefix another program may put something into a pod; others are free."""
    for key in keys:
        if "/" in key and not is_named(key, allowed):
            yield _unlisted(f"{field}.{key}", key, of_chart)


def _external(
    external: External | NameServerExternal | None, permits: Permits
) -> Iterator[Violation]:
    """A Service that opens a way into the cluster; a template opens none."""
    if external is None:
        return
    at, allowed = "spec.external.annotations", permits.service_annotations
    yield from _keys(at, external.annotations, allowed, "allow.serviceAnnotations")
    if external.type in ("Template", *permits.external_services):
        return
    yield _unlisted("spec.external.type", external.type, "allow.externalServices")


def _pod_template(template: PodTemplate, permits: Permits) -> Iterator[Violation]:
    at = "spec.podTemplate"
    accounts = ("default", *permits.pod_accounts)
    yield from _account(at, template.service_account_name, accounts, permits)
    for position, variable in enumerate(template.env):
        name = variable.name
        if is_named(name, COMMAND_VARIABLES) and not is_named(name, permits.environment):
            yield _unlisted(f"{at}.env[{position}].name", name, "allow.environment")
        source = variable.value_from
        if source is None:
            continue
        field = f"{at}.env[{position}].valueFrom"
        for word, reference, allowed, of_chart in (
            ("secretKeyRef", source.secret_key_ref, permits.secrets, "allow.secrets"),
            ("configMapKeyRef", source.config_map_key_ref, permits.config_maps, "allow.configMaps"),
        ):
            wanted = None if reference is None else str(reference.get("name"))
            if wanted is not None and not is_named(wanted, allowed):
                yield _unlisted(f"{field}.{word}.name", wanted, of_chart)
    old = () if permits.weak_security else _OLD_PROFILES
    keys = [key for key in template.annotations if not key.startswith(old)]
    yield from _keys(f"{at}.annotations", keys, permits.pod_annotations, "allow.podAnnotations")
    yield from _keys(f"{at}.labels", template.labels, permits.pod_labels, "allow.podLabels")
    if permits.weak_security:
        return
    for name in weaknesses(template.security_context):
        yield _refused(
            f"{at}.securityContext.{name}",
            'is weaker than Pod Security "restricted"; allow.weakSecurity of the chart allows it',
        )
    for key in template.annotations:
        if key.startswith(_OLD_PROFILES):
            yield _refused(f"{at}.annotations.{key}", "belongs into securityContext")


def weaknesses(context: Mapping[str, Any]) -> list[str]:
    """Return the fields of a pod's security context that Pod Security `restricted` forbids."""
    found = []
    if "runAsNonRoot" in context and context["runAsNonRoot"] is not True:
        found.append("runAsNonRoot")
    if context.get("runAsUser") == 0:
        found.append("runAsUser")
    if "seccompProfile" in context and _type_of(context["seccompProfile"]) not in _PROFILES:
        found.append("seccompProfile")
    if "appArmorProfile" in context and _type_of(context["appArmorProfile"]) not in _PROFILES:
        found.append("appArmorProfile")
    linux = context.get("seLinuxOptions") or {}
    if not isinstance(linux, Mapping) or (
        linux.get("user") or linux.get("role") or linux.get("type", "") not in _SELINUX_TYPES
    ):
        found.append("seLinuxOptions")
    controls = context.get("sysctls") or ()
    if not isinstance(controls, (list, tuple)) or any(
        not isinstance(each, Mapping) or each.get("name") not in _SAFE_SYSCTLS for each in controls
    ):
        found.append("sysctls")
    if context.get("windowsOptions"):
        found.append("windowsOptions")
    return found


def _type_of(profile: object) -> object:
    return profile.get("type") if isinstance(profile, Mapping) else None


def _report(report: ReconsumptionReport, permits: Permits) -> Iterator[Violation]:
    spark = report.spec.spark
    yield from _image("spec.job.image", report.spec.job.image, permits)
    yield from _image("spec.spark.image", spark.image, permits)
    yield from _account("spec.spark", spark.service_account_name, permits.report_accounts, permits)
    if not is_named(spark.master, permits.spark_masters):
        yield _unlisted("spec.spark.master", spark.master, "allow.sparkMasters")
    for key in spark.conf:
        if not is_named(key, permits.spark_settings):
            yield _unlisted(f"spec.spark.conf.{key}", key, "allow.sparkSettings")
