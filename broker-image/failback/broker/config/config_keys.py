"""What is known of single keys of broker.conf beside their type and default."""

from __future__ import annotations

from typing import Final

# RocketMQ 4.4.0 spelt these with one p.
OLD_SPELLINGS: Final = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
# What a running process can't take up: recorded, shown, in force after the next start.
FIXED_AT_START: Final = frozenset(
    {
        "brokerClusterName",
        "brokerName",
        "brokerId",
        "brokerIP1",
        "brokerIP2",
        "listenPort",
        "haListenPort",
        "storePathRootDir",
        "storePathCommitLog",
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "flushDiskType",
        "failbackTimeScale",
        "failbackBindAddress",
        "failbackHttpPort",
        "failbackRules",
        "failbackGuardReplication",
        "failbackGuardReturnedOffsets",
        "failbackDrainSeconds",
        "flushConsumerOffsetInterval",
        "flushDelayOffsetInterval",
        "messageDelayLevel",
        "transactionCheckInterval",
        "cleanResourceInterval",
        "registerNameServerPeriod",
        "messageIndexEnable",
        "maxHashSlotNum",
        "maxIndexNum",
        "haMasterAddress",
        "flushIntervalCommitLog",
        "flushCommitLogLeastPages",
        "flushCommitLogThoroughInterval",
        "flushIntervalConsumeQueue",
        "flushConsumeQueueLeastPages",
        "flushConsumeQueueThoroughInterval",
        "haSendHeartbeatInterval",
        "haHousekeepingInterval",
    }
)
NOT_OFFERED: Final = {
    "transientStorePoolEnable": "records always go through the page cache",
    "enableConsumeQueueExt": "consume queue extensions are not written",
    "duplicationEnable": "a log is not shared with another process",
    "enableDLegerCommitLog": "replication is master and slave only",
    "aclEnable": "requests are not authenticated",
    "useTLS": "connections are not encrypted",
    "enableLmq": "light message queues are not kept",
    "enableMultiDispatch": "a record goes to one queue",
}
