"""What the keys of broker.conf do, in one sentence each. Pure.

``docs/reference/broker-conf.md`` is made from this by ``tools/reference_pages.py``.
"""

from __future__ import annotations

from typing import Final

_SHOWN: Final = "Kept and shown; has no effect here."

MEANINGS: Final[dict[str, str]] = {
    "accessMessageInMemoryMaxRatio": (
        "Share of memory, in per cent, within which a record counts as in memory."
    ),
    "aclEnable": (
        "Whether requests are checked by the accounts of `plain_acl.yml`. The operator sets it by"
        " `spec.acl`."
    ),
    "autoCreateSubscriptionGroup": "Whether a group that connects is created.",
    "autoCreateTopicEnable": "Whether a send to an unknown topic creates it from TBW102.",
    "brokerClusterName": "Name of the cluster.",
    "brokerConfigPath": "Where this file is; set by the broker.",
    "brokerId": "0 is the master, forced for masters; a slave needs a number above 0.",
    "brokerIP1": "Address for clients, and the host in message ids. Empty: the first address.",
    "brokerIP2": "Address for slaves. Empty: `brokerIP1`.",
    "brokerName": "Name that a master and its slaves share. Empty: the host name.",
    "brokerPermission": "6 reads and writes, 4 reads only, 2 writes only.",
    "brokerRole": (
        "Master that answers a send before (ASYNC) or after (SYNC) its slave has it, or slave."
    ),
    "brokerTopicEnable": "Whether a topic with the broker's name is made at the start.",
    "checkCRCOnRecover": "Whether a start after a kill checks the CRC of records.",
    "cleanFileForciblyEnable": "Whether old files go before their time when the disk is full.",
    "cleanResourceInterval": "Time between two checks for files that may go.",
    "clusterTopicEnable": "Whether a topic with the cluster's name is made at the start.",
    "commercialEnable": _SHOWN,
    "commitCommitLogLeastPages": _SHOWN,
    "commitCommitLogThoroughInterval": _SHOWN,
    "commitIntervalCommitLog": _SHOWN,
    "compressedRegister": "Whether registrations are compressed.",
    "configBlackList": "Keys that a request cannot change, joined by `;`.",
    "consumerFallbehindThreshold": _SHOWN,
    "defaultQueryMaxNum": "Most messages that a query by key returns.",
    "defaultTopicQueueNums": "Queues of a topic that is created by a send.",
    "deleteCommitLogFilesInterval": "Pause between the deletions of two log files.",
    "deleteWhen": "Hours of the day in which expired files are deleted, joined by `;`.",
    "destroyMapedFileIntervalForcibly": _SHOWN,
    "disableConsumeIfConsumerReadSlowly": _SHOWN,
    "diskMaxUsedSpaceRatio": "Use of the disk, in per cent, above which files are deleted early.",
    "duplicationEnable": "Not offered: a log is not shared with another process.",
    "enableConsumeQueueExt": "Not offered: extensions of consume queues are not written.",
    "enablePropertyFilter": "Whether consumers may filter by SQL92 expressions.",
    "endTransactionPoolQueueCapacity": "Ends of transactions that may wait.",
    "failbackBindAddress": (
        "Address on which ports are opened. Empty: `brokerIP1` if this machine has it, else all."
    ),
    "failbackDrainSeconds": "How long a stop waits until connected slaves hold the whole log.",
    "failbackGuardAskMembers": (
        "A slave whose master is down asks its members each second how far they are."
    ),
    "failbackGuardAutoCreate": (
        "A refused creation leaves the default topic's inherit bit as it is."
    ),
    "failbackGuardConsumerList": "No member list before all members could have sent a heartbeat.",
    "failbackGuardOffsetFile": (
        "Each table (`consumerOffset.json`, `topics.json`, ...) is synced and replaced in one step;"
        " an empty one is refused at the start."
    ),
    "failbackGuardReplication": (
        "A slave whose log is not the beginning of its master's does not replicate."
    ),
    "failbackGuardReturnedOffsets": (
        "A starting master takes the offsets in which its slaves are ahead."
    ),
    "failbackGuardSlaveOffsets": (
        "A slave keeps offsets that are ahead of what its restarted master says."
    ),
    "failbackHttpPort": (
        "Port of health and metrics; 0 is off. Unset: `FAILBACK_HTTP_PORT`, then 8088 if free."
    ),
    "failbackMaxCallsPerClient": "Questions of others that one client is asked at a time.",
    "failbackMaxConnections": "Connections to the ports for clients; one more is closed at once.",
    "failbackMaxConnectionsPerAddress": "The same from one address.",
    "failbackMaxGroups": "Consumer groups, and groups of producers, that are kept.",
    "failbackMaxGroupsPerConnection": "Groups of which the client of one connection is a member.",
    "failbackMaxHeldPulls": "Pulls that are held; one more is answered with code 2.",
    "failbackMaxHeldPullsPerConnection": "The same of one connection.",
    "failbackMaxOffsets": "Consumer offsets that are kept; those of further queues are refused.",
    "failbackMaxSuspendMillis": "Time after which a held pull is answered, whatever it asked for.",
    "failbackMaxTasks": "Requests under way whose answers take time; one more gets code 2.",
    "failbackMaxTasksPerConnection": "The same of one connection.",
    "failbackMaxTopics": "Topics that are kept; none is made beyond them.",
    "failbackMaxUnfinishedBytes": (
        "Bytes of requests that are not whole yet, of all peers; who sent most is closed beyond."
    ),
    "failbackMaxUnreadBytes": "Bytes that a peer may leave unread before its connection closes.",
    "failbackMaxUnreadBytesInAll": (
        "The same of all peers; who left most is closed first. Looked at every second."
    ),
    "failbackAccessFolder": (
        "Folder of `plain_acl.yml`, `acl/*.yml`, `tools.yml` and `tls.properties`. Empty: that of"
        " this file."
    ),
    "failbackAclMode": (
        "`enforce` refuses what `plain_acl.yml` does not allow, `warn` only counts it, `off` checks"
        " nothing."
    ),
    "failbackAdminFrom": (
        "Addresses and networks, joined by `;`, that may change `failback*` keys by request"
        " (guarded rules: and the addresses of name servers and brokers). This machine may."
    ),
    "failbackHaFrom": (
        "Addresses and networks, joined by `;`, from which slaves may replicate; empty: from any."
        " This machine may."
    ),
    "failbackMembers": (
        "The pair's members, `host:port` joined by `;`. A returned master asks no others."
    ),
    "failbackRules": (
        "`compat` is exactly 4.9.8; `guarded` switches on every guard that is not set."
    ),
    "failbackTimeScale": "Factor of every interval, for experiments with scaled timers.",
    "failbackTlsMode": (
        "`disabled`, `permissive` (plain and TLS) or `enforcing` (TLS alone), on all ports but that"
        " of health and metrics; `file`: what `tls.properties` says, without it `disabled`."
    ),
    "fileReservedTime": "Hours for which log files are kept.",
    "filterServerNums": _SHOWN,
    "flushCommitLogLeastPages": "Pages (4 KiB) that must have been written before a timed sync.",
    "flushCommitLogThoroughInterval": "Time after which the log is synced whatever was written.",
    "flushCommitLogTimed": "Whether the log is synced by a timer only.",
    "flushConsumeQueueLeastPages": "The same pages for queue entries.",
    "flushConsumeQueueThoroughInterval": "Time after which queue entries are synced in any case.",
    "flushConsumerOffsetInterval": (
        "Time between two writes of `consumerOffset.json`: what a kill takes."
    ),
    "flushDelayOffsetInterval": (
        "Time between two writes of `delayOffset.json`: what a kill replays."
    ),
    "flushDiskType": "Whether a send is answered before (ASYNC) or after (SYNC) the log is synced.",
    "flushIntervalCommitLog": "Time between two checks whether the log must be synced.",
    "flushIntervalConsumeQueue": "Time between two checks whether queue entries must be synced.",
    "forceRegister": "Kept and shown; the broker always registers.",
    "haHousekeepingInterval": "Silence after which a replication connection is closed.",
    "haListenPort": "Shown only: replication uses `listenPort` + 1.",
    "haMasterAddress": "Master of this slave. Empty: what the name server says.",
    "haSendHeartbeatInterval": "Time between two messages on a silent replication connection.",
    "haSlaveFallbehindMax": "Bytes behind which a slave does not count for SYNC_MASTER.",
    "haTransferBatchSize": "Most bytes of one message to a slave.",
    "listenPort": "Port for clients; two below and one above (replication) are taken as well.",
    "longPollingEnable": "Whether a pull that finds nothing waits.",
    "mappedFileSizeCommitLog": "Bytes of a log file. Fixed once a store exists.",
    "mappedFileSizeConsumeQueue": "Bytes of a queue's file. Fixed once a store exists.",
    "maxHashSlotNum": "Slots of an index file. Fixed once a store exists.",
    "maxIndexNum": "Entries of an index file. Fixed once a store exists.",
    "maxMessageSize": "Largest body of a message, bytes.",
    "maxMsgsNumBatch": "Most messages that a query by key reads.",
    "maxTransferBytesOnMessageInDisk": "Bytes after which a pull of old messages ends.",
    "maxTransferBytesOnMessageInMemory": "Bytes after which a pull of recent messages ends.",
    "maxTransferCountOnMessageInDisk": "Messages after which a pull of old messages ends.",
    "maxTransferCountOnMessageInMemory": "Messages after which a pull of recent messages ends.",
    "messageDelayLevel": "Delays of the levels 1 to 18.",
    "messageIndexEnable": "Whether keys are indexed, for queries by key.",
    "messageIndexSafe": _SHOWN,
    "msgTraceTopicName": "Name of the message trace topic.",
    "namesrvAddr": "Name servers, `host:port` joined by `;`. Empty: `NAMESRV_ADDR`.",
    "notifyConsumerIdsChangedEnable": (
        "Whether members are told at once that their group has changed."
    ),
    "offsetCheckInSlave": "Whether a slave corrects an offset beyond its own end.",
    "osPageCacheBusyTimeOutMills": _SHOWN,
    "pullThreadPoolQueueCapacity": "Pulls that may wait.",
    "queryThreadPoolQueueCapacity": "Queries that may wait.",
    "regionId": "Region in the properties of messages.",
    "registerBrokerTimeoutMills": "Time that a name server has to answer a registration.",
    "registerNameServerPeriod": "Time between two registrations; at least 10 s, at most 60 s.",
    "rejectTransactionMessage": "Whether transactional messages are refused.",
    "rocketmqHome": "Home of RocketMQ's own files; shown only.",
    "sendThreadPoolQueueCapacity": "Sends that may wait.",
    "serverChannelMaxIdleTimeSeconds": "Seconds of silence after which a connection is closed.",
    "shortPollingTimeMills": "How long a pull waits where long polling is off.",
    "slaveReadEnable": "Whether consumers that are far behind are sent to a slave.",
    "slaveTimeout": "Time that a slave has to acknowledge a send to a SYNC_MASTER.",
    "startAcceptSendRequestTimeStamp": "No sends before this time, ms since 1970.",
    "storePathCommitLog": "Folder of the log. Empty: `commitlog` below the root.",
    "storePathRootDir": "Folder of the store. Empty: `$HOME/store`.",
    "storeReplyMessageEnable": "Whether replies of request-reply messages are stored.",
    "syncFlushTimeout": "Time that a sync may take before a send is answered FLUSH_DISK_TIMEOUT.",
    "traceOn": "Whether clients are told to trace.",
    "traceTopicEnable": "Whether this broker makes the message trace topic at its start.",
    "transactionCheckInterval": "Time between two checks of open transactions.",
    "transactionCheckMax": "Checks after which an open transaction is given up.",
    "transactionTimeOut": "Age from which an open transaction is checked.",
    "transferMsgByHeap": _SHOWN,
    "transientStorePoolEnable": "Not offered: records always go through the page cache.",
    "transientStorePoolSize": _SHOWN,
    "useReentrantLockWhenPutMessage": _SHOWN,
    "useTLS": "Whether this broker's own connections speak TLS, also without `tls.enable`.",
}
