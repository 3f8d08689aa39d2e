"""What the schema alone can't say: the Python twins of the CRDs' CEL rules.

Each rule looks at one object (and its stored predecessor), so that the API server and the
local runtime refuse the same things in the same words. Rules on the predecessor do not run
on create. Used by the local runtime, by planning (for objects that were stored before a rule
existed) and by tests, which feed both sides the same objects.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from failback.operator.engines.catalogue import config_keys
from failback.operator.kinds.base import Engine, Metadata, PodTemplate, Resource, parse_quantity
from failback.operator.kinds.broker_cluster import BrokerCluster, BrokerClusterSpec
from failback.operator.kinds.chaos_experiment import ChaosExperiment, Fault
from failback.operator.kinds.name_server import NameServer
from failback.operator.kinds.offset_snapshot import OffsetSnapshot
from failback.operator.kinds.reconsumption_report import ReconsumptionReport
from failback.operator.kinds.role_switch import RoleSwitch
from failback.operator.kinds.subscription_group import SubscriptionGroup
from failback.operator.kinds.topic import Topic
from failback.operator.schema import rule_texts
from failback.operator.schema.key_rules import broken_keys
from failback.operator.schema.pod_rules import broken_parts
from failback.protocol.names import is_reserved_group, is_system_topic

_PROPERTY_KEY: Final = re.compile(rule_texts.PROPERTY_KEY)
_APACHE_VERSION: Final = re.compile(rule_texts.APACHE_VERSION)
_NAME: Final = re.compile(rule_texts.NAME_CHARACTERS)
_OPERATOR_ACCOUNTS: Final = re.compile(rule_texts.OPERATOR_ACCOUNTS)
_SPARK_NEVER: Final = re.compile(rule_texts.SPARK_NEVER)
_UP: Final = re.compile(rule_texts.UP)
_MANAGED: Final = frozenset(key.lower() for key in rule_texts.MANAGED_BROKER_KEYS)
_MANAGED_OF_NAMESRV: Final = frozenset(key.lower() for key in rule_texts.MANAGED_NAMESRV_KEYS)
_DNS_LABEL: Final = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
_SOME: Final = ("Fixed", "FixedPercent", "RandomMaxPercent")
_OneShot = RoleSwitch | ReconsumptionReport | ChaosExperiment
MAX_TOPIC_NAME: Final = 127
MAX_GROUP_NAME: Final = 120


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule, as the API server tells it: rule id, path of the rule, message.

    ``field`` and ``detail`` are finer: the field to edit and what is wrong with its value, for
    messages that name a line of a file.
    """

    rule: str
    path: str
    message: str
    field: str = ""
    detail: str = ""

    def __str__(self) -> str:
        """Return it as conditions show it: ``BC6 spec: SYNC_MASTER needs a slave``."""
        return f"{self.rule} {self.path or self.field}: {self.message}"


def violations(new: Resource, old: Resource | None = None) -> list[Violation]:
    """Return every rule that ``new`` breaks, as a change of ``old`` if given."""
    on_create, on_change = _TWINS[type(new)]
    broken = (*broken_keys(new), *broken_parts(new))
    found = [*on_create(new), *(Violation(*each) for each in broken)]
    if old is not None:
        found += on_change(new, old)
    return found


def _named(metadata: Metadata, rule: str) -> Iterator[Violation]:
    if len(metadata.name) > rule_texts.MAX_CLUSTER_NAME:
        yield Violation(
            rule, "", rule_texts.TOO_LONG_40, "metadata.name", "is longer than 40 characters"
        )
    if not _DNS_LABEL.fullmatch(metadata.name):
        yield Violation("NM1", "", rule_texts.NO_DNS_LABEL, "metadata.name")


def _undotted(metadata: Metadata) -> Iterator[Violation]:
    if "." in metadata.name:
        yield Violation("NM1", "", rule_texts.HAS_DOT, "metadata.name")


def _broker_cluster(cluster: BrokerCluster) -> Iterator[Violation]:
    spec = cluster.spec
    yield from _named(cluster.metadata, "BC1")
    if (spec.name_server_ref is None) == (spec.name_server_addresses is None):
        yield Violation("BC2", "spec", rule_texts.NAME_SERVERS, "spec.nameServerRef")
    if spec.master_role == "SYNC_MASTER" and spec.slaves_per_pair < 1:
        yield Violation("BC6", "spec", rule_texts.NEEDS_SLAVE, "spec.masterRole")
    in_sync = spec.sync.in_sync_replicas
    if in_sync is not None and in_sync > spec.slaves_per_pair + 1:
        yield Violation("BC7", "spec", rule_texts.TOO_MANY_IN_SYNC, "spec.sync.inSyncReplicas")
    yield from _broker_config("spec.config", spec.config)
    yield from _pair_overrides(spec)
    if _config_characters(spec) > rule_texts.MAX_CONFIG_CHARACTERS:
        yield Violation("BC15", "spec", rule_texts.CONFIG_TOO_LARGE, "spec.pairOverrides")
    yield from _engine(spec.engine)
    yield from _pod_template(spec.pod_template)
    yield from _storage(spec)
    networking = spec.networking
    if (networking.broker_address == "External") == (networking.external_template is None):
        yield Violation("BC12", "spec.networking", rule_texts.EXTERNAL_TEMPLATE)
    yield from _external(spec)
    if spec.lifecycle.drain_seconds > spec.lifecycle.termination_grace_period_seconds - 10:
        yield Violation(
            "BC13", "spec.lifecycle", rule_texts.DRAIN_TOO_LONG, "spec.lifecycle.drainSeconds"
        )


def _external(spec: BrokerClusterSpec) -> Iterator[Violation]:
    external = spec.external
    inside = None if external is None else external.template
    for field, template in (
        ("spec.networking.externalTemplate", spec.networking.external_template),
        ("spec.external.template", inside),
    ):
        if not _has_an_address_for_each(spec, template):
            yield Violation("BC16", "spec", rule_texts.EACH_ITS_ADDRESS, field)
    if external is None:
        return
    node_port = external.type == "NodePort"
    if (
        (external.type == "Template") != (external.template is not None)
        or node_port != (external.node_addresses is not None)
        or node_port != (external.first_node_port is not None)
    ):
        yield Violation("BC17", "spec.external", rule_texts.EXTERNAL_TYPE)
    if spec.networking.broker_address != "DNS":
        yield Violation("BC18", "spec", rule_texts.EXTERNAL_TWICE, "spec.external")


def _has_an_address_for_each(spec: BrokerClusterSpec, template: str | None) -> bool:
    if template is None:
        return True
    slaves = max(
        [spec.slaves_per_pair, *(each.slaves_per_pair or 0 for each in spec.pair_overrides)]
    )
    pairs = spec.pairs == 1 or "{pair}" in template
    return pairs and (slaves == 0 or "{ordinal}" in template)


def _account(path: str, name: str | None) -> Iterator[Violation]:
    if name is not None and _OPERATOR_ACCOUNTS.search(name):
        field = f"{path}.serviceAccountName"
        detail = f"{name}: {rule_texts.OPERATOR_ACCOUNT}"
        yield Violation("AC1", path, rule_texts.OPERATOR_ACCOUNT, field, detail)


def is_managed(key: str) -> bool:
    """Whether a key of broker.conf is the operator's, however it is spelt.

    Other letters than Apache's have no effect there; a broker of ours refuses some of them.
    """
    plain = key.lower().replace(*rule_texts.DLEDGER)
    return plain in _MANAGED or plain.startswith(rule_texts.MANAGED_PREFIX.lower())


def _broker_config(path: str, config: Mapping[str, str]) -> Iterator[Violation]:
    for key, value in config.items():
        at = f"{path}.{key}"
        managed = is_managed(key)
        unreadable = not _is_property(key, value)
        if managed:
            yield Violation("BC8", path, rule_texts.MANAGED_KEY, at)
        if unreadable:
            yield Violation("BC9", path, rule_texts.NO_BROKER_KEY, at)
        if managed or unreadable or key not in config_keys():
            continue
        if problem := config_keys()[key].problem(value):
            yield Violation("config_keys", path, f"{key}: {problem}", at, problem)


def _config_characters(spec: BrokerClusterSpec) -> int:
    tables = [spec.config, *(override.config for override in spec.pair_overrides)]
    return sum(len(key) + len(value) for table in tables for key, value in table.items())


def _is_property(key: str, value: str) -> bool:
    return bool(_PROPERTY_KEY.fullmatch(key)) and not {"\n", "\r"} & set(key + value)


def _pair_overrides(spec: BrokerClusterSpec) -> Iterator[Violation]:
    for index, times in Counter(override.index for override in spec.pair_overrides).items():
        if times > 1:
            problem = f"index {index} is given {times} times; a pair has one entry and one master"
            yield Violation("schema", "spec.pairOverrides", problem)
    for position, override in enumerate(spec.pair_overrides):
        path = f"spec.pairOverrides[{position}]"
        slaves = spec.slaves_per_pair
        if override.slaves_per_pair is not None:
            slaves = override.slaves_per_pair
        if override.master_member is not None and override.master_member > slaves:
            own = override.slaves_per_pair is not None
            rule, at = ("BC10", path) if own else ("BC11", "spec")
            problem = f"{rule_texts.NO_SUCH_MEMBER}: the pair has members 0 to {slaves}"
            yield Violation(rule, at, rule_texts.NO_SUCH_MEMBER, f"{path}.masterMember", problem)
        if (override.master_role or spec.master_role) == "SYNC_MASTER" and slaves < 1:
            yield Violation("BC6", "spec", rule_texts.NEEDS_SLAVE, f"{path}.masterRole")
        yield from _broker_config(f"{path}.config", override.config)


def _engine(engine: Engine) -> Iterator[Violation]:
    path = "spec.engine"
    if engine.program == "failback":
        if engine.java_options is not None:
            detail = "javaOptions is for engine apache"
            yield Violation("EN1", path, rule_texts.ENGINE, f"{path}.javaOptions", detail)
        return
    if engine.rules not in (None, "compat"):
        yield Violation(
            "EN1", path, rule_texts.ENGINE, f"{path}.rules", "rules is for engine failback"
        )
    if engine.version is None or not _APACHE_VERSION.fullmatch(engine.version):
        detail = "apache needs version 4.9.x or 5.x.y"
        yield Violation("EN1", path, rule_texts.ENGINE, f"{path}.version", detail)


def _pod_template(template: PodTemplate) -> Iterator[Violation]:
    at = "spec.podTemplate"
    yield from _account(at, template.service_account_name)
    if (template.priority_class_name or "").startswith("system-"):
        field = f"{at}.priorityClassName"
        yield Violation("PT3", at, rule_texts.SYSTEM_PRIORITY, field)
    for position, variable in enumerate(template.env):
        if (
            variable.name.startswith("FAILBACK_")
            or variable.name in rule_texts.RESERVED_ENVIRONMENT
        ):
            field, detail = f"{at}.env[{position}].name", f"{variable.name} is set by the operator"
            yield Violation("PT1", at, rule_texts.RESERVED_VARIABLE, field, detail)
    for name, table in (("labels", template.labels), ("annotations", template.annotations)):
        for key in table:
            if key.startswith(("failback.dev/", "app.kubernetes.io/")):
                path = f"{at}.{name}"
                yield Violation("PT2", path, rule_texts.RESERVED_PREFIX, f"{path}.{key}")


def _storage(spec: BrokerClusterSpec) -> Iterator[Violation]:
    if spec.storage.type != "Persistent":
        return
    smallest = parse_quantity(rule_texts.SMALLEST_STORE)
    sizes = [("spec.storage.size", spec.storage.size)]
    for position, override in enumerate(spec.pair_overrides):
        if override.storage_size is not None:
            sizes.append((f"spec.pairOverrides[{position}].storageSize", override.storage_size))
    for field, size in sizes:
        if parse_quantity(size) < smallest:
            detail = f"must be at least {rule_texts.SMALLEST_STORE}"
            yield Violation("BC14", "spec", rule_texts.STORE_TOO_SMALL, field, detail)


def _cluster_change(new: BrokerCluster, old: BrokerCluster) -> Iterator[Violation]:
    if new.spec.cluster_name != old.spec.cluster_name:
        yield Violation("BC3", "spec", rule_texts.immutable("clusterName"), "spec.clusterName")
    if new.spec.broker_name_prefix != old.spec.broker_name_prefix:
        field = "spec.brokerNamePrefix"
        yield Violation("BC3", "spec", rule_texts.immutable("brokerNamePrefix"), field)
    after, before = new.spec.storage, old.spec.storage
    if (after.type, after.storage_class_name) != (before.type, before.storage_class_name):
        yield Violation("BC4", "spec.storage", rule_texts.STORAGE_FIXED)
    if after.type == "Persistent" and parse_quantity(after.size) < parse_quantity(before.size):
        yield Violation("BC5", "spec.storage", rule_texts.NO_SHRINKING, "spec.storage.size")
    if _first_node_port(new) != _first_node_port(old):
        field = "spec.external.firstNodePort"
        yield Violation("BC19", "spec", rule_texts.NODE_PORT_FIXED, field)
    if new.spec.networking.listen_port != old.spec.networking.listen_port:
        yield Violation(
            "BC12", "spec.networking", rule_texts.LISTEN_PORT_FIXED, "spec.networking.listenPort"
        )


def _first_node_port(cluster: BrokerCluster) -> int:
    external = cluster.spec.external
    return 0 if external is None else external.first_node_port or 0


def _name_server(new: NameServer) -> Iterator[Violation]:
    yield from _named(new.metadata, "NS1")
    path = "spec.config"
    for key, value in new.spec.config.items():
        if key.lower() in _MANAGED_OF_NAMESRV:
            yield Violation("NS2", path, rule_texts.MANAGED_KEY, f"{path}.{key}")
        if not _is_property(key, value):
            yield Violation("NS2", path, rule_texts.NO_NAMESRV_KEY, f"{path}.{key}")
    external = new.spec.external
    if external is not None:
        node_port = external.type == "NodePort"
        given = (external.node_addresses is not None, external.node_port is not None)
        if given != (node_port, node_port):
            yield Violation("NS3", "spec.external", rule_texts.NAMESRV_EXTERNAL)
    yield from _engine(new.spec.engine)
    yield from _pod_template(new.spec.pod_template)


def _name_server_change(new: NameServer, old: NameServer) -> Iterator[Violation]:
    if new.spec.port != old.spec.port:
        yield Violation("NS1", "spec", rule_texts.PORT_FIXED, "spec.port")


def _topic(new: Topic) -> Iterator[Violation]:
    spec = new.spec
    yield from _undotted(new.metadata)
    if spec.read_queue_nums < spec.write_queue_nums:
        yield Violation("TP1", "spec", rule_texts.READS_COVER_WRITES, "spec.readQueueNums")
    if spec.topic_name is None:
        if len(new.name) > MAX_TOPIC_NAME:
            yield Violation("TP3", "", rule_texts.NO_TOPIC_NAME, "metadata.name")
        return
    if not _NAME.fullmatch(spec.topic_name):
        detail = f'{rule_texts.NO_TOPIC_NAME}: "{spec.topic_name}"'
        yield Violation("TP3", "spec", rule_texts.NO_TOPIC_NAME, "spec.topicName", detail)
    if is_system_topic(spec.topic_name):
        detail = f"{spec.topic_name} {rule_texts.SYSTEM_TOPIC}"
        yield Violation("TP3", "spec", rule_texts.SYSTEM_TOPIC, "spec.topicName", detail)


def _topic_change(new: Topic, old: Topic) -> Iterator[Violation]:
    yield from _reference_change(new.spec.cluster_ref.name, old.spec.cluster_ref.name)
    if new.spec.topic_name != old.spec.topic_name:
        yield Violation("TP2", "spec", rule_texts.immutable("topicName"), "spec.topicName")


def _reference_change(new: str, old: str) -> Iterator[Violation]:
    if new != old:
        yield Violation("TP2", "spec", rule_texts.CLUSTER_REF_FIXED, "spec.clusterRef.name")


def _group(new: SubscriptionGroup) -> Iterator[Violation]:
    spec = new.spec
    yield from _undotted(new.metadata)
    own = spec.group_name is not None
    if len(new.group_name) > MAX_GROUP_NAME:
        path, field = ("spec", "spec.groupName") if own else ("", "metadata.name")
        yield Violation("SG1", path, rule_texts.GROUP_TOO_LONG, field)
    if spec.group_name is not None and not _NAME.fullmatch(spec.group_name):
        detail = f'{rule_texts.NO_GROUP_NAME}: "{spec.group_name}"'
        yield Violation("SG3", "spec", rule_texts.NO_GROUP_NAME, "spec.groupName", detail)
    name = spec.group_name or ""
    if is_reserved_group(name):
        detail = f"{name} {rule_texts.SYSTEM_GROUP}"
        yield Violation("SG3", "spec", rule_texts.SYSTEM_GROUP, "spec.groupName", detail)
    if spec.remove_offsets and spec.deletion_policy != "Delete":
        yield Violation("SG2", "spec", rule_texts.OFFSETS_KEPT, "spec.removeOffsets")


def _group_change(new: SubscriptionGroup, old: SubscriptionGroup) -> Iterator[Violation]:
    yield from _reference_change(new.spec.cluster_ref.name, old.spec.cluster_ref.name)
    if new.spec.group_name != old.spec.group_name:
        yield Violation("TP2", "spec", rule_texts.immutable("groupName"), "spec.groupName")


def _role_switch(new: RoleSwitch) -> Iterator[Violation]:
    yield from _undotted(new.metadata)


def _offset_snapshot(new: OffsetSnapshot) -> Iterator[Violation]:
    yield from _undotted(new.metadata)


def _offset_snapshot_change(new: OffsetSnapshot, old: OffsetSnapshot) -> Iterator[Violation]:
    yield from _reference_change(new.spec.cluster_ref.name, old.spec.cluster_ref.name)


def _as_json(resource: _OneShot) -> dict[str, str]:
    """Return each field of the spec as JSON, where 1 and true are not the same."""
    spec = resource.spec.model_dump(mode="json", by_alias=True)
    if isinstance(resource, RoleSwitch):
        spec["pair"] = resource.spec.pair
    return {field: json.dumps(value, sort_keys=True) for field, value in spec.items()}


def _one_shot(new: _OneShot, old: _OneShot) -> Iterator[Violation]:
    if _as_json(new) != _as_json(old):
        yield Violation("ON1", "spec", rule_texts.ONE_SHOT)


def _chaos_experiment(new: ChaosExperiment) -> Iterator[Violation]:
    spec = new.spec
    yield from _undotted(new.metadata)
    if len(new.name) > rule_texts.MAX_EXPERIMENT_NAME:
        yield Violation("CX4", "", rule_texts.TOO_LONG_63, "metadata.name")
    if not 0.05 <= float(spec.time_scale) <= 1:
        yield Violation("CX5", "spec", rule_texts.TIME_SCALE, "spec.timeScale")
    yield from _fault_targets("spec.faults", spec.faults)
    yield from _twice("spec.faults", "id", (fault.id for fault in spec.faults), "CX3")
    yield from _twice("spec.arms", "name", (arm.name for arm in spec.arms))
    workload = spec.workload
    yield from _twice("spec.workload.topics", "name", (each.name for each in workload.topics))
    yield from _twice("spec.workload.groups", "name", (each.name for each in workload.groups))
    for position, arm in enumerate(spec.arms):
        yield from _fault_targets(f"spec.arms[{position}].faults", arm.faults)
        yield from _broker_config(f"spec.arms[{position}].brokerConfig", arm.broker_config)
    yield from _account("spec.job", spec.job.service_account_name)
    if spec.guard.require_namespace_label is False:
        field = "spec.guard.requireNamespaceLabel"
        yield Violation("CX6", "spec.guard", rule_texts.NOT_ITS_OWN_GUARD, field)


def _fault_targets(path: str, faults: Iterable[Fault]) -> Iterator[Violation]:
    for position, fault in enumerate(faults):
        target, at = fault.target, f"{path}[{position}].target"
        both = target.pair is not None and target.pair_selector is not None
        if both or (target.mode in _SOME and target.value is None):
            yield Violation("CX2", at, rule_texts.TARGET)


def _twice(
    path: str, field: str, names: Iterable[str], rule: str = "schema"
) -> Iterator[Violation]:
    """Refuse a name that is used twice; the schema does it where the list is a map."""
    seen: set[str] = set()
    for position, name in enumerate(names):
        if name in seen:
            at, detail = f"{path}[{position}].{field}", f'"{name}" is used twice'
            if rule == "schema":
                yield Violation(rule, at, detail)
            else:
                yield Violation(rule, "spec", rule_texts.FAULT_IDS, at, detail)
        seen.add(name)


def _experiment_change(new: ChaosExperiment, old: ChaosExperiment) -> Iterator[Violation]:
    after, before = _as_json(new), _as_json(old)
    changed = [field for field in after if field != "abort" and after[field] != before[field]]
    if changed or (old.spec.abort and not new.spec.abort):
        field = f"spec.{changed[0] if changed else 'abort'}"
        yield Violation("CX1", "spec", rule_texts.ONLY_ABORT, field)


def _report(new: ReconsumptionReport) -> Iterator[Violation]:
    spec = new.spec
    yield from _undotted(new.metadata)
    if (spec.experiment_ref is None) == (spec.inputs is None):
        yield Violation("RR1", "spec", rule_texts.REPORT_INPUT, "spec.experimentRef")
    if spec.inputs is not None and (spec.inputs.claim_name is None) == (spec.inputs.uri is None):
        yield Violation("RR2", "spec.inputs", rule_texts.ONE_INPUT)
    uris = [("spec", "artifactUri", spec.artifact_uri)]
    if spec.inputs is not None:
        uris.append(("spec.inputs", "uri", spec.inputs.uri))
    for path, field, uri in uris:
        if uri is not None and _UP.search(uri):
            yield Violation("RR4", path, f"{field} {rule_texts.NO_UP}", f"{path}.{field}")
    yield from _account("spec.spark", spec.spark.service_account_name)
    for key in spec.spark.conf:
        if _SPARK_NEVER.search(key):
            path = "spec.spark.conf"
            yield Violation("RR3", path, rule_texts.NO_SPARK_SETTING, f"{path}.{key}")


_Create = Callable[[Any], Iterator[Violation]]
_Change = Callable[[Any, Any], Iterator[Violation]]
_TWINS: Final[dict[type[Resource], tuple[_Create, _Change]]] = {
    BrokerCluster: (_broker_cluster, _cluster_change),
    NameServer: (_name_server, _name_server_change),
    Topic: (_topic, _topic_change),
    SubscriptionGroup: (_group, _group_change),
    RoleSwitch: (_role_switch, _one_shot),
    OffsetSnapshot: (_offset_snapshot, _offset_snapshot_change),
    ChaosExperiment: (_chaos_experiment, _experiment_change),
    ReconsumptionReport: (_report, _one_shot),
}
