"""One table of objects for both evaluators of the CEL rules: the API server and this process.

A case is an object, perhaps a stored predecessor, and the rules that it breaks. ``schema`` stands
for what the structural schema refuses; there only the verdict has to agree, not the words.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
from pydantic import ValidationError

from failback.operator.schema.decoding import KINDS, Invalid, decode, path_text
from failback.operator.schema.rules import Violation, violations

Spec = dict[str, Any]

BASES: Final[dict[str, Spec]] = {
    "NameServer": {},
    "BrokerCluster": {"nameServerRef": {"name": "main"}},
    "Topic": {"clusterRef": {"name": "orders"}},
    "SubscriptionGroup": {"clusterRef": {"name": "orders"}},
    "RoleSwitch": {"clusterRef": {"name": "orders"}, "pair": "orders-0", "targetMember": 1},
    "OffsetSnapshot": {"clusterRef": {"name": "orders"}},
    "ChaosExperiment": {
        "clusterRef": {"name": "orders"},
        "workload": {"topics": [{"name": "ORDER_PAID"}]},
    },
    "ReconsumptionReport": {"experimentRef": {"name": "kill-master"}},
}


@dataclass(frozen=True, slots=True)
class Case:
    """An object and what is wrong with it."""

    number: int
    kind: str
    new: Spec
    old: Spec | None
    rules: tuple[str, ...]
    name: str

    def document(self, spec: Spec, namespace: str = "default") -> dict[str, Any]:
        """Return the whole object with one of the two specs."""
        return {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": self.kind,
            "metadata": {"name": self.name, "namespace": namespace},
            "spec": copy.deepcopy(spec),
        }

    def __str__(self) -> str:
        """Return the name of the test."""
        return f"{self.kind}-{self.number}-{'-'.join(self.rules) or 'fine'}"


def validate(
    kind: str, new: Mapping[str, Any], old: Mapping[str, Any] | None = None
) -> list[Violation]:
    """Return the rules that ``new`` breaks: the schema as rule ``schema``, then the CEL rules."""
    try:
        resource = KINDS[kind].model_validate(dict(new))
    except ValidationError:
        with pytest.raises(Invalid) as refused:
            decode({"kind": kind, **new})
        return [Violation("schema", path_text(refused.value.path), refused.value.problem)]
    return violations(resource, KINDS[kind].model_validate(dict(old)) if old else None)


def _merged(kind: str, changes: Mapping[str, Any]) -> Spec:
    spec = {**copy.deepcopy(BASES[kind]), **changes}
    return {key: value for key, value in spec.items() if value is not None}


_ROWS: list[tuple[str, tuple[str, ...], Mapping[str, Any], Mapping[str, Any] | None, str]] = []


def _row(
    kind: str,
    rules: str,
    changes: Mapping[str, Any] | None = None,
    *,
    old: Mapping[str, Any] | None = None,
    name: str = "",
) -> None:
    _ROWS.append((kind, tuple(rules.split()), changes or {}, old, name))


def _cluster(rules: str, old: Mapping[str, Any] | None = None, **changes: Any) -> None:
    _row("BrokerCluster", rules, changes, old=old)


_FAULT: Final = {"id": "f1", "fault": "kill", "target": {"pair": "orders-0"}}
_APACHE: Final = {"type": "Apache", "version": "4.9.7"}

_row("NameServer", "")
_row("NameServer", "", {"replicas": 3, "config": {"serverWorkerThreads": "8"}}, old={})
_row("NameServer", "NS1", {"port": 9877}, old={})
_row("NameServer", "NS1", name="n" * 41)
_row("NameServer", "", name="n" * 40)
_row("NameServer", "NM1", name="1st")
_row("NameServer", "NM1", name="a.b")
_row("NameServer", "NS2", {"config": {"listenPort": "1"}})
_row("NameServer", "NS2", {"config": {"KVConfigPath": "/x"}})
_row("NameServer", "", {"external": {"type": "LoadBalancer"}})
_row("NameServer", "", {"external": {
    "type": "NodePort", "nodePort": 30876, "nodeAddresses": ["a"]}})  # fmt: skip
_row("NameServer", "NS3", {"external": {"type": "NodePort"}})
_row("NameServer", "NS3", {"external": {"type": "LoadBalancer", "nodePort": 30876}})
_row("NameServer", "schema", {"external": {"type": "Template"}})
_row("NameServer", "NS2", {"config": {"a-b": "1"}})
_row("NameServer", "NS2", {"config": {"orderMessageEnable": "true\nlistenPort=1"}})
_row("NameServer", "schema", {"replicas": 0})
_row("NameServer", "schema", {"replicas": "2"})
_row("NameServer", "EN1", {"engine": {"type": "Apache"}})
_row("NameServer", "EN2", {"engine": {"logs": {"sizeLimit": "900Mi"}}})
_row("NameServer", "", {"engine": _APACHE})
_row("NameServer", "PT1", {"podTemplate": {"env": [{"name": "POD_IP", "value": "x"}]}})
_SECRET: Final = {"secretKeyRef": {"name": "db", "key": "password"}}
_row("NameServer", "AC1", {"podTemplate": {"serviceAccountName": "failback-operator"}})
_row("NameServer", "", {"podTemplate": {"serviceAccountName": "brokers"}})
_row("NameServer", "PT3", {"podTemplate": {"priorityClassName": "system-node-critical"}})
_row("NameServer", "", {"podTemplate": {"env": [{"name": "A", "valueFrom": _SECRET}]}})
_row("NameServer", "schema", {"podTemplate": {"env": [
    {"name": "A", "valueFrom": {"secretKeyRef": "db"}}]}})  # fmt: skip
_row("NameServer", "PT2", {"podTemplate": {"labels": {"failback.dev/x": "y"}}})
_row("NameServer", "PT2", {"podTemplate": {"annotations": {"app.kubernetes.io/x": "y"}}})

_cluster("")
_cluster("", old={}, pairs=3, slaveReadEnable=True, nameServerRef={"name": "other"})
_row("BrokerCluster", "BC1", name="c" * 41)
_row("BrokerCluster", "NM1", name="2nd")
_cluster("BC2", nameServerRef=None)
_cluster("BC2", nameServerAddresses=["ns:9876"])
_cluster("", nameServerRef=None, nameServerAddresses=["ns-0.ns:9876", "10.0.0.1:9876"])
_cluster("schema", nameServerRef=None, nameServerAddresses=["ns;9876"])
_cluster("BC3", old={}, clusterName="a")
_cluster("BC3", old={"clusterName": "a"}, clusterName="b")
_cluster("BC3", old={"clusterName": "a"})
_cluster("", old={"clusterName": "a"}, clusterName="a")
_cluster("BC3", old={"brokerNamePrefix": "a"}, brokerNamePrefix="b")
_cluster("BC4", old={}, storage={"type": "Ephemeral"})
_cluster("BC4", old={}, storage={"storageClassName": "fast"})
_cluster("BC4", old={"storage": {"storageClassName": "slow"}}, storage={"storageClassName": "fast"})
_cluster("BC5", old={"storage": {"size": "20Gi"}}, storage={"size": "10Gi"})
_cluster("", old={"storage": {"size": "20Gi"}}, storage={"size": "20480Mi"})
_cluster("", old={"storage": {"size": "20Gi"}}, storage={"size": "21Gi", "deleteClaim": True})
_cluster("BC6", masterRole="SYNC_MASTER", slavesPerPair=0)
_cluster("", masterRole="SYNC_MASTER")
_cluster("BC6", masterRole="SYNC_MASTER", pairOverrides=[{"index": 0, "slavesPerPair": 0}])
_cluster("BC6", slavesPerPair=0, pairOverrides=[{"index": 0, "masterRole": "SYNC_MASTER"}])
_cluster("BC7", sync={"inSyncReplicas": 3})
_cluster("", sync={"inSyncReplicas": 2})
_cluster("BC8", config={"brokerRole": "SLAVE"})
_cluster("BC8", config={"storePathIndex": "/x"})
_REFUSED: Final = {"namesrvAddr": "x:1", "initAuthenticationUser": "{}", "inBrokerContainer": "1"}
_cluster("BC8", pairOverrides=[{"index": 1, "config": _REFUSED}])
_cluster("BC9", config={"file reserved": "48"})
_cluster("BC9", config={"k" * 65: "48"})
_cluster("BC9", config={"fileReservedTime": "48\nbrokerId=1"})
_cluster("schema", config={"regionId": "a\\"})
_cluster("schema", pairOverrides=[{"index": 0, "config": {"regionId": "a\\b"}}])
_cluster("BC8", config={"failbackHttpPort": "9999"})
_cluster("BC8", config={"failbackBindAddress": "127.0.0.1"})
_cluster("BC8", config={"failbackMembers": "10.0.0.9:10911"})
_cluster("BC8", config={"readOnlyCommitLogStorePaths": "/old"})
_cluster("BC8", config={"enableControllerMode": "true"})
_cluster("BC8", config={"EnableSlaveActingMaster": "true"})
_cluster("BC8", config={"enableDLedgerCommitLog": "true"})
_cluster("BC8", config={"AuthenticationEnabled": "true"})
_cluster("BC8", config={"brokerrole": "SLAVE"})
_cluster("BC8", config={"StorePathCommitLog": "/x"})
_cluster("BC9", pairOverrides=[{"index": 1, "config": {"9x": "1"}}])
_cluster("BC8 BC9", config={"storePath.x": "1"})
_cluster("", config={"fileReservedTime": "48", "noSuchKey": "x"})
_cluster("schema", config={"fileReservedTime": 48})
_cluster("schema", config={"fileReservedTime": "x" * 1025})
_cluster("schema", config={f"key{number}": "x" for number in range(129)})
_cluster("BC10", pairOverrides=[{"index": 0, "slavesPerPair": 1, "masterMember": 2}])
_cluster("", pairOverrides=[{"index": 0, "slavesPerPair": 2, "masterMember": 2}])
_cluster("BC11", pairOverrides=[{"index": 0, "masterMember": 2}])
_cluster("", pairOverrides=[{"index": 0, "masterMember": 1}, {"index": 9}])
_cluster("schema", pairOverrides=[{"index": 0}, {"index": 0, "masterMember": 1}])
_cluster("schema", pairOverrides=[{"index": 64}])
_MANY: Final = {f"key{number}": "x" * 1000 for number in range(128)}
_cluster("", config=_MANY, pairOverrides=[{"index": index, "config": _MANY} for index in range(3)])
_cluster("BC15", pairOverrides=[{"index": index, "config": _MANY} for index in range(5)])
_cluster("BC12", networking={"brokerAddress": "External"})
_cluster("BC12", networking={"externalTemplate": "{pair}-{ordinal}.example.org"})
_OUTSIDE: Final = {"brokerAddress": "External", "externalTemplate": "{pair}-{ordinal}.example.org"}
_ALL_WORDS: Final = "{cluster}.{pair}-{ordinal}.{namespace}.example.org"
_cluster("", networking=_OUTSIDE)
_cluster("", pairs=2, networking={**_OUTSIDE, "externalTemplate": _ALL_WORDS})
for _template in ("{", "}", "{}", "{podIP}-{pair}", "{cluster:>100000000}-{pair}-{ordinal}",
                  "{pair!r}", "{pair.real}-{ordinal}", "{{pair}}-{ordinal}", "{pair} {ordinal}",
                  "{pair}-{ordinal}\nbrokerId=0", "{pair}-{ordinal}:10911"):  # fmt: skip
    _cluster("schema", pairs=2, networking={**_OUTSIDE, "externalTemplate": _template})
_cluster("BC16", pairs=2, networking={**_OUTSIDE, "externalTemplate": "{ordinal}.example.org"})
_cluster("BC16", networking={**_OUTSIDE, "externalTemplate": "{pair}.example.org"})
_cluster("", slavesPerPair=0, networking={**_OUTSIDE, "externalTemplate": "mq.example.org"})
_cluster("BC16", slavesPerPair=0, pairOverrides=[{"index": 0, "slavesPerPair": 1}],
         networking={**_OUTSIDE, "externalTemplate": "mq.example.org"})  # fmt: skip
_cluster("BC12", old={}, networking={"listenPort": 20911})
_cluster("", external={"type": "LoadBalancer", "annotations": {"example.org/kind": "tcp"}})
_cluster("schema", external={})
_cluster("schema", external={"type": "Ingress"})
_PORTS: Final = {"type": "NodePort", "nodeAddresses": ["10.0.0.1"], "firstNodePort": 30911}
_cluster("", external=_PORTS)
_cluster("BC17", external={"type": "NodePort"})
_cluster("BC17", external={**_PORTS, "type": "LoadBalancer"})
_cluster("BC17", external={"type": "NodePort", "nodeAddresses": ["10.0.0.1"]})
_cluster("schema", external={**_PORTS, "nodeAddresses": []})
_cluster("schema", external={**_PORTS, "nodeAddresses": ["10.0.0.1:30911"]})
_cluster("schema", external={**_PORTS, "firstNodePort": 60001})
_cluster("BC17", external={"type": "Template"})
_cluster("", external={"type": "Template", "template": "{pair}-{ordinal}.example.org"})
_cluster("BC16", external={"type": "Template", "template": "mq.example.org"})
_cluster("BC18", external={"type": "LoadBalancer"}, networking={"brokerAddress": "PodIP"})
_cluster("BC18", external={"type": "LoadBalancer"}, networking=_OUTSIDE)
_cluster("BC19", old={"external": _PORTS}, external={**_PORTS, "firstNodePort": 31911})
_cluster("BC19", old={"external": _PORTS})
_cluster("BC19", old={}, external=_PORTS)
_cluster("", old={"external": _PORTS}, external={**_PORTS, "nodeAddresses": ["mq.example.org"]})
_cluster("", old={}, external={"type": "LoadBalancer"})
_cluster("BC13", lifecycle={"terminationGracePeriodSeconds": 30, "drainSeconds": 25})
_cluster("", lifecycle={"terminationGracePeriodSeconds": 30, "drainSeconds": 20})
_cluster("BC14", storage={"size": "3Gi"})
_cluster("", storage={"type": "Ephemeral", "size": "1Gi"})
_cluster("BC14", storage={"size": "500m"})
_cluster("BC14", storage={"type": "Ephemeral", "size": "500m"})
_cluster("BC14", pairOverrides=[{"index": 0, "storageSize": "100Mi"}])
_cluster("schema", storage={"size": "much"})
_cluster("schema", storage={"size": 21474836480})
_cluster("", resources={"requests": {"cpu": 2, "memory": "1.5Gi"}})
_cluster("schema", resources={"requests": {"cpu": 0.5}})
_cluster("schema", resources={"requests": {"cpu": "half"}})
_cluster("BC21", slavesPerPair=0, failover={"onDrain": "Switch"})
_cluster("BC21", failover={"onDrain": "Wait"}, podDisruptionBudget={"enabled": False})
_cluster("", slavesPerPair=0, failover={"onDrain": "Wait"})
_cluster(
    "",
    slavesPerPair=0,
    pairOverrides=[{"index": 0, "slavesPerPair": 1}],
    failover={"onDrain": "Switch"},
)
_cluster("BC20", offsetCarry={"mode": "Report"})
_cluster("BC20", offsetCarry={"whenUnknown": "Wait"})
_cluster("BC20", engine=_APACHE, slavesPerPair=0, offsetCarry={"mode": "Report"})
_cluster("", engine=_APACHE, offsetCarry={"mode": "Report", "whenUnknown": "Wait"})
_cluster(
    "",
    engine=_APACHE,
    slavesPerPair=0,
    pairOverrides=[{"index": 0, "slavesPerPair": 1}],
    offsetCarry={"mode": "Report"},
)
_cluster("", offsetCarry={"mode": "Off", "keepMembers": False})
_KEYS: Final = {"secretRef": {"name": "keys"}}
_cluster("", acl={**_KEYS, "mode": "Warn"}, tls={**_KEYS, "clientAuth": "Require"})
_cluster("", engine=_APACHE, acl=_KEYS, tls={**_KEYS, "mode": "Enforcing"})
_cluster("", engine={"type": "Apache", "version": "5.1.4"}, acl=_KEYS)
for _version in ("5.3.0", "5.3.3", "5.10.1"):
    _cluster("BC22", engine={"type": "Apache", "version": _version}, acl=_KEYS)
_cluster("BC22", engine=_APACHE, acl={**_KEYS, "mode": "Warn"})
_cluster("BC23", old={"acl": _KEYS})
_cluster("", old={"acl": {**_KEYS, "mode": "Off"}})
_cluster("TL1", old={"tls": _KEYS})
_cluster("", old={"tls": {**_KEYS, "mode": "Disabled"}})
_cluster("TL2", tls={**_KEYS, "clientAuth": "Require"}, old={"tls": _KEYS})
_row("NameServer", "", {"tls": {**_KEYS, "clientAuth": "Require"}})
_row("NameServer", "TL1", old={"tls": _KEYS})
_row("NameServer", "TL2", {"tls": {**_KEYS, "clientAuth": "Require"}}, old={"tls": _KEYS})
_cluster("schema", offsetCarry={"mode": False})
_cluster("schema", offsetCarry={"waitSeconds": 601})
_cluster("EN1", engine={"javaOptions": "-Xmx1g"})
_cluster("EN1", engine={"type": "Apache", "version": "4.8.0"})
_cluster("EN1", engine={**_APACHE, "rules": "guarded"})
_cluster("", engine={**_APACHE, "rules": "compat", "javaOptions": "-Xmx1g"})
_cluster("", engine={"rules": "guarded"})
_cluster("EN2", engine={**_APACHE, "logs": {"sizeLimit": "900Mi"}})
_cluster("PT1", podTemplate={"env": [{"name": "FAILBACK_X", "value": "y"}]})
_cluster("", podTemplate={"env": [{"name": "TZ", "value": "UTC"}], "labels": {"team": "shop"}})
_cluster("PT2", podTemplate={"labels": {"app.kubernetes.io/name": "y"}})
_cluster("PT2", podTemplate={"annotations": {"failback.dev/restarted-at": "y"}})
_cluster("AC1", podTemplate={"serviceAccountName": "my-failback-operator"})
_cluster("", podTemplate={"serviceAccountName": "failback-operators-friend"})
_cluster("PT3", podTemplate={"priorityClassName": "system-cluster-critical"})
_cluster("schema", masterRole="SLAVE")
_cluster("schema", slavesPerPair=4)
_cluster("schema", slaveReadEnable="yes")

_row("Topic", "")
_row(
    "Topic",
    "",
    {"topicName": "%RETRY%a|b_c-D", "readQueueNums": 16},
    old={"topicName": "%RETRY%a|b_c-D"},
)
_row("Topic", "TP1", {"writeQueueNums": 9})
_row("Topic", "TP2", {"clusterRef": {"name": "b"}}, old={})
_row("Topic", "TP2", {"topicName": "T"}, old={})
_row("Topic", "TP2", old={"topicName": "T"})
_row("Topic", "TP3", {"topicName": "a b"})
_row("Topic", "TP3", {"topicName": "TBW102"})
_row("Topic", "TP3", {"topicName": "rmq_sys_REVIVE_LOG_demo"})
_row("Topic", "", {"topicName": "%DLQ%billing"})
_row("Topic", "TP3", name="t" * 128)
_row("Topic", "", {"topicName": "T"}, name="t" * 128)
_row("Topic", "NM1", name="a.b")
_row("Topic", "schema", {"topicName": "t" * 128})
_row("Topic", "schema", {"perm": 3})
_row("Topic", "schema", {"clusterRef": None})

_row("SubscriptionGroup", "")
_row("SubscriptionGroup", "", {"retryMaxTimes": 3, "brokerId": 1}, old={})
_row("SubscriptionGroup", "TP2", {"clusterRef": {"name": "b"}}, old={})
_row("SubscriptionGroup", "TP2", {"groupName": "G"}, old={})
_row("SubscriptionGroup", "SG1", {"groupName": "g" * 121})
_row("SubscriptionGroup", "SG1", name="g" * 121)
_row("SubscriptionGroup", "", {"groupName": "g" * 120})
_row("SubscriptionGroup", "SG3", {"groupName": "a.b"})
_row("SubscriptionGroup", "SG3", {"groupName": "TOOLS_CONSUMER"})
for _name in (
    "CID_RMQ_SYS_TRANS", "SCHEDULE_CONSUMER", "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER",
    "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "SELF_TEST_P_GROUP", "CID_ONSAPI_OWNER", "%RETRY%x",
    "%DLQ%x", "FAILBACK_WITNESS",
):  # fmt: skip
    _row("SubscriptionGroup", "SG3", {"groupName": _name})
_row("SubscriptionGroup", "", {"groupName": "x%RETRY%"})
_row("SubscriptionGroup", "SG2", {"removeOffsets": True})
_row("SubscriptionGroup", "", {"removeOffsets": True, "deletionPolicy": "Delete"})
_row("SubscriptionGroup", "NM1", name="a.b")
_row("SubscriptionGroup", "schema", {"retryMaxTimes": -2})

_row("OffsetSnapshot", "", {"every": "6h", "keep": 3})
_row("OffsetSnapshot", "", {"restore": {"confirm": "abc"}}, old={"groups": ["billing"]})
_row("OffsetSnapshot", "TP2", {"clusterRef": {"name": "other"}}, old={})
_row("OffsetSnapshot", "NM1", name="a.b")
_row("OffsetSnapshot", "schema", {"every": "0h"})
_row("OffsetSnapshot", "schema", {"keep": 33})
_row("OffsetSnapshot", "schema", {"groups": []})
_row("RoleSwitch", "")
_row("RoleSwitch", "", {}, old={"mode": "Planned"})
_row("RoleSwitch", "ON1", {"targetMember": 2}, old={})
_row("RoleSwitch", "ON1", {"ttlSecondsAfterFinished": 60}, old={})
_row("RoleSwitch", "NM1", name="a.b")
_row("RoleSwitch", "schema", {"pair": None})
_row("RoleSwitch", "ON1", {"pair": "orders-1"}, old={})
_row("RoleSwitch", "ON1", {"pair": "orders-0", "mode": "Forced"}, old={})
for _pair in (0, 64, True, 1.5, "orders", "orders-", "0", "orders-0\n", "a b-0", "o" * 65 + "-0"):
    _row("RoleSwitch", "schema", {"pair": _pair})
_row("RoleSwitch", "schema", {"offsetPolicy": "Copy"})

_CHAOS: Final = "ChaosExperiment"
_row(_CHAOS, "")
_row(_CHAOS, "", {"faults": [_FAULT, {**_FAULT, "id": "f2", "at": 60.5}]})
_row(_CHAOS, "", {"faults": [_FAULT], "abort": True}, old={"faults": [_FAULT], "abort": False})
_row(_CHAOS, "", {"abort": True}, old={})
_row(_CHAOS, "CX1", old={"abort": True})
_row(_CHAOS, "CX1", {"seed": 7}, old={})
_row(_CHAOS, "CX1", {"seed": 7}, old={"seed": 8})
_row(_CHAOS, "CX1", {"faults": [_FAULT], "abort": True}, old={})
_row(_CHAOS, "CX1", {"faults": [{**_FAULT, "with": {"downSeconds": 1}}]}, old={"faults": [_FAULT]})
_row(_CHAOS, "CX1", {"workload": {"topics": [{"name": "T", "queues": 4}]}},
     old={"workload": {"topics": [{"name": "T"}]}})  # fmt: skip
_row(_CHAOS, "CX1", {"arms": [{"name": "a", "workload": {"producers": 2}}]},
     old={"arms": [{"name": "a", "workload": {"producers": 3}}]})  # fmt: skip
_row(_CHAOS, "CX1", {"arms": [{"name": "a", "clientSwitches": {"x": 1}}]},
     old={"arms": [{"name": "a", "clientSwitches": {"x": True}}]})  # fmt: skip
_row(_CHAOS, "CX1", {"expect": [{"metric": "m", "op": "==", "value": 1}]},
     old={"expect": [{"metric": "m", "op": "==", "value": 2}]})  # fmt: skip
_row(_CHAOS, "", {"arms": [{"name": "a", "workload": {"producers": 2}}], "abort": True},
     old={"arms": [{"name": "a", "workload": {"producers": 2}}]})  # fmt: skip
_row(_CHAOS, "CX2", {"faults": [{**_FAULT, "target": {"pair": "a", "pairSelector": "b"}}]})
_row(_CHAOS, "CX2", {"faults": [{**_FAULT, "target": {"pair": "a", "mode": "Fixed"}}]})
_row(_CHAOS, "", {"faults": [{**_FAULT, "target": {"pair": "a", "mode": "Fixed", "value": 2}}]})
_row(_CHAOS, "CX2", {"arms": [{"name": "a", "faults": [
    {**_FAULT, "target": {"group": "g", "mode": "FixedPercent"}}]}]})  # fmt: skip
_row(_CHAOS, "CX3", {"faults": [_FAULT, _FAULT]})
_row(_CHAOS, "CX4", name="x" * 64)
_row(_CHAOS, "CX5", {"timeScale": "1.5"})
_row(_CHAOS, "CX5", {"timeScale": "0.01"})
_row(_CHAOS, "", {"timeScale": "0.05"})
_row(_CHAOS, "schema", {"timeScale": 0.5})
_row(_CHAOS, "schema", {"timeScale": "half"})
_row(_CHAOS, "BC8", {"arms": [{"name": "a", "brokerConfig": _REFUSED}]})
_row(_CHAOS, "BC9", {"arms": [{"name": "a", "brokerConfig": {"a b": "1"}}]})
_row(_CHAOS, "", {"arms": [{"name": "a", "brokerConfig": {"fileReservedTime": "1"}}]})
_row(_CHAOS, "schema", {"arms": [{"name": "a"}, {"name": "a"}]})
_row(_CHAOS, "schema", {"workload": {"topics": [{"name": "T"}, {"name": "T"}]}})
_row(_CHAOS, "schema", {"workload": {"topics": []}})
_row(_CHAOS, "schema", {"seed": -1})
_row(_CHAOS, "", {"seed": 2**63 - 1})
_row(_CHAOS, "AC1", {"job": {"serviceAccountName": "failback-operator"}})
_row(_CHAOS, "", {"job": {"serviceAccountName": "failback-chaos"}})
_row(_CHAOS, "CX6", {"guard": {"requireNamespaceLabel": False}})
_row(_CHAOS, "", {"guard": {"requireNamespaceLabel": True}})
_row(_CHAOS, "NM1", name="a.b")

_REPORT: Final = "ReconsumptionReport"
_row(_REPORT, "RR5", {"experimentRef": {"name": "x"}}, name="x" * 64)
_TOO_MUCH: Final = {"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}
_FINE: Final = {
    "requests": {"cpu": "500m", "memory": "1Gi", "example.com/gpu": 1},
    "limits": {"cpu": 1, "memory": "1024Mi", "hugepages-2Mi": "64Mi"},
}
for _kind in ("NameServer", "BrokerCluster"):
    for _field in ("labels", "annotations", "nodeSelector"):
        _row(_kind, "KN1", {"podTemplate": {_field: {"a b": "x"}}})
        _row(_kind, "", {"podTemplate": {_field: {"example.com/team-A": "x"}}})
    _row(_kind, "KN1", {"metrics": {"podMonitor": {"labels": {"": "x"}}}})
    _row(_kind, "KN2", {"resources": {"requests": {"cpus": "1"}}})
    _row(_kind, "KN2", {"resources": {"limits": {"disk": "1Gi"}}})
    _row(_kind, "KN3", {"resources": _TOO_MUCH})
    _row(_kind, "", {"resources": _FINE})
_TEN: Final = {"key": "k", "tolerationSeconds": 10}
_EVEN: Final = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
_FIELD: Final = {"fieldRef": {"fieldPath": "metadata.name"}}
_SLIPS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("KN4", {"limits": {"memory": "512m"}}),
    ("KN4", {"limits": {"memory": 512}}),
    ("KN4", {"limits": {"memory": "31Mi"}}),
    ("KN4", {"requests": {"memory": "512m"}}),
    ("KN4", {"requests": {"ephemeral-storage": "500m"}}),
    ("KN4", {"limits": {"ephemeral-storage": 1}}),
    ("KN4", {"limits": {"cpu": "512Mi"}}),
    ("KN4", {"requests": {"cpu": "5k"}}),
    ("", {"requests": {"cpu": "500m"}, "limits": {"cpu": 2, "memory": "512Mi"}}),
    ("", {"requests": {"cpu": 0, "memory": 0}, "limits": {"memory": "0.5Gi"}}),
)
for _rule, _slip in _SLIPS:
    _row("NameServer", _rule, {"resources": _slip})
    _row("BrokerCluster", _rule, {"resources": _slip})
    _row("BrokerCluster", _rule, {"pairOverrides": [{"index": 0, "resources": _slip}]})
    _row("ChaosExperiment", _rule, {"job": {"resources": _slip}})
    for _slipped in (
        {"spark": {"driver": _slip}},
        {"spark": {"executor": {"resources": _slip}}},
        {"job": {"resources": _slip}},
    ):
        _row(_REPORT, _rule, {"experimentRef": {"name": "x"}, **_slipped})
_PARTS: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    "PT1": ({"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},),
    "PT2": ({"tolerations": [{"value": "v"}]}, {"tolerations": [{"key": "", "operator": "Equal"}]}),
    "PT3": ({"tolerations": [_TEN]}, {"tolerations": [{**_TEN, "effect": "NoSchedule"}]}),
    "PT4": (
        {"env": [{"name": "A", "value": "x", "valueFrom": _FIELD}]},
        {"env": [{"name": "A", "valueFrom": {}}]},
        {"env": [{"name": "A", "valueFrom": {**_FIELD, "resourceFieldRef": {"resource": "x"}}}]},
    ),
    "PT5": ({"env": [{"name": "A", "value": "x"}, {"name": "A", "value": "y"}]},),
    "PT6": ({"topologySpreadConstraints": [_EVEN, {**_EVEN, "maxSkew": 2}]},),
    "PT7": ({"topologySpreadConstraints": [{**_EVEN, "minDomains": 2}]},),
    "PT8": ({"topologySpreadConstraints": [{**_EVEN, "matchLabelKeys": ["a"]}]},),
    "": (
        {"tolerations": [{"operator": "Exists"}, {**_TEN, "effect": "NoExecute"}, {"key": "k"}]},
        {"env": [{"name": "A", "valueFrom": _FIELD}, {"name": "B", "value": ""}, {"name": "a"}]},
        {"topologySpreadConstraints": [_EVEN, {**_EVEN, "whenUnsatisfiable": "DoNotSchedule"}]},
    ),
}
for _kind in ("NameServer", "BrokerCluster"):
    for _part, _additions in _PARTS.items():
        for _addition in _additions:
            _row(_kind, _part, {"podTemplate": _addition})
    _row(_kind, "PT5", {"engine": {"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}})
_cluster("KN1", external={"type": "LoadBalancer", "annotations": {"-x": "y"}})
_row("NameServer", "KN1", {"external": {"type": "LoadBalancer", "annotations": {"-x": "y"}}})
_cluster("KN1", pairOverrides=[{"index": 0, "nodeSelector": {"a/b/c": "x"}}])
_cluster(
    "KN2 KN3",
    pairOverrides=[{"index": 0, "resources": {**_TOO_MUCH, "requests": {"cpu": 2, "x": 1}}}],
)
_cluster("KN2", pairOverrides=[{"index": 0, "resources": {"limits": {"gpu": 1}}}])
_row("ChaosExperiment", "KN2", {"job": {"resources": {"limits": {"gpu": 1}}}})
_row("ChaosExperiment", "KN2", {"job": {"resources": {"requests": {"gpu": 1}}}})
_row("ChaosExperiment", "KN3", {"job": {"resources": _TOO_MUCH}})
for _spark in (
    {"spark": {"driver": {"requests": {"gpu": 1}}}},
    {"spark": {"driver": {"limits": {"gpu": 1}}}},
    {"spark": {"executor": {"resources": {"requests": {"gpu": 1}}}}},
    {"spark": {"executor": {"resources": {"limits": {"gpu": 1}}}}},
    {"job": {"resources": {"requests": {"gpu": 1}}}},
    {"job": {"resources": {"limits": {"gpu": 1}}}},
):
    _row(_REPORT, "KN2", {"experimentRef": {"name": "x"}, **_spark})
for _many in (
    {"spark": {"driver": _TOO_MUCH}},
    {"spark": {"executor": {"resources": _TOO_MUCH}}},
    {"job": {"resources": _TOO_MUCH}},
):
    _row(_REPORT, "KN3", {"experimentRef": {"name": "x"}, **_many})
_row(_REPORT, "")
_row(_REPORT, "", {}, old={"engine": "Auto"})
_row(_REPORT, "ON1", {"engine": "Local"}, old={})
_WORDS: Final = {
    "engine": "Local",
    "spark": {"mode": "Job"},
    "definitions": {"key": "MessageID", "window": "15m"},
}
_row(_REPORT, "", _WORDS, old=_WORDS)
_row(_REPORT, "ON1", {**_WORDS, "definitions": {"key": "MessageID", "window": "16m"}}, old=_WORDS)
_row(_REPORT, "ON1", {**_WORDS, "spark": {"mode": "SparkApplication"}}, old=_WORDS)
_row(_REPORT, "RR1", {"experimentRef": None})
_row(_REPORT, "RR1", {"inputs": {"claimName": "runs"}})
_row(_REPORT, "", {"experimentRef": None, "inputs": {"uri": "s3a://b/p", "runs": ["a/b"]}})
_row(_REPORT, "RR2", {"experimentRef": None, "inputs": {"uri": "s3a://b/p", "claimName": "a"}})
_row(_REPORT, "RR4", {"experimentRef": None, "inputs": {"uri": "file:///a/../../etc"}})
_row(_REPORT, "RR4", {"artifactUri": "/pages/.."})
_row(_REPORT, "schema", {"experimentRef": None, "inputs": {"uri": "http://b/p"}})
_row(_REPORT, "schema", {"spark": {"master": "yarn"}})
_row(_REPORT, "schema", {"thresholds": {"maxDuplicateRatio": 0.01}})
_row(_REPORT, "", {"thresholds": {"maxDuplicateRatio": "0.01", "maxLost": 0}})
_row(_REPORT, "AC1", {"spark": {"serviceAccountName": "failback-uninstall"}})
_row(_REPORT, "RR3", {"spark": {"conf": {"spark.kubernetes.driver.pod.name": "x"}}})
_row(_REPORT, "RR3", {"spark": {"conf": {"spark.jars": "http://example.org/x.jar"}}})
_row(_REPORT, "RR3", {"spark": {"conf": {"spark.driver.extraJavaOptions": "-javaagent:x"}}})
_row(_REPORT, "RR3", {"spark": {"conf": {"spark.executorEnv.LD_PRELOAD": "x"}}})
_row(_REPORT, "RR3", {"spark": {"conf": {"a b": "x"}}})
_row(_REPORT, "", {"spark": {"conf": {"spark.sql.shuffle.partitions": "64"}}})
for _uri in ("file://--out=/runs/other", "file:// /x", "file://"):
    _row(_REPORT, "schema", {"experimentRef": None, "inputs": {"uri": _uri}})
for _run in ("../../etc", "a/../../etc", "/etc", "--out", "a//b", ""):
    _row(_REPORT, "schema", {"experimentRef": None, "inputs": {"claimName": "a", "runs": [_run]}})
_row(_REPORT, "schema", {"artifactUri": "file://--engine"})
_row(_REPORT, "", {"artifactUri": "/runs/out"})
_row(_REPORT, "NM1", name="a.b")

CASES: Final[tuple[Case, ...]] = tuple(
    Case(
        number,
        kind,
        _merged(kind, changes),
        None if old is None else _merged(kind, old),
        rules,
        name or f"case-{number}",
    )
    for number, (kind, rules, changes, old, name) in enumerate(_ROWS)
)
