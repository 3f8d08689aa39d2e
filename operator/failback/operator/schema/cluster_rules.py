"""The CEL rules of NameServers and BrokerClusters, as data.

What experiments and reports share with them is here, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from failback.operator.schema import rule_texts
from failback.operator.schema.rule_texts import Rule, literal, literals

_PROPERTIES: Final = (
    f"self.all(k, k.matches({literal(rule_texts.PROPERTY_KEY)})"
    " && !self[k].contains('\\n') && !self[k].contains('\\r'))"
)
_ENGINE: Final = Rule(
    "EN1",
    "spec.engine",
    "self.type == 'Failback'"
    " ? !has(self.javaOptions) && (!has(self.logs) || !has(self.logs.configMap))"
    " : (!has(self.rules) || self.rules == 'compat') && has(self.version)"
    f" && self.version.matches({literal(rule_texts.APACHE_VERSION)})",
    "apache needs version 4.9.x or 5.x.y; javaOptions and logs are for apache, rules for failback",
)
_LEAST_LOGS: Final = "1Gi"  # the files of engines/apache_logback.xml and a GC log, twice
_LOGS: Final = Rule(
    "EN2",
    "spec.engine",
    f"!has(self.logs) || quantity(self.logs.sizeLimit).compareTo(quantity('{_LEAST_LOGS}')) >= 0",
    f"logs.sizeLimit must be at least {_LEAST_LOGS}: the kubelet evicts a pod whose files pass it",
)
_PREFIXES: Final = (
    "self.all(k, !k.startsWith('failback.dev/') && !k.startsWith('app.kubernetes.io/'))"
)


def unchanged(field: str) -> str:
    """Return the test that a field is equal to the stored one, or absent in both."""
    return (
        f"has(self.{field}) == has(oldSelf.{field})"
        f" && (!has(self.{field}) || self.{field} == oldSelf.{field})"
    )


def config_rules(path: str) -> tuple[Rule, ...]:
    """Return the rules of a table of broker.conf keys."""
    return (
        *(
            Rule("BC8", path, _none_of(keys, prefix), message)
            for keys, prefix, message in (
                (rule_texts.MANAGED_BROKER_KEYS, rule_texts.MANAGED_PREFIX, rule_texts.MANAGED_KEY),
                (rule_texts.OTHER_MASTERS, rule_texts.CONTROLLER_PREFIX, rule_texts.OTHER_MASTER),
                (rule_texts.ACCESS_KEYS, rule_texts.ACCESS_PREFIX, rule_texts.ACCESS_KEY),
            )
        ),
        Rule("BC9", path, _PROPERTIES, "not a broker.conf key or value"),
    )


def _none_of(keys: Iterable[str], prefix: str) -> str:
    """Return the test that a table has none of some keys, nor any with a prefix."""
    slip, meant = rule_texts.DLEDGER
    return (
        f"self.all(k, !(k.lowerAscii().replace('{slip}', '{meant}') in"
        f" {literals(key.lower() for key in keys)})"
        f" && !k.lowerAscii().startsWith('{prefix.lower()}'))"
    )


def account_rule(path: str) -> Rule:
    """Return the rule of the account of a pod."""
    text = (
        "!has(self.serviceAccountName)"
        f" || !self.serviceAccountName.matches({literal(rule_texts.OPERATOR_ACCOUNTS)})"
    )
    return Rule("AC1", path, text, "the accounts of the operator and its chart are for themselves")


_POD_TEMPLATE: Final = (
    account_rule("spec.podTemplate"),
    Rule(
        "PT3",
        "spec.podTemplate",
        "!has(self.priorityClassName) || !self.priorityClassName.startsWith('system-')",
        "priority classes of the system are not for brokers",
    ),
    Rule(
        "PT1",
        "spec.podTemplate",
        "!has(self.env) || self.env.all(e, !e.name.startsWith('FAILBACK_')"
        f" && !(e.name in {literals(rule_texts.RESERVED_ENVIRONMENT)}))",
        "environment name is set by the operator",
    ),
    *(
        Rule("PT2", f"spec.podTemplate.{field}", _PREFIXES, "the prefix belongs to the operator")
        for field in ("labels", "annotations")
    ),
)


def _name_rules(rule: str) -> tuple[Rule, ...]:
    short = f"self.metadata.name.size() <= {rule_texts.MAX_CLUSTER_NAME}"
    label = "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
    return (
        Rule(rule, "", short, "name is longer than 40 characters"),
        Rule(
            "NM1",
            "",
            label,
            "name must be lower-case letters, digits and -, and begin with a letter",
        ),
    )


_TEMPLATES: Final = (
    ("has(self.networking.externalTemplate)", "self.networking.externalTemplate"),
    ("has(self.external) && has(self.external.template)", "self.external.template"),
)
"""The test for a template of addresses, and its place."""


def _template_rule(given: str, template: str) -> Rule:
    text = (
        f"!({given})"
        f" || (self.pairs == 1 || {template}.contains('{{pair}}'))"
        " && (self.slavesPerPair == 0 && (!has(self.pairOverrides)"
        " || self.pairOverrides.all(p, !has(p.slavesPerPair) || p.slavesPerPair == 0))"
        f" || {template}.contains('{{ordinal}}'))"
    )
    message = "the template must give each member another address: {pair} and {ordinal}"
    return Rule("BC16", "spec", text, message)


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
_LEAST_STORE: Final = (
    f"quantity(self.storage.type == 'Ephemeral' ? '{rule_texts.SMALLEST_EPHEMERAL_STORE}'"
    f" : '{rule_texts.SMALLEST_STORE}')"
)


def _removed_when_off(field: str, off: str) -> str:
    """Return the test that a field is removed only after it was switched off."""
    return f"has(self.{field}) || !has(oldSelf.{field}) || oldSelf.{field}.mode == '{off}'"


_TLS: Final = (
    Rule(
        "TL1",
        "spec",
        _removed_when_off("tls", "Disabled"),
        "tls.mode must be Disabled before tls goes",
    ),
    Rule(
        "TL2",
        "spec.tls",
        "oldSelf.clientAuth != 'None' || self.clientAuth != 'Require'",
        "clientAuth of a running cluster goes over Optional",
    ),
)
BROKER_CLUSTER: Final = (
    *_name_rules("BC1"),
    Rule(
        "BC2",
        "spec",
        "has(self.nameServerRef) != has(self.nameServerAddresses)",
        "exactly one of nameServerRef and nameServerAddresses",
    ),
    *(
        Rule("BC3", "spec", unchanged(field), rule_texts.immutable(field))
        for field in ("clusterName", "brokerNamePrefix")
    ),
    Rule(
        "BC4",
        "spec.storage",
        f"self.type == oldSelf.type && {unchanged('storageClassName')}",
        "storage type and class are immutable",
    ),
    Rule(
        "BC5",
        "spec.storage",
        "self.type == 'Ephemeral' || quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
        "storage can't shrink",
    ),
    Rule(
        "BC6",
        "spec",
        f"(self.masterRole != 'SYNC_MASTER' || self.slavesPerPair >= 1) && ({_SYNC_OVERRIDES})",
        "SYNC_MASTER needs a slave",
    ),
    Rule(
        "BC7",
        "spec",
        "!has(self.sync) || !has(self.sync.inSyncReplicas)"
        " || self.sync.inSyncReplicas <= self.slavesPerPair + 1",
        "more acknowledgements than members",
    ),
    *config_rules("spec.config"),
    *config_rules("spec.pairOverrides[].config"),
    Rule(
        "BC10",
        "spec.pairOverrides[]",
        "!has(self.masterMember) || !has(self.slavesPerPair)"
        " || self.masterMember <= self.slavesPerPair",
        rule_texts.NO_SUCH_MEMBER,
    ),
    Rule(
        "BC11",
        "spec",
        "!has(self.pairOverrides) || self.pairOverrides.all(p, !has(p.masterMember)"
        " || has(p.slavesPerPair) || p.masterMember <= self.slavesPerPair)",
        rule_texts.NO_SUCH_MEMBER,
    ),
    Rule(
        "BC12",
        "spec.networking",
        "(self.brokerAddress == 'External') == has(self.externalTemplate)",
        "externalTemplate belongs to brokerAddress external",
    ),
    Rule(
        "BC12",
        "spec.networking",
        "self.listenPort == oldSelf.listenPort",
        "listenPort is immutable",
    ),
    Rule(
        "BC13",
        "spec.lifecycle",
        "self.drainSeconds <= self.terminationGracePeriodSeconds - 10",
        "drain must end 10 s before the grace period",
    ),
    Rule(
        "BC14",
        "spec",
        f"quantity(self.storage.size).compareTo({_LEAST_STORE}) >= 0"
        " && (!has(self.pairOverrides) || self.pairOverrides.all(p, !has(p.storageSize)"
        f" || quantity(p.storageSize).compareTo({_LEAST_STORE}) >= 0))",
        f"storage must be at least {rule_texts.SMALLEST_STORE}, ephemeral at least"
        f" {rule_texts.SMALLEST_EPHEMERAL_STORE}",
    ),
    *(_template_rule(*where) for where in _TEMPLATES),
    Rule(
        "BC17",
        "spec.external",
        "(self.type == 'Template') == has(self.template)"
        " && (self.type == 'NodePort') == has(self.nodeAddresses)"
        " && (self.type == 'NodePort') == has(self.firstNodePort)",
        "template belongs to type Template, nodeAddresses and firstNodePort to type NodePort",
    ),
    Rule(
        "BC18",
        "spec",
        "!has(self.external) || self.networking.brokerAddress == 'DNS'",
        "external and networking.brokerAddress exclude each other",
    ),
    Rule(
        "BC19",
        "spec",
        "(has(self.external) && has(self.external.firstNodePort)"
        " ? self.external.firstNodePort : 0)"
        " == (has(oldSelf.external) && has(oldSelf.external.firstNodePort)"
        " ? oldSelf.external.firstNodePort : 0)",
        "firstNodePort is immutable: brokers listen on it",
    ),
    Rule(
        "BC15",
        "spec",
        _CONFIG_LENGTH,
        f"config of cluster and pairs is longer than {rule_texts.MAX_CONFIG_CHARACTERS} characters",
    ),
    Rule(
        "BC20",
        "spec",
        "!has(self.offsetCarry) || (self.offsetCarry.mode != 'Report'"
        " && self.offsetCarry.whenUnknown != 'Wait')"
        " || (self.engine.type == 'Apache' && (self.slavesPerPair >= 1 || (has(self.pairOverrides)"
        " && self.pairOverrides.exists(p, has(p.slavesPerPair) && p.slavesPerPair >= 1))))",
        "offsetCarry is for engine Apache with slaves",
    ),
    Rule(
        "BC21",
        "spec",
        "!has(self.failover) || !has(self.failover.onDrain) || self.failover.onDrain == 'Allow'"
        " || (self.podDisruptionBudget.enabled && (self.failover.onDrain == 'Wait'"
        " || self.slavesPerPair >= 1 || (has(self.pairOverrides)"
        " && self.pairOverrides.exists(p, has(p.slavesPerPair) && p.slavesPerPair >= 1))))",
        "failover.onDrain needs podDisruptionBudget, and Switch a pair with slaves",
    ),
    Rule(
        "BC22",
        "spec",
        "!has(self.acl) || self.engine.type == 'Failback' || (self.acl.mode != 'Warn'"
        f" && !self.engine.version.matches({literal(rule_texts.ACL_2_VERSION)}))",
        "acl of engine Apache is for 4.9 to 5.2, which have no mode Warn; 5.3 has ACL 2.0 alone",
    ),
    Rule("BC23", "spec", _removed_when_off("acl", "Off"), "acl.mode must be Off before acl goes"),
    *_TLS,
    _ENGINE,
    _LOGS,
    *_POD_TEMPLATE,
)
NAME_SERVER: Final = (
    *_name_rules("NS1"),
    Rule("NS1", "spec", "self.port == oldSelf.port", "port is immutable"),
    Rule(
        "NS2",
        "spec.config",
        "self.all(k, !(k.lowerAscii() in "
        f"{literals(key.lower() for key in rule_texts.MANAGED_NAMESRV_KEYS)}))",
        rule_texts.MANAGED_KEY,
    ),
    Rule("NS2", "spec.config", _PROPERTIES, "not a namesrv.conf key or value"),
    Rule(
        "NS3",
        "spec.external",
        "(self.type == 'NodePort') == has(self.nodeAddresses)"
        " && (self.type == 'NodePort') == has(self.nodePort)",
        "nodeAddresses and nodePort belong to type NodePort",
    ),
    *_TLS,
    _ENGINE,
    _LOGS,
    *_POD_TEMPLATE,
)
