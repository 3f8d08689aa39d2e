"""broker.conf: keys, defaults, refusals, live changes."""

from __future__ import annotations

from pathlib import Path

import javaproperties
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.broker.config.config import GUARDS, BrokerConfig
from failback.broker.config.config_checks import SlaveIdError
from failback.broker.config.identity import BrokerIdentity
from failback.protocol.errors import ConfigError

# Key and default at 4.9.8 of BrokerConfig, MessageStoreConfig and NettyServerConfig.
DEFAULTS_4_9 = {
    "brokerClusterName": "DefaultCluster",
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
    "listenPort": "10911",
    "brokerPermission": "6",
    "defaultTopicQueueNums": "8",
    "autoCreateTopicEnable": "true",
    "autoCreateSubscriptionGroup": "true",
    "mappedFileSizeCommitLog": "1073741824",
    "mappedFileSizeConsumeQueue": "6000000",
    "maxMessageSize": "4194304",
    "flushDiskType": "ASYNC_FLUSH",
    "flushIntervalCommitLog": "500",
    "flushCommitLogTimed": "true",
    "flushCommitLogLeastPages": "4",
    "flushCommitLogThoroughInterval": "10000",
    "flushIntervalConsumeQueue": "1000",
    "flushConsumeQueueLeastPages": "2",
    "flushConsumeQueueThoroughInterval": "60000",
    "syncFlushTimeout": "5000",
    "checkCRCOnRecover": "true",
    "messageIndexEnable": "true",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
    "deleteWhen": "04",
    "fileReservedTime": "72",
    "diskMaxUsedSpaceRatio": "75",
    "destroyMapedFileIntervalForcibly": "120000",
    "maxTransferBytesOnMessageInMemory": "262144",
    "maxTransferCountOnMessageInMemory": "32",
    "maxTransferBytesOnMessageInDisk": "65536",
    "maxTransferCountOnMessageInDisk": "8",
    "accessMessageInMemoryMaxRatio": "40",
    "offsetCheckInSlave": "false",
    "haSendHeartbeatInterval": "5000",
    "haHousekeepingInterval": "20000",
    "haTransferBatchSize": "32768",
    "haSlaveFallbehindMax": "268435456",
    "slaveTimeout": "3000",
    "slaveReadEnable": "false",
    "flushConsumerOffsetInterval": "5000",
    "flushDelayOffsetInterval": "10000",
    "longPollingEnable": "true",
    "shortPollingTimeMills": "1000",
    "registerNameServerPeriod": "30000",
    "registerBrokerTimeoutMills": "6000",
    "forceRegister": "true",
    "notifyConsumerIdsChangedEnable": "true",
    "rejectTransactionMessage": "false",
    "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    "configBlackList": "configBlackList;brokerConfigPath",
}


def of(**properties: object) -> BrokerConfig:
    return BrokerConfig.from_properties({key: str(value) for key, value in properties.items()})


def test_every_documented_key_has_its_4_9_default() -> None:
    settings = of().to_properties()
    assert {key: settings.get(key) for key in DEFAULTS_4_9} == DEFAULTS_4_9


def test_a_file_is_read_as_java_properties(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "# a comment\nbrokerName : broker-\\u0061\nlistenPort=30911\nnamesrvAddr=a:1;\\\n  b:2\n"
    )
    config = BrokerConfig.load(file, {})
    assert config.broker_name == "broker-a"
    assert config.listen_port == 30911
    assert config.name_servers == ("a:1", "b:2")
    assert config.broker_config_path == str(file)


def test_an_unknown_key_is_kept_and_shown() -> None:
    config = of(sendMessageThreadPoolNums=16)
    assert config.unknown == {"sendMessageThreadPoolNums": "16"}
    assert config.to_properties()["sendMessageThreadPoolNums"] == "16"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listenPort", "many"),
        ("listenPort", "70000"),
        ("listenPort", "1.5"),
        ("autoCreateTopicEnable", "yes"),
        ("brokerRole", "MASTER"),
        ("flushDiskType", "SOMETIMES"),
        ("failbackTimeScale", "fast"),
        ("failbackTimeScale", "nan"),
        ("failbackTimeScale", "0"),
        ("mappedFileSizeCommitLog", "1G"),
        ("namesrvAddr", "nameserver"),
        ("namesrvAddr", "a:9876;b:99999"),
    ],
)
def test_a_value_that_does_not_fit_names_file_and_key(tmp_path: Path, key: str, value: str) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(f"{key}={value}\n")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(file, {})
    assert caught.value.field == key
    assert str(file) in str(caught.value)
    assert value.rpartition(";")[2] in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.conf"):
        BrokerConfig.load(tmp_path / "nowhere.conf", {})


def test_a_master_has_id_0_whatever_the_file_says() -> None:
    assert of(brokerId=3).broker_id == 0
    assert of(brokerId=3, brokerRole="SYNC_MASTER").broker_id == 0


@pytest.mark.parametrize("broker_id", [0, -1])
def test_a_slave_needs_an_id_above_0(broker_id: int) -> None:
    with pytest.raises(SlaveIdError):
        of(brokerRole="SLAVE", brokerId=broker_id)
    assert of(brokerRole="SLAVE", brokerId=1).broker_id == 1


def test_the_spelling_of_4_4_0_has_no_effect() -> None:
    config = of(mapedFileSizeCommitLog=8192, mapedFileSizeConsumeQueue=400)
    assert config.mapped_file_size_commit_log == 1024**3
    assert config.mapped_file_size_consume_queue == 6_000_000
    assert config.unknown.keys() == {"mapedFileSizeCommitLog", "mapedFileSizeConsumeQueue"}


def test_guarded_rules_switch_on_every_guard_that_is_not_set() -> None:
    assert not any(getattr(of(), name) for name in GUARDS)
    assert all(getattr(of(failbackRules="guarded"), name) for name in GUARDS)
    one = of(failbackGuardOffsetFile="true")
    assert [name for name in GUARDS if getattr(one, name)] == ["failback_guard_offset_file"]
    but_one = of(failbackRules="guarded", failbackGuardOffsetFile="false")
    off = [name for name in GUARDS if not getattr(but_one, name)]
    assert off == ["failback_guard_offset_file"]


def test_the_environment_chooses_the_rules_where_the_file_does_not() -> None:
    environment = {"FAILBACK_RULES": "guarded"}
    chosen = BrokerConfig.from_properties({}, environment=environment)
    assert (chosen.failback_rules, chosen.failback_guard_consumer_list) == ("guarded", True)
    given = BrokerConfig.from_properties({"failbackRules": "compat"}, environment=environment)
    assert (given.failback_rules, given.failback_guard_consumer_list) == ("compat", False)
    with pytest.raises(ConfigError, match="failbackRules: must be one of compat, guarded"):
        BrokerConfig.from_properties({}, environment={"FAILBACK_RULES": "strict"})


def test_the_environment_fills_what_the_file_leaves_open() -> None:
    environment = {"NAMESRV_ADDR": "n:9876", "FAILBACK_HTTP_PORT": "0", "HOME": "/home/rocketmq"}
    open_config = BrokerConfig.from_properties({}, environment=environment)
    assert open_config.name_servers == ("n:9876",)
    assert open_config.failback_http_port == 0
    assert open_config.store_path_root_dir == "/home/rocketmq/store"
    assert open_config.store_path_commit_log == "/home/rocketmq/store/commitlog"
    given_config = BrokerConfig.from_properties(
        {"namesrvAddr": "m:1", "failbackHttpPort": "8089", "storePathRootDir": "/data"},
        environment=environment,
    )
    assert given_config.name_servers == ("m:1",)
    assert given_config.failback_http_port == 8089
    assert given_config.store_path_commit_log == "/data/commitlog"


def test_the_registration_period_is_clamped() -> None:
    assert of(registerNameServerPeriod=5).register_period_ms == 10_000
    assert of(registerNameServerPeriod=45_000).register_period_ms == 45_000
    assert of(registerNameServerPeriod=600_000).register_period_ms == 60_000


def test_all_settings_survive_being_written_and_read() -> None:
    config = of(brokerName="b", slaveReadEnable="true", failbackTimeScale=0.25, own="kept")
    text = javaproperties.dumps(config.to_properties(), timestamp=False)
    again = BrokerConfig.from_properties(javaproperties.loads(text))
    assert again.to_properties() == config.to_properties()
    assert again.to_file() == javaproperties.dumps(again.to_properties(), timestamp=False).encode()


def test_a_live_change_reports_what_changed() -> None:
    config = of()
    assert config.apply({"slaveReadEnable": "true", "brokerPermission": "6"}) == {"slaveReadEnable"}
    assert config.slave_read_enable


def test_a_live_change_ignores_keys_nobody_knows() -> None:
    config = of(mine="1")
    assert config.apply({"theirs": "2", "mine": "3"}) == {"mine"}
    assert config.unknown == {"mine": "3"}


def test_a_bad_live_change_changes_nothing() -> None:
    config = of()
    before = config.to_properties()
    with pytest.raises(ConfigError):
        config.apply({"slaveReadEnable": "true", "brokerPermission": "all"})
    with pytest.raises(ConfigError):
        config.apply({"slaveReadEnable": "true", "namesrvAddr": "x"})
    assert config.to_properties() == before


def test_the_identity_is_what_others_are_told() -> None:
    identity = BrokerIdentity.of(of(brokerIP1="127.0.0.7", brokerIP2="127.0.0.8", listenPort=4000))
    assert identity.address == "127.0.0.7:4000"
    assert identity.ha_address == "127.0.0.8:4001"
    assert identity.store_host.hex() == "7f00000700000fa0"


def test_an_address_that_does_not_resolve_is_named() -> None:
    with pytest.raises(ConfigError, match="brokerIP1"):
        BrokerIdentity.of(of(brokerIP1="no-such-host.invalid", brokerIP2="127.0.0.1"))


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5))
def test_any_file_is_taken_or_refused_with_its_key(properties: dict[str, str]) -> None:
    field = None
    try:
        config = BrokerConfig.from_properties(properties)
    except ConfigError as error:
        field = error.field
    if field is not None:
        assert field in properties
    else:
        assert properties.keys() <= config.to_properties().keys()
