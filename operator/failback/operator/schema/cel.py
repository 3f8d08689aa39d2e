"""The CEL rules of the CRDs, as data. :mod:`failback.operator.schema.rules` evaluates them.

CEL sees one object (and its stored predecessor as ``oldSelf``), so what needs another object is
a condition and not a rule. Rules with ``oldSelf`` don't run on create. Everything a rule walks is
bounded in the schema, else the API server refuses the CRD for what the rule might cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from failback.operator.kinds.base import Model
from failback.operator.kinds.chaos_experiment import ChaosExperimentSpec
from failback.operator.kinds.reconsumption_report import ReconsumptionReportSpec
from failback.operator.kinds.role_switch import RoleSwitchSpec
from failback.operator.schema import rule_texts
from failback.operator.schema.pod_rules import literal, pod_rules
from failback.protocol.codes import (
    RESERVED_GROUP_PREFIXES,
    RESERVED_GROUPS,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule at one place: ``path`` is where it stands in the schema of ``kind``."""

    id: str
    kind: str
    path: str
    text: str
    message: str

    @property
    def on_change(self) -> bool:
        """Whether it compares with the stored object, and so does not run on create."""
        return "oldSelf" in self.text


def _words(words: Iterable[str]) -> str:
    return "[" + ",".join(f"'{word}'" for word in sorted(words)) + "]"


def _begins(field: str, prefixes: Iterable[str]) -> str:
    return "".join(f" || self.{field}.startsWith('{prefix}')" for prefix in prefixes)


def _unchanged(field: str) -> str:
    return (
        f"has(self.{field}) == has(oldSelf.{field})"
        f" && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    )


def _config_rules(kind: str, path: str) -> tuple[Rule, ...]:
    keys = _words(key.lower() for key in rule_texts.MANAGED_BROKER_KEYS)
    slip, meant = rule_texts.DLEDGER
    managed = (
        f"self.all(k, !(k.lowerAscii().replace('{slip}', '{meant}') in {keys})"
        f" && !k.lowerAscii().startsWith('{rule_texts.MANAGED_PREFIX.lower()}'))"
    )
    return (
        Rule("BC8", kind, path, managed, rule_texts.MANAGED_KEY),
        Rule("BC9", kind, path, _properties(), rule_texts.NO_BROKER_KEY),
    )


def _properties() -> str:
    return (
        f"self.all(k, k.matches({literal(rule_texts.PROPERTY_KEY)})"
        " && !self[k].contains('\\n') && !self[k].contains('\\r'))"
    )


def _engine_rule(kind: str) -> Rule:
    text = (
        "self.type == 'Failback' ? !has(self.javaOptions)"
        " : (!has(self.rules) || self.rules == 'compat') && has(self.version)"
        f" && self.version.matches({literal(rule_texts.APACHE_VERSION)})"
    )
    return Rule("EN1", kind, "spec.engine", text, rule_texts.ENGINE)


def _account_rule(kind: str, path: str) -> Rule:
    text = (
        "!has(self.serviceAccountName)"
        f" || !self.serviceAccountName.matches({literal(rule_texts.OPERATOR_ACCOUNTS)})"
    )
    return Rule("AC1", kind, path, text, rule_texts.OPERATOR_ACCOUNT)


def _pod_template_rules(kind: str) -> tuple[Rule, ...]:
    variables = (
        "!has(self.env) || self.env.all(e, !e.name.startsWith('FAILBACK_')"
        f" && !(e.name in {_words(rule_texts.RESERVED_ENVIRONMENT)}))"
    )
    prefixes = "self.all(k, !k.startsWith('failback.dev/') && !k.startsWith('app.kubernetes.io/'))"
    at = "spec.podTemplate"
    priority = "!has(self.priorityClassName) || !self.priorityClassName.startsWith('system-')"
    return (
        _account_rule(kind, at),
        Rule("PT3", kind, at, priority, rule_texts.SYSTEM_PRIORITY),
        Rule("PT1", kind, at, variables, rule_texts.RESERVED_VARIABLE),
        Rule("PT2", kind, f"{at}.labels", prefixes, rule_texts.RESERVED_PREFIX),
        Rule("PT2", kind, f"{at}.annotations", prefixes, rule_texts.RESERVED_PREFIX),
    )


def _name_rules(kind: str, rule: str) -> tuple[Rule, ...]:
    short = f"self.metadata.name.size() <= {rule_texts.MAX_CLUSTER_NAME}"
    label = "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
    return (
        Rule(rule, kind, "", short, rule_texts.TOO_LONG_40),
        Rule("NM1", kind, "", label, rule_texts.NO_DNS_LABEL),
    )


_TEMPLATES: Final = (
    ("has(self.networking.externalTemplate)", "self.networking.externalTemplate"),
    ("has(self.external) && has(self.external.template)", "self.external.template"),
)
"""Whether there is a template of addresses, and where."""


def _template_rule(given: str, template: str) -> Rule:
    text = (
        f"!({given})"
        f" || (self.pairs == 1 || {template}.contains('{{pair}}'))"
        " && (self.slavesPerPair == 0 && (!has(self.pairOverrides)"
        " || self.pairOverrides.all(p, !has(p.slavesPerPair) || p.slavesPerPair == 0))"
        f" || {template}.contains('{{ordinal}}'))"
    )
    return Rule("BC16", "BrokerCluster", "spec", text, rule_texts.EACH_ITS_ADDRESS)


def _no_dot(kind: str) -> Rule:
    return Rule("NM1", kind, "", "!self.metadata.name.contains('.')", rule_texts.HAS_DOT)


def _reference_rules(kind: str, name: str) -> tuple[Rule, ...]:
    same = "self.clusterRef.name == oldSelf.clusterRef.name"
    return (
        Rule("TP2", kind, "spec", same, rule_texts.CLUSTER_REF_FIXED),
        Rule("TP2", kind, "spec", _unchanged(name), rule_texts.immutable(name)),
    )


_SYNC_OVERRIDES: Final = (
    "!has(self.pairOverrides) || self.pairOverrides.all(p,"
    " (has(p.masterRole) ? p.masterRole : self.masterRole) != 'SYNC_MASTER'"
    " || (has(p.slavesPerPair) ? p.slavesPerPair : self.slavesPerPair) >= 1)"
)


def _characters(table: str) -> str:
    """Return the expression for the length of an optional map of texts."""
    return f"(has({table}) ? {table}.map(k, k.size() + {table}[k].size()).sum() : 0)"


_CONFIG_LENGTH: Final = (
    f"{_characters('self.config')} + (has(self.pairOverrides)"
    f" ? self.pairOverrides.map(p, {_characters('p.config')}).sum() : 0)"
    f" <= {rule_texts.MAX_CONFIG_CHARACTERS}"
)
_BROKER_CLUSTER: Final = (
    *_name_rules("BrokerCluster", "BC1"),
    Rule(
        "BC2",
        "BrokerCluster",
        "spec",
        "has(self.nameServerRef) != has(self.nameServerAddresses)",
        rule_texts.NAME_SERVERS,
    ),
    *(
        Rule("BC3", "BrokerCluster", "spec", _unchanged(field), rule_texts.immutable(field))
        for field in ("clusterName", "brokerNamePrefix")
    ),
    Rule(
        "BC4",
        "BrokerCluster",
        "spec.storage",
        f"self.type == oldSelf.type && {_unchanged('storageClassName')}",
        rule_texts.STORAGE_FIXED,
    ),
    Rule(
        "BC5",
        "BrokerCluster",
        "spec.storage",
        "self.type == 'Ephemeral' || quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
        rule_texts.NO_SHRINKING,
    ),
    Rule(
        "BC6",
        "BrokerCluster",
        "spec",
        f"(self.masterRole != 'SYNC_MASTER' || self.slavesPerPair >= 1) && ({_SYNC_OVERRIDES})",
        rule_texts.NEEDS_SLAVE,
    ),
    Rule(
        "BC7",
        "BrokerCluster",
        "spec",
        "!has(self.sync) || !has(self.sync.inSyncReplicas)"
        " || self.sync.inSyncReplicas <= self.slavesPerPair + 1",
        rule_texts.TOO_MANY_IN_SYNC,
    ),
    *_config_rules("BrokerCluster", "spec.config"),
    *_config_rules("BrokerCluster", "spec.pairOverrides[].config"),
    Rule(
        "BC10",
        "BrokerCluster",
        "spec.pairOverrides[]",
        "!has(self.masterMember) || !has(self.slavesPerPair)"
        " || self.masterMember <= self.slavesPerPair",
        rule_texts.NO_SUCH_MEMBER,
    ),
    Rule(
        "BC11",
        "BrokerCluster",
        "spec",
        "!has(self.pairOverrides) || self.pairOverrides.all(p, !has(p.masterMember)"
        " || has(p.slavesPerPair) || p.masterMember <= self.slavesPerPair)",
        rule_texts.NO_SUCH_MEMBER,
    ),
    Rule(
        "BC12",
        "BrokerCluster",
        "spec.networking",
        "(self.brokerAddress == 'External') == has(self.externalTemplate)",
        rule_texts.EXTERNAL_TEMPLATE,
    ),
    Rule(
        "BC12",
        "BrokerCluster",
        "spec.networking",
        "self.listenPort == oldSelf.listenPort",
        rule_texts.LISTEN_PORT_FIXED,
    ),
    Rule(
        "BC13",
        "BrokerCluster",
        "spec.lifecycle",
        "self.drainSeconds <= self.terminationGracePeriodSeconds - 10",
        rule_texts.DRAIN_TOO_LONG,
    ),
    Rule(
        "BC14",
        "BrokerCluster",
        "spec",
        "self.storage.type == 'Ephemeral' || ("
        f"quantity(self.storage.size).compareTo(quantity('{rule_texts.SMALLEST_STORE}')) >= 0"
        " && (!has(self.pairOverrides) || self.pairOverrides.all(p, !has(p.storageSize)"
        f" || quantity(p.storageSize).compareTo(quantity('{rule_texts.SMALLEST_STORE}')) >= 0)))",
        rule_texts.STORE_TOO_SMALL,
    ),
    *(_template_rule(*where) for where in _TEMPLATES),
    Rule(
        "BC17",
        "BrokerCluster",
        "spec.external",
        "(self.type == 'Template') == has(self.template)"
        " && (self.type == 'NodePort') == has(self.nodeAddresses)"
        " && (self.type == 'NodePort') == has(self.firstNodePort)",
        rule_texts.EXTERNAL_TYPE,
    ),
    Rule(
        "BC18",
        "BrokerCluster",
        "spec",
        "!has(self.external) || self.networking.brokerAddress == 'DNS'",
        rule_texts.EXTERNAL_TWICE,
    ),
    Rule(
        "BC19",
        "BrokerCluster",
        "spec",
        "(has(self.external) && has(self.external.firstNodePort)"
        " ? self.external.firstNodePort : 0)"
        " == (has(oldSelf.external) && has(oldSelf.external.firstNodePort)"
        " ? oldSelf.external.firstNodePort : 0)",
        rule_texts.NODE_PORT_FIXED,
    ),
    Rule("BC15", "BrokerCluster", "spec", _CONFIG_LENGTH, rule_texts.CONFIG_TOO_LARGE),
    _engine_rule("BrokerCluster"),
    *_pod_template_rules("BrokerCluster"),
)
_NAME_SERVER: Final = (
    *_name_rules("NameServer", "NS1"),
    Rule("NS1", "NameServer", "spec", "self.port == oldSelf.port", rule_texts.PORT_FIXED),
    Rule(
        "NS2",
        "NameServer",
        "spec.config",
        "self.all(k, !(k.lowerAscii() in "
        f"{_words(key.lower() for key in rule_texts.MANAGED_NAMESRV_KEYS)}))",
        rule_texts.MANAGED_KEY,
    ),
    Rule("NS2", "NameServer", "spec.config", _properties(), rule_texts.NO_NAMESRV_KEY),
    Rule(
        "NS3",
        "NameServer",
        "spec.external",
        "(self.type == 'NodePort') == has(self.nodeAddresses)"
        " && (self.type == 'NodePort') == has(self.nodePort)",
        rule_texts.NAMESRV_EXTERNAL,
    ),
    _engine_rule("NameServer"),
    *_pod_template_rules("NameServer"),
)
_TOPIC: Final = (
    _no_dot("Topic"),
    Rule(
        "TP1",
        "Topic",
        "spec",
        "self.readQueueNums >= self.writeQueueNums",
        rule_texts.READS_COVER_WRITES,
    ),
    *_reference_rules("Topic", "topicName"),
    Rule(
        "TP3",
        "Topic",
        "spec",
        f"!has(self.topicName) || self.topicName.matches({literal(rule_texts.NAME_CHARACTERS)})",
        rule_texts.NO_TOPIC_NAME,
    ),
    Rule(
        "TP3",
        "Topic",
        "",
        "has(self.spec.topicName) || self.metadata.name.size() <= 127",
        rule_texts.NO_TOPIC_NAME,
    ),
    Rule(
        "TP3",
        "Topic",
        "spec",
        f"!has(self.topicName) || !(self.topicName in {_words(SYSTEM_TOPICS)}"
        f"{_begins('topicName', (SYSTEM_TOPIC_PREFIX,))})",
        rule_texts.SYSTEM_TOPIC,
    ),
)
_GROUP: Final = (
    _no_dot("SubscriptionGroup"),
    *_reference_rules("SubscriptionGroup", "groupName"),
    Rule(
        "SG1",
        "SubscriptionGroup",
        "spec",
        "!has(self.groupName) || self.groupName.size() <= 120",
        rule_texts.GROUP_TOO_LONG,
    ),
    Rule(
        "SG1",
        "SubscriptionGroup",
        "",
        "has(self.spec.groupName) || self.metadata.name.size() <= 120",
        rule_texts.GROUP_TOO_LONG,
    ),
    Rule(
        "SG3",
        "SubscriptionGroup",
        "spec",
        f"!has(self.groupName) || self.groupName.matches({literal(rule_texts.NAME_CHARACTERS)})",
        rule_texts.NO_GROUP_NAME,
    ),
    Rule(
        "SG3",
        "SubscriptionGroup",
        "spec",
        f"!has(self.groupName) || !(self.groupName in {_words(RESERVED_GROUPS)}"
        f"{_begins('groupName', RESERVED_GROUP_PREFIXES)})",
        rule_texts.SYSTEM_GROUP,
    ),
    Rule(
        "SG2",
        "SubscriptionGroup",
        "spec",
        "self.deletionPolicy == 'Delete' || !self.removeOffsets",
        rule_texts.OFFSETS_KEPT,
    ),
)
_OFFSET_SNAPSHOT: Final = (
    _no_dot("OffsetSnapshot"),
    Rule(
        "TP2",
        "OffsetSnapshot",
        "spec",
        "self.clusterRef.name == oldSelf.clusterRef.name",
        rule_texts.CLUSTER_REF_FIXED,
    ),
)


def _same_spec(model: type[Model], *, but: str = "") -> str:
    """Return the test that no field of a spec changed, ``but`` excepted."""
    fields = [info.alias or name for name, info in model.model_fields.items()]
    return " && ".join(f"({_unchanged(field)})" for field in fields if field != but)


_ROLE_SWITCH: Final = (
    _no_dot("RoleSwitch"),
    Rule("ON1", "RoleSwitch", "spec", _same_spec(RoleSwitchSpec), rule_texts.ONE_SHOT),
)


def _only_abort_changes() -> str:
    return f"{_same_spec(ChaosExperimentSpec, but='abort')} && (!oldSelf.abort || self.abort)"


def _target_rules() -> tuple[Rule, ...]:
    text = (
        "!(has(self.pair) && has(self.pairSelector))"
        " && (!has(self.mode) || !(self.mode in ['Fixed','FixedPercent','RandomMaxPercent'])"
        " || has(self.value))"
    )
    return tuple(
        Rule("CX2", "ChaosExperiment", f"{path}.target", text, rule_texts.TARGET)
        for path in ("spec.faults[]", "spec.arms[].faults[]")
    )


_CHAOS_EXPERIMENT: Final = (
    _no_dot("ChaosExperiment"),
    Rule(
        "CX4",
        "ChaosExperiment",
        "",
        f"self.metadata.name.size() <= {rule_texts.MAX_EXPERIMENT_NAME}",
        rule_texts.TOO_LONG_63,
    ),
    Rule("CX1", "ChaosExperiment", "spec", _only_abort_changes(), rule_texts.ONLY_ABORT),
    *_target_rules(),
    Rule(
        "CX3",
        "ChaosExperiment",
        "spec",
        "!has(self.faults) || self.faults.all(f, self.faults.exists_one(g, g.id == f.id))",
        rule_texts.FAULT_IDS,
    ),
    Rule(
        "CX5",
        "ChaosExperiment",
        "spec",
        "double(self.timeScale) >= 0.05 && double(self.timeScale) <= 1.0",
        rule_texts.TIME_SCALE,
    ),
    *_config_rules("ChaosExperiment", "spec.arms[].brokerConfig"),
    _account_rule("ChaosExperiment", "spec.job"),
    Rule(
        "CX6",
        "ChaosExperiment",
        "spec.guard",
        "!has(self.requireNamespaceLabel) || self.requireNamespaceLabel",
        rule_texts.NOT_ITS_OWN_GUARD,
    ),
)
_REPORT: Final = (
    _no_dot("ReconsumptionReport"),
    Rule(
        "ON1",
        "ReconsumptionReport",
        "spec",
        _same_spec(ReconsumptionReportSpec),
        rule_texts.ONE_SHOT,
    ),
    Rule(
        "RR1",
        "ReconsumptionReport",
        "spec",
        "has(self.experimentRef) != has(self.inputs)",
        rule_texts.REPORT_INPUT,
    ),
    Rule(
        "RR2",
        "ReconsumptionReport",
        "spec.inputs",
        "has(self.claimName) != has(self.uri)",
        rule_texts.ONE_INPUT,
    ),
    *(
        Rule(
            "RR4",
            "ReconsumptionReport",
            place,
            f"!has(self.{field}) || !self.{field}.matches({literal(rule_texts.UP)})",
            f"{field} {rule_texts.NO_UP}",
        )
        for place, field in (("spec.inputs", "uri"), ("spec", "artifactUri"))
    ),
    _account_rule("ReconsumptionReport", "spec.spark"),
    Rule(
        "RR3",
        "ReconsumptionReport",
        "spec.spark.conf",
        f"self.all(k, !k.matches({literal(rule_texts.SPARK_NEVER)}))",
        rule_texts.NO_SPARK_SETTING,
    ),
)
RULES: Final[tuple[Rule, ...]] = (
    *_NAME_SERVER,
    *_BROKER_CLUSTER,
    *_TOPIC,
    *_GROUP,
    *_ROLE_SWITCH,
    *_OFFSET_SNAPSHOT,
    *_CHAOS_EXPERIMENT,
    *_REPORT,
    *(
        Rule(rule.id, kind, rule.path, rule.text, rule.message)
        for kind in ("NameServer", "BrokerCluster", "ChaosExperiment", "ReconsumptionReport")
        for rule in pod_rules(kind)
    ),
)


def rules_of(kind: str) -> tuple[Rule, ...]:
    """Return the rules of one kind, in the order in which they stand in the CRD."""
    return tuple(rule for rule in RULES if rule.kind == kind)
