"""What the CEL rules are made of: their type, literals, managed keys, limits, patterns. Data only.

:mod:`failback.operator.schema.cel` makes rules of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

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
        "failbackHttpPort",
        "failbackBindAddress",
        "failbackMembers",
        "aclEnable",
        "failbackAccessFolder",
        "failbackAclMode",
        "failbackTlsMode",
        "useTLS",
        "readOnlyCommitLogStorePaths",
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
        "failbackAccessFolder",
        "failbackTlsMode",
    }
)
MANAGED_PREFIX: Final = "storePath"
OTHER_MASTERS: Final = frozenset(
    {
        "enableDLegerCommitLog",
        "enableControllerMode",
        "fetchControllerAddrByDnsLookup",
        "enableSlaveActingMaster",
        "inBrokerContainer",
    }
)
"""Keys by which others than the operator make a member master; so do those of the next prefix."""
CONTROLLER_PREFIX: Final = "controller"
ACCESS_KEYS: Final = frozenset(
    {
        "initAuthenticationUser",
        "innerClientAuthenticationCredentials",
        "migrateAuthFromV1Enabled",
    }
)
"""Keys of ACL 2.0 of Apache 5.3; so are those of the next prefix."""
ACCESS_PREFIX: Final = "auth"
DLEDGER: Final = ("dledger", "dleger")
"""Apache spells some keys of DLedger without the second d; in small letters."""
RESERVED_ENVIRONMENT: Final = frozenset(
    ("HOME", "TMPDIR", "POD_NAME", "POD_NAMESPACE", "POD_IP", "JAVA_OPT_EXT")
)
MAX_CLUSTER_NAME: Final = 40  # so that StatefulSet names stay below 52 characters
MAX_EXPERIMENT_NAME: Final = 63  # run folders and Jobs are named after it
SMALLEST_STORE: Final = "4Gi"
SMALLEST_EPHEMERAL_STORE: Final = "64Mi"
MAX_CONFIG_CHARACTERS: Final = 512 * 1024  # so that the object stays far from what etcd takes
APACHE_VERSION: Final = r"^(4\.9\.[0-9]+|5\.[0-9]+\.[0-9]+)$"
ACL_2_VERSION: Final = r"^5\.([3-9]|[0-9]{2,})\."
PROPERTY_KEY: Final = r"^[A-Za-z][A-Za-z0-9]{0,63}$"
OPERATOR_ACCOUNTS: Final = r"(^|-)failback-(operator|uninstall|allow-chaos)(-|$)"
SPARK_NEVER: Final = (
    r"^spark\.(kubernetes|submit|jars|archives|files|plugins|extraListeners|pyspark|master)($|\.)"
    r"|^spark\.(driver|executor)\.(extra.*|plugins.*|.*[Cc]lass[Pp]ath.*)$"
    r"|^spark\.executorEnv\."
    r"|^spark\.sql\.(hive\.|extensions|catalog|warehouse|queryExecutionListeners|streaming\.)"
    r"|[^A-Za-z0-9._-]"
)
"""Keys that choose accounts, images and volumes of pods, or code that Spark loads."""
NAME_CHARACTERS: Final = r"^[%|a-zA-Z0-9_-]+$"

MANAGED_KEY: Final = "key is managed by the operator; use the spec field"
OTHER_MASTER: Final = "key is not offered: the operator alone makes a member master"
ACCESS_KEY: Final = "key is of ACL 2.0, which is not offered; spec.acl is ACL 1.0, to Apache 5.2"
NO_SUCH_MEMBER: Final = "masterMember has no such member"
CLUSTER_REF_FIXED: Final = "clusterRef is immutable"
NO_TOPIC_NAME: Final = "not a topic name"
GROUP_TOO_LONG: Final = "%RETRY% + group must fit 127 characters"
ONE_SHOT: Final = "one-shot objects are immutable: delete and create"
UP: Final = r"(^|/)\.\.(/|$)"
"""A part of a URI's path that leads out of the folder before it."""


def immutable(field: str) -> str:
    """Return the message of a field that can't change."""
    return f"{field} is immutable"


@dataclass(frozen=True, slots=True)
class Rule:
    """One CEL rule of a kind: ``path`` is its place in the schema, ``[]`` each entry of a list."""

    id: str
    path: str
    text: str
    message: str

    @property
    def on_change(self) -> bool:
        """Whether it compares with the stored object, and so does not run on create."""
        return "oldSelf" in self.text


def literal(text: str) -> str:
    """Return a text as a literal of CEL."""
    return "'" + text.replace("\\", "\\\\") + "'"


def literals(texts: Iterable[str]) -> str:
    """Return texts as a list of CEL, sorted."""
    return "[" + ",".join(f"'{text}'" for text in sorted(texts)) + "]"
