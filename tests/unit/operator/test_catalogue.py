"""The catalogue of broker.conf keys: classes, values, orders, unknown keys."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import files
from itertools import cycle, islice, product
from typing import Any

import pytest
from tools.config_keys import in_order

from failback.broker.config.config import BrokerConfig
from failback.broker.config.config_keys import DANGEROUS, FIXED_AT_START, NOT_OFFERED
from failback.operator.engines.catalogue import (
    GENERATED_FILE,
    class_of,
    config_keys,
    known_keys,
    normalise,
    order_of,
    restarts,
    same_value,
    unknown_key_hint,
)
from failback.operator.engines.quirks import PUBLISHED, read_rows
from failback.operator.schema.decoding import Invalid, decode
from failback.operator.schema.rule_texts import ACCESS_KEYS, MANAGED_BROKER_KEYS, OTHER_MASTERS
from tests.support.operator.resources import resource

OURS = BrokerConfig.from_properties({}).to_properties()
LIVE = [name for name, row in config_keys().items() if row.change == "live"]


CLASSES = [
    ("slaveReadEnable", "live"),
    ("brokerPermission", "live"),
    ("accessMessageInMemoryMaxRatio", "live"),
    ("namesrvAddr", "live"),
    ("fileReservedTime", "live"),
    ("maxTransferCountOnMessageInDisk", "live"),
    ("haTransferBatchSize", "live"),
    ("autoCreateTopicEnable", "live"),
    ("autoCreateSubscriptionGroup", "live"),
    ("longPollingEnable", "live"),
    ("transferMsgByHeap", "live"),
    ("traceTopicEnable", "roll"),
    ("flushDiskType", "roll"),
    ("flushConsumerOffsetInterval", "roll"),
    ("registerNameServerPeriod", "roll"),
    ("sendMessageThreadPoolNums", "roll"),
    ("brokerRole", "switch"),
    ("brokerId", "switch"),
    ("aclEnable", "roll"),
    ("authenticationEnabled", "refused"),
    ("brokerConfigPath", "refused"),
    ("rocketmqHome", "refused"),
    ("configBlackList", "refused"),
    ("listenPort", "immutable"),
    ("mappedFileSizeCommitLog", "immutable"),
    ("mappedFileSizeConsumeQueue", "immutable"),
    ("maxHashSlotNum", "immutable"),
    ("maxIndexNum", "immutable"),
    ("storePathRootDir", "immutable"),
    ("noSuchKey", "roll"),
]


def test_a_key_has_its_class() -> None:
    for key, change in CLASSES:
        assert (key, class_of(key, "apache")) == (key, change)
        assert (key, restarts(key)) == (key, change != "live")


def test_a_key_that_an_engine_does_not_know_rolls() -> None:
    assert class_of("listenPort", "failback", "0.1.0") == "immutable"
    assert class_of("storeType", "apache", "5.3.3") == "immutable"
    assert class_of("storeType", "apache", "5.1.3") == "roll"
    assert class_of("enableSlaveActingMaster", "apache", "5.0.0") == "refused"
    assert class_of("mappedFileSizeConsumeQueueExt", "apache", "4.9.7") == "immutable"
    assert class_of("mappedFileSizeConsumeQueueExt", "failback", "0.1.0") == "roll"


def test_what_is_live_our_broker_takes_up_while_it_runs() -> None:
    assert set(LIVE) <= set(OURS) - set(FIXED_AT_START)


def test_a_live_key_has_the_default_that_our_broker_has() -> None:
    assert config_keys()["namesrvAddr"].default is None
    for key in set(LIVE) - {"namesrvAddr"}:
        default = config_keys()[key].default
        assert default is not None, key
        assert same_value(key, default, OURS[key]), key


def test_every_key_that_our_broker_reads_is_in_the_catalogue() -> None:
    assert set(OURS) - set(known_keys("failback", "0.1.0")) == set()


def test_our_broker_understands_every_default_of_its_keys() -> None:
    assert [
        (key, value)
        for key, value in OURS.items()
        if value and config_keys()[key].problem(value) and key not in ("failbackTimeScale",)
    ] == []


NUMBERS = [
    name
    for name, row in known_keys("failback", "0.1.0").items()
    if name in OURS and name not in MANAGED_BROKER_KEYS and row.type in ("int", "float")
]


@pytest.mark.foreign
def test_no_number_passes_with_which_our_broker_does_not_start(
    record_property: Callable[[str, object], None],
) -> None:
    edges = [-(2**63), -(2**31), -1, 0, 1, 2, 19, 100, 101, 65_535, 65_536, 10**5]
    numbers = (*edges, 4 << 20, 5 << 20, 2**31 - 1, 2**31, 2**63 - 1)
    record_property("inputs", len(NUMBERS) * len(numbers))
    for key, number in product(NUMBERS, numbers):
        if config_keys()[key].problem(str(number)) is None:
            BrokerConfig.from_properties({"brokerIP1": "127.0.0.1", key: str(number)})


SPELLINGS: list[Callable[[str], str]] = [
    str,
    str.lower,
    lambda key: key.replace("Acl", "ACL").replace("DLeger", "DLedger"),
]
VALUES = ("true", "True ", "x", "-1", "0", "a,b", "127.0.0.1:1", "nan", "1s", "25", "/x #y", "é")


@pytest.mark.foreign
@pytest.mark.few(1, 1)
@pytest.mark.parametrize("spelt", SPELLINGS, ids=["as it is", "small", "slips"])
def test_no_key_passes_with_which_our_broker_does_not_start(spelt: Callable[[str], str]) -> None:
    """Each key with four values, and the next key with the next four."""
    tried = set()
    by_hand = {key for key, row in config_keys().items() if row.source}
    for place, key in enumerate(sorted({*OURS, *DANGEROUS, *NOT_OFFERED, *by_hand})):
        for value in islice(cycle(VALUES), 4 * place % len(VALUES), 4 * place % len(VALUES) + 4):
            config = {spelt(key): value}
            made = resource("BrokerCluster", "demo", config=config, nameServerRef={"name": "main"})
            with suppress(Invalid):
                decode(made)
                tried.add(key)
                BrokerConfig.from_properties({"brokerIP1": "127.0.0.1", **config})
    assert len(tried) > 100


def test_every_managed_key_is_in_the_catalogue() -> None:
    named = MANAGED_BROKER_KEYS | OTHER_MASTERS | ACCESS_KEYS
    assert set(config_keys()) >= named
    refused = {key for key, row in config_keys().items() if row.change == "refused"}
    assert {key for key in refused - named if not key.startswith(("auth", "controller"))} == set()


def test_the_generated_file_is_well_formed_and_agrees_with_what_is_written_by_hand() -> None:
    text = (files("failback.operator.engines") / GENERATED_FILE).read_text()
    rows: dict[str, dict[str, Any]] = json.loads(text)
    assert text.count("\n") == len(rows) + 2  # a key a line
    assert list(rows) == sorted(rows, key=in_order)
    known = set(PUBLISHED)
    for key, row in rows.items():
        assert set(row) <= {"type", "bits", "versions"}, key
        assert row["type"] in ("int", "bool", "string", "float"), key
        assert row.get("bits", 64) == 64, key
        ranges = re.split("[|,]", row.get("versions", ">=5.0.0"))
        assert all(re.sub("^(>=|<)", "", each) in known for each in ranges), key
        if (hand := config_keys()[key]).type in ("int", "bool", "float"):
            assert (hand.type, hand.bits) == (row["type"], row.get("bits", 32)), key
    assert len(rows) > 500
    for key, value, problem in (
        ("timerPrecisionMs", "1s", 'must be an integer, got "1s"'),
        ("timerWheelEnable", "on", 'must be "true" or "false", got "on"'),
        ("logicalDiskSpaceCleanForciblyThreshold", "-0.5", None),
        ("storeType", "rocksdb", 'must be default or defaultRocksDB, got "rocksdb"'),
    ):
        assert config_keys()[key].problem(value) == problem
    by_hand = read_rows("config_keys.yaml")
    assert not [row["key"] for row in by_hand if "versions" in row]
    strange = {row["key"] for row in by_hand if row.get("engine") != "failback"} - set(rows)
    assert strange == set()


_TYPES = ("bool", "int", "float", "string", "list", "hours", "delays", "networks")


def test_every_row_is_well_formed() -> None:
    for key in config_keys().values():
        assert key.change in ("live", "roll", "switch", "immutable", "refused"), key
        assert key.type in _TYPES or key.type.startswith("enum:"), key
        assert key.order in ("slaves", "slaves-unless-false", "master"), key
        assert key.engine in (None, "failback", "apache"), key
        assert key.default is None or key.problem(key.default) is None, key


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("fileReservedTime", "48", None),
        ("fileReservedTime", "soon", 'must be an integer, got "soon"'),
        ("fileReservedTime", "4.5", 'must be an integer, got "4.5"'),
        ("fileReservedTime", "48\n", 'must be an integer, got "48\n"'),
        ("fileReservedTime", str(2**31), f'must be at most 2147483647, got "{2**31}"'),
        ("transactionTimeOut", str(2**31), None),
        ("transactionTimeOut", str(2**63), f'must be at most {2**63 - 1}, got "{2**63}"'),
        ("slaveReadEnable", "True", 'must be "true" or "false", got "True"'),
        ("failbackTimeScale", "0.1", None),
        ("failbackTimeScale", "0", 'must be at least 0.001, got "0"'),
        ("failbackTimeScale", "nan", 'must be a number, got "nan"'),
        ("failbackTimeScale", "101", 'must be at most 100, got "101"'),
        ("failbackDrainSeconds", "0", None),
        ("fileReservedTime", "-1", 'must be at least 0, got "-1"'),
        ("mappedFileSizeCommitLog", "100", 'must be at least 4096, got "100"'),
        ("defaultTopicQueueNums", "65536", 'must be at most 65535, got "65536"'),
        ("flushDiskType", "SYNC_FLUSH", None),
        ("flushDiskType", "SYNC", 'must be ASYNC_FLUSH or SYNC_FLUSH, got "SYNC"'),
        ("messageDelayLevel", "1s 5s", None),
        ("messageDelayLevel", "1s 5s x", 'must be times such as 1s 5s 10m 2h, got "1s 5s x"'),
        ("messageDelayLevel", "0s", 'must be times such as 1s 5s 10m 2h, got "0s"'),
        ("deleteWhen", "04;16", None),
        ("deleteWhen", "25", 'must be hours of the day such as 04;16, got "25"'),
        ("deleteWhen", "4,16", 'must be hours of the day such as 04;16, got "4,16"'),
    ],
)
def test_values_are_checked_by_the_key_s_type(key: str, value: str, problem: str | None) -> None:
    assert config_keys()[key].problem(value) == problem


@pytest.mark.parametrize(
    ("key", "one", "other", "same"),
    [
        ("slaveReadEnable", "true", "TRUE", True),
        ("slaveReadEnable", "true", "false", False),
        ("fileReservedTime", "48", "048", True),
        ("fileReservedTime", "48", "48.0", True),
        ("fileReservedTime", "48", "soon", False),
        ("fileReservedTime", "soon", "soon", True),
        ("fileReservedTime", "100", "1", False),
        ("fileReservedTime", "NaN", "48", False),
        ("failbackTimeScale", "0.1", "0.10", True),
        ("flushDiskType", "sync_flush", "SYNC_FLUSH", True),
        ("namesrvAddr", "a:1;b:2", "b:2; a:1;", True),
        ("namesrvAddr", "a:1;b:2", "a:1", False),
        ("deleteWhen", "04", "4", False),
        ("noSuchKey", "True", "true", False),
    ],
)
def test_values_are_compared_by_what_they_mean(key: str, one: str, other: str, same: bool) -> None:
    assert same_value(key, one, other) == same
    assert normalise(key, normalise(key, one)) == normalise(key, one)


@pytest.mark.parametrize(
    ("key", "value", "first"),
    [
        ("slaveReadEnable", "true", "slaves"),
        ("slaveReadEnable", "false", "master"),
        ("slaveReadEnable", "FALSE", "master"),
        ("brokerPermission", "4", "master"),
        ("fileReservedTime", "48", "slaves"),
        ("noSuchKey", "x", "slaves"),
    ],
)
def test_a_live_change_has_an_order(key: str, value: str, first: str) -> None:
    assert order_of(key, value) == first


@pytest.mark.parametrize(
    ("key", "engine", "version", "sentence"),
    [
        (
            "fileReservedTimes",
            "failback",
            "0.1.0",
            "fileReservedTimes is not a broker.conf key of failback 0.1.0,"
            ' did you mean "fileReservedTime"?',
        ),
        ("fileReservedTime", "failback", "0.1.0", None),
        ("failbackTimeScale", "failback", "0.1.0", None),
        (
            "failbackTimeScale",
            "apache",
            "4.9.7",
            "failbackTimeScale is not a broker.conf key of apache 4.9.7, failback has it",
        ),
        ("totalReplicas", "apache", "5.3.3", None),
        ("totalReplicas", "apache", None, None),
        (
            "timerWheelEnable",
            "apache",
            "4.9.7",
            "timerWheelEnable is not a broker.conf key of apache 4.9.7,"
            " apache has it from 5.0.0 on",
        ),
        (
            "haSlaveFallbehindMax",
            "apache",
            "5.3.3",
            "haSlaveFallbehindMax is not a broker.conf key of apache 5.3.3,"
            " apache has it before 5.0.0",
        ),
        ("zzz", "failback", None, "zzz is not a broker.conf key of failback"),
    ],
)
def test_an_unknown_key_is_told_with_the_nearest_known_one(
    key: str, engine: str, version: str | None, sentence: str | None
) -> None:
    assert unknown_key_hint(key, engine, version) == sentence
