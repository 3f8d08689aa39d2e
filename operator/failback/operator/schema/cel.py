"""The CEL rules of the CRDs, as data. :mod:`failback.operator.schema.rules` evaluates them.

CEL sees one object (and its stored predecessor as ``oldSelf``), so what needs another object is
a condition and not a rule. Rules with ``oldSelf`` don't run on create. Everything a rule walks is
bounded in the schema, else the API server refuses the CRD for the cost that the rule might have.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

from failback.operator.kinds.base import Model
from failback.operator.kinds.chaos_experiment import ChaosExperimentSpec
from failback.operator.kinds.reconsumption_report import ReconsumptionReportSpec
from failback.operator.kinds.role_switch import RoleSwitchSpec
from failback.operator.schema import rule_texts
from failback.operator.schema.cluster_rules import (
    BROKER_CLUSTER,
    NAME_SERVER,
    account_rule,
    config_rules,
    unchanged,
)
from failback.operator.schema.pod_rules import pod_rules
from failback.operator.schema.rule_texts import Rule, literal, literals
from failback.protocol.codes import (
    RESERVED_GROUP_PREFIXES,
    RESERVED_GROUPS,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)


def _begins(field: str, prefixes: Iterable[str]) -> str:
    return "".join(f" || self.{field}.startsWith('{prefix}')" for prefix in prefixes)


_NO_DOT: Final = Rule("NM1", "", "!self.metadata.name.contains('.')", "name must not contain a dot")


_SAME_CLUSTER: Final = Rule(
    "TP2",
    "spec",
    "self.clusterRef.name == oldSelf.clusterRef.name",
    rule_texts.CLUSTER_REF_FIXED,
)


def _reference_rules(name: str) -> tuple[Rule, ...]:
    return _SAME_CLUSTER, Rule("TP2", "spec", unchanged(name), rule_texts.immutable(name))


_TOPIC: Final = (
    _NO_DOT,
    Rule(
        "TP1",
        "spec",
        "self.readQueueNums >= self.writeQueueNums",
        "reads must cover writes",
    ),
    *_reference_rules("topicName"),
    Rule(
        "TP3",
        "spec",
        f"!has(self.topicName) || self.topicName.matches({literal(rule_texts.NAME_CHARACTERS)})",
        rule_texts.NO_TOPIC_NAME,
    ),
    Rule(
        "TP3",
        "",
        "has(self.spec.topicName) || self.metadata.name.size() <= 127",
        rule_texts.NO_TOPIC_NAME,
    ),
    Rule(
        "TP3",
        "spec",
        f"!has(self.topicName) || !(self.topicName in {literals(SYSTEM_TOPICS)}"
        f"{_begins('topicName', (SYSTEM_TOPIC_PREFIX,))})",
        "is a system topic",
    ),
)
_GROUP: Final = (
    _NO_DOT,
    *_reference_rules("groupName"),
    Rule(
        "SG1",
        "spec",
        "!has(self.groupName) || self.groupName.size() <= 120",
        rule_texts.GROUP_TOO_LONG,
    ),
    Rule(
        "SG1",
        "",
        "has(self.spec.groupName) || self.metadata.name.size() <= 120",
        rule_texts.GROUP_TOO_LONG,
    ),
    Rule(
        "SG3",
        "spec",
        f"!has(self.groupName) || self.groupName.matches({literal(rule_texts.NAME_CHARACTERS)})",
        "not a group name",
    ),
    Rule(
        "SG3",
        "spec",
        f"!has(self.groupName) || !(self.groupName in {literals(RESERVED_GROUPS)}"
        f"{_begins('groupName', RESERVED_GROUP_PREFIXES)})",
        "is a system group",
    ),
    Rule(
        "SG2",
        "spec",
        "self.deletionPolicy == 'Delete' || !self.removeOffsets",
        "removeOffsets needs deletionPolicy Delete",
    ),
)


def _same_spec(model: type[Model], *, but: str = "") -> str:
    """Return the test that no field of a spec changed, ``but`` excepted."""
    fields = [info.alias or name for name, info in model.model_fields.items()]
    return " && ".join(f"({unchanged(field)})" for field in fields if field != but)


_ROLE_SWITCH: Final = (
    _NO_DOT,
    Rule("ON1", "spec", _same_spec(RoleSwitchSpec), rule_texts.ONE_SHOT),
)


_ONLY_ABORT: Final = (
    f"{_same_spec(ChaosExperimentSpec, but='abort')} && (!oldSelf.abort || self.abort)"
)
_TARGET: Final = (
    "!(has(self.pair) && has(self.pairSelector))"
    " && (!has(self.mode) || !(self.mode in ['Fixed','FixedPercent','RandomMaxPercent'])"
    " || has(self.value))"
)
_CHAOS_EXPERIMENT: Final = (
    _NO_DOT,
    Rule(
        "CX4",
        "",
        f"self.metadata.name.size() <= {rule_texts.MAX_EXPERIMENT_NAME}",
        "name is longer than 63 characters",
    ),
    Rule("CX1", "spec", _ONLY_ABORT, "only abort may change, and only to true"),
    *(
        Rule(
            "CX2",
            f"{path}.target",
            _TARGET,
            "one of pair and pairSelector; this mode needs a value",
        )
        for path in ("spec.faults[]", "spec.arms[].faults[]")
    ),
    Rule(
        "CX3",
        "spec",
        "!has(self.faults) || self.faults.all(f, self.faults.exists_one(g, g.id == f.id))",
        "fault ids are unique",
    ),
    Rule(
        "CX5",
        "spec",
        "double(self.timeScale) >= 0.05 && double(self.timeScale) <= 1.0",
        "timeScale must be from 0.05 to 1.0",
    ),
    *config_rules("spec.arms[].brokerConfig"),
    account_rule("spec.job"),
    Rule(
        "CX6",
        "spec.guard",
        "!has(self.requireNamespaceLabel) || self.requireNamespaceLabel",
        "an experiment can't consent for its namespace: label it failback.dev/chaos-allowed=true",
    ),
)
_REPORT: Final = (
    _NO_DOT,
    Rule(
        "RR5",
        "",
        f"self.metadata.name.size() <= {rule_texts.MAX_EXPERIMENT_NAME}",
        "name is longer than 63 characters",
    ),
    Rule(
        "ON1",
        "spec",
        _same_spec(ReconsumptionReportSpec),
        rule_texts.ONE_SHOT,
    ),
    Rule(
        "RR1",
        "spec",
        "has(self.experimentRef) != has(self.inputs)",
        "exactly one of experimentRef and inputs",
    ),
    Rule(
        "RR2",
        "spec.inputs",
        "has(self.claimName) != has(self.uri)",
        "exactly one of claimName and uri",
    ),
    *(
        Rule(
            "RR4",
            place,
            f"!has(self.{field}) || !self.{field}.matches({literal(rule_texts.UP)})",
            f"{field} must not lead upwards with ..",
        )
        for place, field in (("spec.inputs", "uri"), ("spec", "artifactUri"))
    ),
    account_rule("spec.spark"),
    Rule(
        "RR3",
        "spec.spark.conf",
        f"self.all(k, !k.matches({literal(rule_texts.SPARK_NEVER)}))",
        "spark.kubernetes.* and what has Spark load code is not for a report",
    ),
)
_RULES: Final = {
    "NameServer": NAME_SERVER,
    "BrokerCluster": BROKER_CLUSTER,
    "Topic": _TOPIC,
    "SubscriptionGroup": _GROUP,
    "RoleSwitch": _ROLE_SWITCH,
    "OffsetSnapshot": (_NO_DOT, _SAME_CLUSTER),
    "ChaosExperiment": _CHAOS_EXPERIMENT,
    "ReconsumptionReport": _REPORT,
}


@functools.cache
def rules_of(kind: str) -> tuple[Rule, ...]:
    """Return the rules of one kind, in the order of the CRD."""
    return (*_RULES[kind], *pod_rules(kind))
