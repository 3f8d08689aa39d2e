"""What the rules name and say: managed keys, limits, patterns, messages. Data only.

The CEL rules (:mod:`failback.operator.schema.cel`) take them from here.
"""

from __future__ import annotations

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
        "enableDLegerCommitLog",
        "enableControllerMode",
        "aclEnable",
        "failbackHttpPort",
        "failbackBindAddress",
        "failbackMembers",
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
    }
)
MANAGED_PREFIX: Final = "storePath"
DLEDGER: Final = ("dledger", "dleger")
"""Apache spells some keys of DLedger without the second d; in small letters."""
RESERVED_ENVIRONMENT: Final = frozenset(
    ("HOME", "TMPDIR", "POD_NAME", "POD_NAMESPACE", "POD_IP", "JAVA_OPT_EXT")
)
MAX_CLUSTER_NAME: Final = 40  # so that StatefulSet names stay below 52 characters
MAX_EXPERIMENT_NAME: Final = 63  # run folders and Jobs are named after it
SMALLEST_STORE: Final = "4Gi"
MAX_CONFIG_CHARACTERS: Final = 512 * 1024  # so that the object stays far from what etcd takes
APACHE_VERSION: Final = r"^(4\.9\.[0-9]+|5\.[0-9]+\.[0-9]+)$"
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

TOO_LONG_40: Final = "name is longer than 40 characters"
TOO_LONG_63: Final = "name is longer than 63 characters"
NO_DNS_LABEL: Final = "name must be lower-case letters, digits and -, and begin with a letter"
HAS_DOT: Final = "name must not contain a dot"
NAME_SERVERS: Final = "exactly one of nameServerRef and nameServerAddresses"
STORAGE_FIXED: Final = "storage type and class are immutable"
NO_SHRINKING: Final = "storage can't shrink"
NEEDS_SLAVE: Final = "SYNC_MASTER needs a slave"
TOO_MANY_IN_SYNC: Final = "more acknowledgements than members"
MANAGED_KEY: Final = "key is managed by the operator; use the spec field"
NO_BROKER_KEY: Final = "not a broker.conf key or value"
CONFIG_TOO_LARGE: Final = "config of cluster and pairs is longer than 524288 characters"
NO_NAMESRV_KEY: Final = "not a namesrv.conf key or value"
NO_SUCH_MEMBER: Final = "masterMember has no such member"
EXTERNAL_TEMPLATE: Final = "externalTemplate belongs to brokerAddress external"
EXTERNAL_TYPE: Final = (
    "template belongs to type Template, nodeAddresses and firstNodePort to type NodePort"
)
EXTERNAL_TWICE: Final = "external and networking.brokerAddress exclude each other"
NODE_PORT_FIXED: Final = "firstNodePort is immutable: brokers listen on it"
NAMESRV_EXTERNAL: Final = "nodeAddresses and nodePort belong to type NodePort"
PORT_FIXED: Final = "port is immutable"
LISTEN_PORT_FIXED: Final = "listenPort is immutable"
DRAIN_TOO_LONG: Final = "drain must end 10 s before the grace period"
STORE_TOO_SMALL: Final = f"persistent storage must be at least {SMALLEST_STORE}"
ENGINE: Final = "apache needs version 4.9.x or 5.x.y; javaOptions is for apache, rules for failback"
RESERVED_VARIABLE: Final = "environment name is set by the operator"
RESERVED_PREFIX: Final = "the prefix belongs to the operator"
READS_COVER_WRITES: Final = "reads must cover writes"
CLUSTER_REF_FIXED: Final = "clusterRef is immutable"
NO_TOPIC_NAME: Final = "not a topic name"
SYSTEM_TOPIC: Final = "is a system topic"
NO_GROUP_NAME: Final = "not a group name"
SYSTEM_GROUP: Final = "is a system group"
GROUP_TOO_LONG: Final = "%RETRY% + group must fit 127 characters"
OFFSETS_KEPT: Final = "removeOffsets needs deletionPolicy Delete"
ONE_SHOT: Final = "one-shot objects are immutable: delete and create"
ONLY_ABORT: Final = "only abort may change, and only to true"
TARGET: Final = "one of pair and pairSelector; this mode needs a value"
FAULT_IDS: Final = "fault ids are unique"
REPORT_INPUT: Final = "exactly one of experimentRef and inputs"
OPERATOR_ACCOUNT: Final = "the accounts of the operator and its chart are for themselves"
SYSTEM_PRIORITY: Final = "priority classes of the system are not for brokers"
NO_SPARK_SETTING: Final = "spark.kubernetes.* and what has Spark load code is not for a report"
NOT_ITS_OWN_GUARD: Final = (
    "an experiment can't consent for its namespace: label it failback.dev/chaos-allowed=true"
)
EACH_ITS_ADDRESS: Final = "the template must give each member another address: {pair} and {ordinal}"
UP: Final = r"(^|/)\.\.(/|$)"
"""A part of a URI's path that leads out of the folder before it."""
NO_UP: Final = "must not lead upwards with .."
ONE_INPUT: Final = "exactly one of claimName and uri"
TIME_SCALE: Final = "timeScale must be from 0.05 to 1.0"


def immutable(field: str) -> str:
    """Return the message of a field that can't change."""
    return f"{field} is immutable"
