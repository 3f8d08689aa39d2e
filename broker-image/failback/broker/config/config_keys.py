"""What is known of single keys of broker.conf beside their type and default."""

from __future__ import annotations

from typing import Final

FIXED_AT_START: Final = frozenset(
    {
        "aclEnable",
        "failbackAccessFolder",
        "brokerClusterName",
        "brokerName",
        "brokerId",
        "brokerIP1",
        "brokerIP2",
        "brokerTopicEnable",
        "checkCRCOnRecover",
        "cleanResourceInterval",
        "clusterTopicEnable",
        "defaultTopicQueueNums",
        "failbackBindAddress",
        "failbackDrainSeconds",
        "failbackGuardReplication",
        "failbackGuardReturnedOffsets",
        "failbackHttpPort",
        "failbackRules",
        "failbackTimeScale",
        "flushCommitLogLeastPages",
        "flushCommitLogThoroughInterval",
        "flushCommitLogTimed",
        "flushConsumeQueueLeastPages",
        "flushConsumeQueueThoroughInterval",
        "flushConsumerOffsetInterval",
        "flushDelayOffsetInterval",
        "flushDiskType",
        "flushIntervalCommitLog",
        "flushIntervalConsumeQueue",
        "haHousekeepingInterval",
        "haListenPort",
        "haMasterAddress",
        "haSendHeartbeatInterval",
        "listenPort",
        "mappedFileSizeCommitLog",
        "mappedFileSizeConsumeQueue",
        "maxHashSlotNum",
        "maxIndexNum",
        "messageDelayLevel",
        "messageIndexEnable",
        "msgTraceTopicName",
        "registerNameServerPeriod",
        "rocketmqHome",
        "storePathCommitLog",
        "storePathRootDir",
        "traceTopicEnable",
        "transactionCheckInterval",
    }
)
"""What a running process can't take up: a request to change it is refused. ``brokerRole`` is one
of them only between master and slave."""
NOT_OFFERED: Final = {
    "transientStorePoolEnable": "records always go through the page cache",
    "enableConsumeQueueExt": "consume queue extensions are not written",
    "duplicationEnable": "a log is not shared with another process",
    "enableLmq": "light message queues are not kept",
    "enableMultiDispatch": "a record goes to one queue",
}
"""Switches without effect when they are ``true``, and why."""
_MASTERS: Final = (
    "this broker knows no elections, so that each member would become a master of the same name:"
    " set brokerRole and brokerId of each instead, or run Apache's broker"
)
DANGEROUS: Final = {
    "enableControllerMode": _MASTERS,
    "enableDLegerCommitLog": _MASTERS,
}
"""Switches with which no broker starts when they are ``true``, and why."""
OLD_SPELLINGS: Final = {
    "mapedFileSizeCommitLog": "mappedFileSizeCommitLog",
    "mapedFileSizeConsumeQueue": "mappedFileSizeConsumeQueue",
}
"""Keys of 4.4 that 4.9.8 does not know, and what it has in their place: a store that was made with
the default is refused with another size."""
_ADDRESSES: Final = frozenset({"namesrvAddr", "haMasterAddress", "brokerIP1", "brokerIP2"})
SHOWN_ONLY: Final = frozenset(
    {
        "commercialEnable",
        "commitCommitLogLeastPages",
        "commitCommitLogThoroughInterval",
        "commitIntervalCommitLog",
        "consumerFallbehindThreshold",
        "destroyMapedFileIntervalForcibly",
        "disableConsumeIfConsumerReadSlowly",
        "filterServerNums",
        "forceRegister",
        "haListenPort",
        "messageIndexSafe",
        "osPageCacheBusyTimeOutMills",
        "transferMsgByHeap",
        "transientStorePoolSize",
        "useReentrantLockWhenPutMessage",
    }
)
"""Keys that are kept and shown, and do nothing here."""


def needs_admin(key: str, *, guarded: bool) -> bool:
    """Tell whether a request may set ``key`` only from an address of ``failbackAdminFrom``.

    Guards and bounds rest on these keys. Under compat rules the addresses are no part of them:
    4.9.8 takes a change of them from each asker.
    """
    return key.startswith("failback") or key == "useTLS" or (guarded and key in _ADDRESSES)
