"""What the schema alone can't say: the Python twins of the CRDs' CEL rules.

Each rule looks at one object (and its stored predecessor), so that the API server and the
local runtime refuse the same things in the same words. Rules on the predecessor do not run
on create.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from failback.operator.catalogue import config_keys
from failback.operator.kinds.base import Engine, PodTemplate, Resource, parse_quantity
from failback.operator.kinds.broker_cluster import BrokerCluster, BrokerClusterSpec
from failback.operator.kinds.name_server import NameServer
from failback.operator.kinds.subscription_group import SubscriptionGroup
from failback.operator.kinds.topic import Topic

MANAGED_BROKER_KEYS: Final = frozenset(
    {
        "brokerId",
        "brokerRole",
        "brokerName",
        "brokerClusterName",
        "brokerIP1",
        "brokerIP2",
        "namesrvAddr",
        "listenPort",
        "haListenPort",
        "haMasterAddress",
        "slaveReadEnable",
        "flushDiskType",
        "brokerPermission",
        "inSyncReplicas",
        "totalReplicas",
        "brokerConfigPath",
        "rocketmqHome",
        "configBlackList",
        "enableDLegerCommitLog",
        "enableControllerMode",
        "aclEnable",
    }
)
MANAGED_NAMESRV_KEYS: Final = frozenset(
    {
        "listenPort",
        "configStorePath",
        "kvConfigPath",
        "rocketmqHome",
        "bindAddress",
        "failbackHttpPort",
    }
)
RESERVED_ENVIRONMENT: Final = frozenset(
    ("HOME", "TMPDIR", "POD_NAME", "POD_NAMESPACE", "POD_IP", "JAVA_OPT_EXT")
)
MAX_CLUSTER_NAME: Final = 40  # so that StatefulSet names stay below 52 characters
_PROPERTY_KEY = re.compile(r"^[A-Za-z][A-Za-z0-9]{0,63}$")
_APACHE_VERSION = re.compile(r"^(4\.9\.[0-9]+|5\.[0-9]+\.[0-9]+)$")
_ADDRESS = re.compile(r"^[^;:\s]+:\d{2,5}$")
_TOPIC_NAME = re.compile(r"^[%|a-zA-Z0-9_-]{1,127}$")  # TopicValidator, apache/rocketmq 4.9.8
_SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        "SELF_TEST_TOPIC",
        "BenchmarkTest",
        "OFFSET_MOVED_EVENT",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
    }
)


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule: its id, the path of the field, and what to do."""

    rule: str
    path: str
    message: str


def violations(new: Resource, old: Resource | None = None) -> list[Violation]:
    """Return every rule that ``new`` breaks, as a change of ``old`` if given."""
    if isinstance(new, BrokerCluster):
        before = old if isinstance(old, BrokerCluster) else None
        return [*_broker_cluster(new), *(_cluster_change(new, before) if before else ())]
    if isinstance(new, NameServer):
        stored = old if isinstance(old, NameServer) else None
        return list(_name_server(new, stored))
    if isinstance(new, Topic):
        return list(_topic(new, old if isinstance(old, Topic) else None))
    if isinstance(new, SubscriptionGroup):
        return list(_group(new, old if isinstance(old, SubscriptionGroup) else None))
    return []


def _broker_cluster(cluster: BrokerCluster) -> Iterator[Violation]:
    spec = cluster.spec
    if len(cluster.name) > MAX_CLUSTER_NAME:
        yield Violation("BC1", "metadata.name", "is longer than 40 characters")
    if (spec.name_server_ref is None) == (spec.name_server_addresses is None):
        yield Violation(
            "BC2", "spec.nameServerRef", "exactly one of nameServerRef and nameServerAddresses"
        )
    for position, address in enumerate(spec.name_server_addresses or ()):
        if not _ADDRESS.match(address):
            path = f"spec.nameServerAddresses[{position}]"
            yield Violation("BC2", path, f'must be host:port, got "{address}"')
    if spec.master_role == "SYNC_MASTER" and spec.slaves_per_pair < 1:
        yield Violation("BC6", "spec.masterRole", "SYNC_MASTER needs a slave")
    in_sync = spec.sync.in_sync_replicas
    if in_sync is not None and in_sync > spec.slaves_per_pair + 1:
        yield Violation("BC7", "spec.sync.inSyncReplicas", "more acknowledgements than members")
    yield from _broker_config("spec.config", spec.config)
    yield from _pair_overrides(spec)
    yield from _engine(spec.engine)
    yield from _pod_template(spec.pod_template)
    yield from _storage(spec)
    networking = spec.networking
    if (networking.broker_address == "external") == (networking.external_template is None):
        yield Violation(
            "BC12", "spec.networking", "externalTemplate belongs to brokerAddress external"
        )
    if spec.lifecycle.drain_seconds > spec.lifecycle.termination_grace_period_seconds - 10:
        yield Violation(
            "BC13", "spec.lifecycle.drainSeconds", "drain must end 10 s before the grace period"
        )


def _broker_config(path: str, config: dict[str, str]) -> Iterator[Violation]:
    for key, value in config.items():
        at = f"{path}.{key}"
        if key in MANAGED_BROKER_KEYS or key.startswith("storePath"):
            yield Violation("BC8", at, "key is managed by the operator; use the spec field")
        elif not _PROPERTY_KEY.match(key) or "\n" in value or "\r" in value:
            yield Violation("BC9", at, "not a broker.conf key or value")
        elif key in config_keys() and (problem := config_keys()[key].problem(value)):
            yield Violation("config_keys", at, problem)


def _pair_overrides(spec: BrokerClusterSpec) -> Iterator[Violation]:
    for index, times in Counter(override.index for override in spec.pair_overrides).items():
        if times > 1:
            problem = f"index {index} is given {times} times; a pair has one entry and one master"
            yield Violation("BC10", "spec.pairOverrides", problem)
    for position, override in enumerate(spec.pair_overrides):
        path = f"spec.pairOverrides[{position}]"
        slaves = spec.slaves_per_pair
        if override.slaves_per_pair is not None:
            slaves = override.slaves_per_pair
        if override.master_member > slaves:
            rule = "BC11" if override.slaves_per_pair is None else "BC10"
            problem = f"masterMember has no such member: the pair has members 0 to {slaves}"
            yield Violation(rule, f"{path}.masterMember", problem)
        if (override.master_role or spec.master_role) == "SYNC_MASTER" and slaves < 1:
            yield Violation("BC6", f"{path}.masterRole", "SYNC_MASTER needs a slave")
        yield from _broker_config(f"{path}.config", override.config)


def _engine(engine: Engine) -> Iterator[Violation]:
    if engine.type == "failback":
        if engine.java_options is not None:
            yield Violation("EN1", "spec.engine.javaOptions", "javaOptions is for engine apache")
        return
    if engine.rules not in (None, "compat"):
        yield Violation("EN1", "spec.engine.rules", "rules is for engine failback")
    if engine.version is None or not _APACHE_VERSION.match(engine.version):
        yield Violation("EN1", "spec.engine.version", "apache needs version 4.9.x or 5.x.y")


def _pod_template(template: PodTemplate) -> Iterator[Violation]:
    for position, variable in enumerate(template.env):
        if variable.name.startswith("FAILBACK_") or variable.name in RESERVED_ENVIRONMENT:
            path = f"spec.podTemplate.env[{position}].name"
            yield Violation("PT1", path, f"{variable.name} is set by the operator")
    for field, table in (("labels", template.labels), ("annotations", template.annotations)):
        for key in table:
            if key.startswith(("failback.dev/", "app.kubernetes.io/")):
                path = f"spec.podTemplate.{field}.{key}"
                yield Violation("PT2", path, "the prefix belongs to the operator")


def _storage(spec: BrokerClusterSpec) -> Iterator[Violation]:
    if spec.storage.type != "persistent":
        return
    smallest = parse_quantity("4Gi")
    if parse_quantity(spec.storage.size) < smallest:
        yield Violation("BC14", "spec.storage.size", "must be at least 4Gi")
    for position, override in enumerate(spec.pair_overrides):
        if override.storage_size and parse_quantity(override.storage_size) < smallest:
            path = f"spec.pairOverrides[{position}].storageSize"
            yield Violation("BC14", path, "must be at least 4Gi")


def _cluster_change(new: BrokerCluster, old: BrokerCluster) -> Iterator[Violation]:
    if new.spec.cluster_name != old.spec.cluster_name:
        yield Violation("BC3", "spec.clusterName", "clusterName is immutable")
    if new.spec.broker_name_prefix != old.spec.broker_name_prefix:
        yield Violation("BC3", "spec.brokerNamePrefix", "brokerNamePrefix is immutable")
    after, before = new.spec.storage, old.spec.storage
    if (after.type, after.storage_class_name) != (before.type, before.storage_class_name):
        yield Violation("BC4", "spec.storage", "storage type and class are immutable")
    elif after.type == "persistent" and parse_quantity(after.size) < parse_quantity(before.size):
        yield Violation("BC5", "spec.storage.size", "storage can't shrink")
    if new.spec.networking.listen_port != old.spec.networking.listen_port:
        yield Violation("BC12", "spec.networking.listenPort", "listenPort is immutable")


def _name_server(new: NameServer, old: NameServer | None) -> Iterator[Violation]:
    if len(new.name) > MAX_CLUSTER_NAME:
        yield Violation("NS1", "metadata.name", "is longer than 40 characters")
    if old is not None and new.spec.port != old.spec.port:
        yield Violation("NS1", "spec.port", "port is immutable")
    for key, value in new.spec.config.items():
        if key in MANAGED_NAMESRV_KEYS:
            problem = "key is managed by the operator; use the spec field"
            yield Violation("NS2", f"spec.config.{key}", problem)
        elif not _PROPERTY_KEY.match(key) or "\n" in value or "\r" in value:
            yield Violation("NS2", f"spec.config.{key}", "not a namesrv.conf key or value")
    yield from _engine(new.spec.engine)
    yield from _pod_template(new.spec.pod_template)


def _topic(new: Topic, old: Topic | None) -> Iterator[Violation]:
    spec = new.spec
    if spec.read_queue_nums < spec.write_queue_nums:
        yield Violation("TP1", "spec.readQueueNums", "reads must cover writes")
    if old is not None and spec.cluster_ref != old.spec.cluster_ref:
        yield Violation("TP2", "spec.clusterRef.name", "clusterRef is immutable")
    if old is not None and spec.topic_name != old.spec.topic_name:
        yield Violation("TP2", "spec.topicName", "topicName is immutable")
    path = "metadata.name" if spec.topic_name is None else "spec.topicName"
    if not _TOPIC_NAME.match(new.topic_name):
        yield Violation("TP3", path, f'not a topic name: "{new.topic_name}"')
    elif new.topic_name in _SYSTEM_TOPICS:
        yield Violation("TP3", path, f"{new.topic_name} is a system topic")


def _group(new: SubscriptionGroup, old: SubscriptionGroup | None) -> Iterator[Violation]:
    spec = new.spec
    if old is not None and spec.cluster_ref != old.spec.cluster_ref:
        yield Violation("TP2", "spec.clusterRef.name", "clusterRef is immutable")
    if old is not None and spec.group_name != old.spec.group_name:
        yield Violation("TP2", "spec.groupName", "groupName is immutable")
    path = "metadata.name" if spec.group_name is None else "spec.groupName"
    if not _TOPIC_NAME.match(new.group_name):
        yield Violation("SG1", path, f'not a group name: "{new.group_name}"')
    elif len(new.group_name) > 120:
        yield Violation("SG1", path, "%RETRY% + group must fit 127 characters")
    if spec.remove_offsets and spec.deletion_policy != "Delete":
        yield Violation("SG2", "spec.removeOffsets", "removeOffsets needs deletionPolicy Delete")
