"""GET_BROKER_RUNTIME_INFO (28): the broker in numbers, all of them as text.

Source: AdminBrokerProcessor.prepareRuntimeInfo, StoreStatsService, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.delay_offsets import DelayOffsets
from failback.broker.monitoring.statistics import BrokerStatistics
from failback.broker.store.log.files import disk_ratio
from failback.broker.store.message_store import MessageStore
from failback.protocol.codes import SCHEDULE_TOPIC, VERSION, VERSION_DESCRIPTION

_NO_POOL = 2**31 - 1
"""What 4.9 says for its off-heap buffers when it has no pool of them."""


@dataclass(frozen=True, slots=True)
class RuntimeSources:
    """Where the numbers come from. Times are wall-clock milliseconds."""

    config: BrokerConfig
    store: MessageStore
    statistics: BrokerStatistics
    delay_offsets: DelayOffsets
    boot_ms: int


def runtime_info(
    sources: RuntimeSources,
    *,
    now_ms: int,
    sends_waiting: int,
    head_wait_ms: float,
    pulls_deferred: int,
) -> dict[str, str]:
    """Return all keys that mqadmin and the exporters read.

    There are no thread pools here. The send queue counts answers that wait for a flush or a slave.
    The pull queue counts pulls whose connection is slow to read.
    """
    info = _identity(sources, now_ms)
    info |= _rates(sources.statistics)
    info |= _totals(sources.statistics)
    info |= _store(sources)
    info |= _queues(sources.config, sends_waiting, head_wait_ms, pulls_deferred)
    return info


def _identity(sources: RuntimeSources, now_ms: int) -> dict[str, str]:
    start_ms = sources.config.start_accept_send_request_time_stamp
    return {
        "brokerVersionDesc": VERSION_DESCRIPTION,
        "brokerVersion": str(VERSION),
        "brokerActive": "true",
        "bootTimestamp": str(sources.boot_ms),
        "runtime": uptime_text(now_ms - sources.boot_ms),
        "startAcceptSendRequestTimeStamp": str(start_ms),
    }


def _rates(statistics: BrokerStatistics) -> dict[str, str]:
    transferred = rates_text(statistics.rates("transferred"))
    return {
        "putTps": rates_text(statistics.rates("put")),
        "getTotalTps": rates_text(statistics.get_rates()),
        "getFoundTps": rates_text(statistics.rates("get_found")),
        "getMissTps": rates_text(statistics.rates("get_miss")),
        "getTransferedTps": transferred,
        "getTransferredTps": transferred,
    }


def _totals(statistics: BrokerStatistics) -> dict[str, str]:
    put, transferred = statistics.put_messages, statistics.transferred_messages
    return {
        "msgPutTotalYesterdayMorning": str(statistics.put_total_at_midnight[0]),
        "msgPutTotalTodayMorning": str(statistics.put_total_at_midnight[1]),
        "msgPutTotalTodayNow": str(put),
        "msgGetTotalYesterdayMorning": str(statistics.get_total_at_midnight[0]),
        "msgGetTotalTodayMorning": str(statistics.get_total_at_midnight[1]),
        "msgGetTotalTodayNow": str(transferred),
        "putMessageTimesTotal": str(put),
        "putMessageFailedTimes": str(statistics.put_failed),
        "putMessageSizeTotal": str(statistics.put_bytes),
        "putMessageAverageSize": str(statistics.put_bytes / put if put else 0.0),
        "putMessageEntireTimeMax": str(int(statistics.put_longest_ms)),
        "getMessageEntireTimeMax": str(int(statistics.get_longest_ms)),
        "putMessageDistributeTime": statistics.latency_distribution(),
        "putLatency99": str(statistics.latency_ms(0.99)),
        "putLatency999": str(statistics.latency_ms(0.999)),
    }


def _store(sources: RuntimeSources) -> dict[str, str]:
    store, config = sources.store, sources.config
    commit_log = Path(config.store_path_commit_log)
    ratio = disk_ratio(commit_log)
    unflushed = max(0, store.max_physical_offset - store.flushed_offset)
    info = {
        "commitLogMinOffset": str(store.min_physical_offset),
        "commitLogMaxOffset": str(store.max_physical_offset),
        "commitLogDiskRatio": str(ratio),
        f"commitLogDiskRatio_{commit_log}": str(ratio),
        "consumeQueueDiskRatio": str(disk_ratio(Path(config.store_path_root_dir))),
        "commitLogDirCapacity": capacity_text(commit_log),
        "earliestMessageTimeStamp": str(store.earliest_log_time()),
        "dispatchMaxBuffer": "0",
        "dispatchBehindBytes": str(store.dispatch_behind_bytes()),
        "pageCacheLockTimeMills": "0",
        "remainTransientStoreBufferNumbs": str(_NO_POOL),
        "remainHowManyDataToFlush": f"{bytes_text(unflushed)}",
    }
    for level, offset in sorted(sources.delay_offsets.table.items()):
        end = store.max_queue_offset(SCHEDULE_TOPIC, level - 1)
        info[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
    return info


def _queues(
    config: BrokerConfig, sends_waiting: int, head_wait_ms: float, pulls_deferred: int
) -> dict[str, str]:
    return {
        "sendThreadPoolQueueSize": str(sends_waiting),
        "sendThreadPoolQueueCapacity": str(config.send_thread_pool_queue_capacity),
        "sendThreadPoolQueueHeadWaitTimeMills": str(int(head_wait_ms)),
        "pullThreadPoolQueueSize": str(pulls_deferred),
        "pullThreadPoolQueueCapacity": str(config.pull_thread_pool_queue_capacity),
        "pullThreadPoolQueueHeadWaitTimeMills": "0",
        "queryThreadPoolQueueSize": "0",
        "queryThreadPoolQueueCapacity": str(config.query_thread_pool_queue_capacity),
        "queryThreadPoolQueueHeadWaitTimeMills": "0",
        "EndTransactionQueueSize": "0",
        "EndTransactionThreadPoolQueueCapacity": str(config.end_transaction_pool_queue_capacity),
    }


def rates_text(rates: Sequence[float]) -> str:
    """Join rates over 10 s, 1 min and 10 min; the tools parse each as a double."""
    return " ".join(str(rate) for rate in rates)


def uptime_text(elapsed_ms: int) -> str:
    """Return the uptime as 4.9.8 writes it: all negative once the clock is before the start."""
    sign = -1 if elapsed_ms < 0 else 1
    minutes, seconds = divmod(abs(elapsed_ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = zip(
        (days, hours, minutes, seconds), ("days", "hours", "minutes", "seconds"), strict=True
    )
    return f"[ {', '.join(f'{sign * count} {unit}' for count, unit in parts)} ]"


def capacity_text(path: Path) -> str:
    try:
        disk = os.statvfs(path)
    except OSError:
        return "Total : 0 B, Free : 0 B."
    total, free = disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize
    return f"Total : {bytes_text(total)}, Free : {bytes_text(free)}."


def bytes_text(count: int) -> str:
    """Write a size as MixAll.humanReadableByteCount does: ``58.7 GiB``, ``12 B``."""
    if count < 1024:
        return f"{count} B"
    size, units = float(count), ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = 0
    while size >= 1024 and power < len(units) - 1:
        size /= 1024
        power += 1
    return f"{size:.1f} {units[power]}"
