"""Mutated configuration files: taken, or refused with their name; never anything else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final

from failback.broker.config.config import BrokerConfig
from failback.broker.metadata.delay_offsets import DelayOffsets
from failback.broker.metadata.groups import SubscriptionGroupManager
from failback.broker.metadata.json_config import backup_of
from failback.broker.metadata.offsets.consumer_offset_manager import (
    ConsumerOffsetManager,
    IndexedTable,
)
from failback.broker.metadata.topics import TopicConfigManager
from failback.protocol.errors import ConfigError, CorruptStore
from tests.faults.fuzz.mutation import mutated

_SETTINGS: Final[dict[str, str]] = {"brokerIP1": "127.0.0.1", "brokerName": "broker-a"}
_CONF: Final = b"""# a broker as people write them
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=1
brokerRole=SLAVE
brokerIP1=127.0.0.1
listenPort=10911
namesrvAddr=127.0.0.1:9876;127.0.0.1:9877
deleteWhen=04;16
fileReservedTime=48
flushDiskType=ASYNC_FLUSH
mappedFileSizeCommitLog=1073741824
diskMaxUsedSpaceRatio=88
messageDelayLevel=1s 5s 10s 30s 1m
slaveReadEnable : true
storePathRootDir=/tmp/st\\u006fre
failbackTimeScale=0.5
someThingElse = value \\
  continued
"""


def _offsets(path: Path) -> ConsumerOffsetManager:
    manager = ConsumerOffsetManager(path)
    manager.table = IndexedTable({"TopicTest@CG": {0: 17, 1: 2**40}, "%RETRY%CG@CG": {0: 3}})
    return manager


def _topics(path: Path) -> TopicConfigManager:
    return TopicConfigManager(path, BrokerConfig.from_properties(_SETTINGS))


def _groups(path: Path) -> SubscriptionGroupManager:
    return SubscriptionGroupManager(path, BrokerConfig.from_properties(_SETTINGS))


def _delays(path: Path) -> DelayOffsets:
    delays = DelayOffsets(path)
    delays.table = {3: 40, 18: 0}
    return delays


TABLES: Final[dict[str, Callable[[Path], Any]]] = {
    "consumerOffset.json": _offsets,
    "topics.json": _topics,
    "subscriptionGroup.json": _groups,
    "delayOffset.json": _delays,
}


def fuzz_config_files(folder: Path, random: Random, count: int) -> Counter[str]:
    """Read ``count`` mutated files of each kind in turn; return what became of them."""
    outcomes: Counter[str] = Counter()
    samples: dict[str, bytes] = {"broker.conf": _CONF}
    for name, make in TABLES.items():
        make(folder / name).persist()
        samples[name] = (folder / name).read_bytes()
    pool = list(samples.values())
    for _ in range(count):
        name = random.choice(list(samples))
        content = mutated(samples[name], pool, random)
        if name == "broker.conf":
            taken = _read_conf(folder / name, content)
        else:
            taken = _read_table(folder / name, content, samples[name], random)
        outcomes[f"{name} {taken}"] += 1
    return outcomes


def _read_conf(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    try:
        config = BrokerConfig.load(path, environment={})
    except ConfigError:
        return "refused"
    shown = config.to_properties()
    again = BrokerConfig.from_properties(shown, file=path, environment={})
    assert again.to_properties() == shown
    return "taken"


def _read_table(path: Path, content: bytes, good: bytes, random: Random) -> str:
    """Load with a good backup, a bad one or none, persist what was found, and load that."""
    make = TABLES[path.name]
    path.write_bytes(content)
    backup = random.choice([good, content, None])
    backup_of(path).unlink(missing_ok=True)
    if backup is not None:
        backup_of(path).write_bytes(backup)
    table = make(path)
    try:
        table.load()
    except CorruptStore:
        assert backup != good, "refused beside a good backup"
        return "refused"
    table.persist()
    again = make(path)
    again.load()
    assert again.table == table.table
    return "taken"
