"""The catalogues: known keys and their classes, facts about engine versions."""

from __future__ import annotations

import pytest

from failback.broker.config import BrokerConfig
from failback.operator.catalogue import config_keys, quirk, restarts, unknown_key_hint

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("key", "engine", "version", "value"),
    [
        ("slaveSyncSeconds", "failback", "0.1.0", 10),
        ("slaveSyncSeconds", "apache", "4.9.7", 10),
        ("slaveSyncSeconds", "apache", "5.3.3", 60),
        ("ackRule", "apache", "4.9.8", "oneSlave"),
        ("ackRule", "apache", "5.0.0", "inSyncReplicas"),
        ("overflowResetsToZero", "apache", "4.9.3", True),
        ("overflowResetsToZero", "apache", "4.9.4", False),
        ("dropsTopicsOnSync", "apache", "5.3.2", False),
        ("dropsTopicsOnSync", "apache", "5.3.4", True),
        ("dropsTopicsOnSync", "apache", "5.4.0", False),
        ("haStatus", "failback", "0.1.0", True),
        ("haStatus", "apache", "4.9.8", False),
        ("storeFamily", "apache", "5.3.3", "v5"),
    ],
)
def test_a_quirk_depends_on_engine_and_version(
    key: str, engine: str, version: str, value: object
) -> None:
    assert quirk(key, engine, version) == value


def test_an_unknown_quirk_is_an_error() -> None:
    with pytest.raises(KeyError, match="no quirk speed"):
        quirk("speed", "apache", "4.9.7")


@pytest.mark.parametrize("key", ["slaveReadEnable", "brokerPermission", "fileReservedTime"])
def test_live_keys_restart_nothing(key: str) -> None:
    assert not restarts(key)


@pytest.mark.parametrize("key", ["flushDiskType", "brokerRole", "flushConsumerOffsetInterval", "x"])
def test_other_keys_restart(key: str) -> None:
    assert restarts(key)


@pytest.mark.parametrize(
    ("key", "value", "fine"),
    [
        ("fileReservedTime", "48", True),
        ("fileReservedTime", "4.5", False),
        ("slaveReadEnable", "True", False),
        ("failbackTimeScale", "0.1", True),
        ("failbackTimeScale", "0", False),
        ("flushDiskType", "SYNC_FLUSH", True),
        ("flushDiskType", "SYNC", False),
        ("messageDelayLevel", "1s 5s", True),
    ],
)
def test_values_are_checked_by_the_key_s_type(key: str, value: str, fine: bool) -> None:
    assert (config_keys()[key].problem(value) is None) == fine


def test_keys_of_the_other_engine_are_unknown() -> None:
    assert unknown_key_hint("failbackTimeScale", "failback") is None
    hint = unknown_key_hint("failbackTimeScale", "apache")
    assert hint == "failbackTimeScale is not a broker.conf key known to engine apache"


def test_every_key_that_our_broker_reads_is_in_the_catalogue() -> None:
    read = set(BrokerConfig.from_properties({}).to_properties())
    assert read - set(config_keys()) == set()
