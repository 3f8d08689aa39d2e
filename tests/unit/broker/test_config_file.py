"""broker.conf as a text: where an error is, keys given twice, all keys of 4.9."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from failback.broker.config.config import BrokerConfig
from failback.protocol.errors import ConfigError

# Of the keys that 4.9.8 documents for stores, replication and offsets: those that no other test
# compares. The host's name and addresses have no default that could be written down.
DEFAULTS = {
    "storePathCommitLog": "{home}/store/commitlog",
    "storePathRootDir": "{home}/store",
    "enableConsumeQueueExt": "false",
    "commitIntervalCommitLog": "200",
    "commitCommitLogLeastPages": "4",
    "commitCommitLogThoroughInterval": "200",
    "transientStorePoolEnable": "false",
    "transientStorePoolSize": "5",
    "useReentrantLockWhenPutMessage": "true",
    "osPageCacheBusyTimeOutMills": "1000",
    "messageIndexSafe": "false",
    "maxMsgsNumBatch": "64",
    "defaultQueryMaxNum": "32",
    "cleanResourceInterval": "10000",
    "deleteCommitLogFilesInterval": "100",
    "cleanFileForciblyEnable": "true",
    "haMasterAddress": "",
    "disableConsumeIfConsumerReadSlowly": "false",
    "consumerFallbehindThreshold": "17179869184",
    "transactionTimeOut": "6000",
    "transactionCheckMax": "15",
    "transactionCheckInterval": "60000",
    "duplicationEnable": "false",
    "enablePropertyFilter": "false",
    "storeReplyMessageEnable": "true",
    "namesrvAddr": "",
    "haListenPort": "10912",
}


def write(folder: Path, *lines: str) -> Path:
    file = folder / "broker.conf"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_the_other_keys_have_their_4_9_default() -> None:
    config = BrokerConfig.from_properties({}, environment={"HOME": "/home/rocketmq"})
    settings = config.to_properties()
    expected = {key: value.format(home="/home/rocketmq") for key, value in DEFAULTS.items()}
    assert {key: settings.get(key) for key in DEFAULTS} == expected
    assert config.unknown == {}
    for key in ("brokerName", "brokerIP1", "brokerIP2"):
        assert settings[key]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listenPort", "70000"),
        ("brokerRole", "MASTER"),
        ("fileReservedTime", "two days"),
        ("namesrvAddr", "nameserver"),
        ("messageDelayLevel", "1s 5 minutes"),
        ("messageDelayLevel", "soon"),
        ("deleteWhen", "4am"),
        ("deleteWhen", "25"),
        ("failbackTimeScale", "0"),
        ("mappedFileSizeCommitLog", "1G"),
    ],
)
def test_one_error_names_file_line_key_and_value(tmp_path: Path, key: str, value: str) -> None:
    file = write(tmp_path, "# first", "", "brokerName=a\\", "  b", f"{key} = {value}", "x=1")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(file, {})
    assert str(caught.value).startswith(f"{file}:5: {key}: ")
    assert value in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_slave_without_an_id_is_told_where_its_id_stands(tmp_path: Path) -> None:
    file = write(tmp_path, "brokerRole=SLAVE", "brokerId=0")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(file, {})
    assert str(caught.value) == f"{file}:2: brokerId: must be above 0 for a SLAVE, is 0"


def test_an_error_about_what_the_file_does_not_say_has_no_line(tmp_path: Path) -> None:
    file = write(tmp_path, "brokerName=a")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(file, {"FAILBACK_HTTP_PORT": "many"})
    assert str(caught.value) == "failbackHttpPort: must be a whole number, is 'many'"


def test_a_line_that_is_no_properties_text_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, "brokerName=a", "brokerClusterName=\\u12")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(file, {})
    problem = "holds \\u12, which is no character: a \\ itself is written \\\\"
    assert str(caught.value) == f"{file}:2: brokerClusterName: {problem}"


def test_of_a_key_given_twice_the_last_counts_and_both_lines_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path, "listenPort=1000", "brokerName=a", "listenPort=2000")
    with caplog.at_level(logging.WARNING):
        assert BrokerConfig.load(file, {}).listen_port == 2000
    assert f"{file}: line 3: listenPort replaces that of line 1" in caplog.text


def test_a_broker_with_a_bad_setting_says_so_in_one_line_and_exits(tmp_path: Path) -> None:
    file = write(tmp_path, "brokerName=a", "flushDiskType=SOMETIMES")
    command = [sys.executable, "-m", "failback.broker", "-c", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2
    choices = "must be one of ASYNC_FLUSH, SYNC_FLUSH, is 'SOMETIMES'"
    assert done.stderr == f"failback broker: {file}:2: flushDiskType: {choices}\n"


# --- what a kill or a machine that stopped leaves -------------------------------------------------

TEXT = "brokerIP1=127.0.0.1\nbrokerName=kept\n"


@pytest.mark.foreign
@pytest.mark.parametrize(
    ("left", "source"),
    [
        ({".bak": TEXT, ".tmp": TEXT}, ".bak"),
        ({".bak": TEXT}, ".bak"),
        ({".tmp": TEXT}, ".tmp"),
        ({".bak": "", ".tmp": TEXT}, ".tmp"),
        ({"": "", ".bak": TEXT}, ".bak"),
        ({"": "\0" * 512, ".bak": TEXT, ".tmp": ""}, ".bak"),
    ],
)
def test_a_file_that_was_lost_between_two_steps_is_found(
    tmp_path: Path, left: dict[str, str], source: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "broker.conf"
    for ending, text in left.items():
        file.with_name(file.name + ending).write_text(text)
    config = BrokerConfig.load(file, {})
    assert (config.broker_name, config.file) == ("kept", file)
    assert f"read from broker.conf{source}" in caplog.text


@pytest.mark.foreign
def test_a_file_that_says_something_is_read_whatever_lies_beside_it(tmp_path: Path) -> None:
    file = write(tmp_path, "brokerName=new", "brokerIP1=127.0.0.1")
    for ending in (".bak", ".tmp"):
        file.with_name(file.name + ending).write_text(TEXT)
    assert BrokerConfig.load(file, {}).broker_name == "new"


def test_an_empty_file_alone_means_all_defaults(tmp_path: Path) -> None:
    assert BrokerConfig.load(write(tmp_path), {"HOME": "/home/rocketmq"}).listen_port == 10911


def test_a_file_that_is_nowhere_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"broker\.conf"):
        BrokerConfig.load(tmp_path / "broker.conf", {})
