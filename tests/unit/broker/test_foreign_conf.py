"""broker.conf as people have it: published files, what their editors do, what this broker lacks."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.key_meanings import MEANINGS

from failback.broker.config.config import BrokerConfig
from failback.broker.config.config_checks import SlaveIdError
from failback.broker.config.config_keys import NOT_OFFERED, SHOWN_ONLY
from failback.broker.config.identity import BrokerIdentity
from failback.broker.startup.controller import BrokerController
from failback.client.remoting.addresses import address_to_bind
from failback.protocol.errors import ConfigError
from tests.support.net.ports import free_port_block

pytestmark = pytest.mark.foreign

FILES = Path(__file__).parents[2] / "data" / "broker_conf"
OUTCOMES: dict[str, dict[str, Any]] = yaml.safe_load((FILES / "outcomes.yaml").read_text())
WITHOUT_EFFECT = "without effect here: "


def write(folder: Path, *lines: str) -> Path:
    file = folder / "broker.conf"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_every_file_has_an_outcome() -> None:
    assert {file.name for file in FILES.glob("*.conf")} == OUTCOMES.keys()
    assert len(OUTCOMES) >= 25


@pytest.mark.parametrize("name", OUTCOMES)
def test_a_published_file_starts_or_is_refused_by_key_and_line(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    file, outcome = FILES / name, OUTCOMES[name]
    if "refused" in outcome:
        with pytest.raises(ConfigError) as caught:
            BrokerIdentity.of(BrokerConfig.load(file, {}))
        place = f"{file}:{outcome['line']}: {outcome['refused']}: "
        assert str(caught.value).startswith(place)
        assert "\n" not in str(caught.value)
        return
    with caplog.at_level(logging.WARNING):
        config = BrokerConfig.load(file, {})
    settings = config.to_properties()
    wanted = outcome.get("read", {})
    assert {key: settings[key] for key in wanted} == wanted
    lines = [text for text in caplog.messages if WITHOUT_EFFECT in text]
    assert len(lines) == bool(outcome.get("without-effect"))
    listed = "".join(lines).rpartition(WITHOUT_EFFECT)[2]
    assert re.findall(r"(\w+) \(line \d+", listed) == outcome.get("without-effect", [])
    assert outcome.get("said", "") in caplog.text


def test_a_file_without_remarks_says_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path, *(f"{key}={value}" for key, value in PLAIN.items()))
    with caplog.at_level(logging.WARNING):
        BrokerConfig.load(file, {})
    assert caplog.messages == []


PLAIN = {
    key: value
    for key, value in BrokerConfig.from_properties({}).to_properties().items()
    if not key.startswith("storePath")
}


@pytest.mark.parametrize("key", sorted(SHOWN_ONLY))
def test_a_key_that_does_nothing_is_named_when_somebody_sets_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    value = PLAIN[key]
    other = {"true": "false", "false": "true"}.get(value) or str(int(value) + 1)
    file = write(tmp_path, "brokerName=a", f"{key}={other}")
    with caplog.at_level(logging.WARNING):
        BrokerConfig.load(file, {})
    assert caplog.messages == [f"{file}: {WITHOUT_EFFECT}{key} (line 2)"]


def test_what_the_page_says_has_no_effect_is_what_the_start_says() -> None:
    shown = {key for key, words in MEANINGS.items() if "hown" in words and "kept" in words.lower()}
    assert shown | {"haListenPort"} == SHOWN_ONLY
    assert {key for key, words in MEANINGS.items() if "Not offered" in words} == {
        key for key in NOT_OFFERED if key in PLAIN
    }


# --- addresses --------------------------------------------------------------------------------

ONE = "127.0.0.1:20876"
ADDRESSES = {
    f"{ONE};127.0.0.1:20877": "",
    f" {ONE} ; 127.0.0.1:20877 ; ": "",
    f"{ONE},127.0.0.1:20877": "",
    f"{ONE};": "",
    "[::1]:9876": "",
    "name_server-1.example:9876": "",
    f"{ONE}；127.0.0.1:20877": "'；' is not the character ';'",
    f"{ONE}，127.0.0.1:20877": "'，' is not the character ','",
    "127.0.0.1：20876": "'：' is not the character ':'",
    f"{ONE}\u3000127.0.0.1:20877": "is not the character ' '",
    f"http://{ONE}": "no URL",
    f"rocketmq+tcp://{ONE}/": "no URL",
    f"{ONE} 127.0.0.1:20877": "a blank stands in an address",
    f"{ONE};nameserver": "the port is missing",
    f"{ONE};nameserver:": "the port is missing",
    ":9876": "the host is missing",
    "nameserver:port": "the port is no number",
    "nameserver:9876/": "the port is no number",
    "nameserver:0": "a port is from 1 to 65535",
    "nameserver:65536": "a port is from 1 to 65535",
    "nameserver:99999999999999999999": "a port is from 1 to 65535",
    "nameserver:٩٨٧٦": "the port is no number",
    "${NAMESRV}:9876": "is no name or address of a host",
    "名:9876": "is no name or address of a host",
    ";": "names no address",
}


def test_a_list_of_addresses_is_read(tmp_path: Path) -> None:
    for text in [text for text, problem in ADDRESSES.items() if not problem]:
        config = BrokerConfig.load(write(tmp_path, f"namesrvAddr={text}"), {})
        assert config.name_servers == tuple(re.findall(r"[^;, ]+", text))


def test_what_is_wrong_in_a_list_of_addresses_is_said(tmp_path: Path) -> None:
    for text in [text for text, problem in ADDRESSES.items() if problem]:
        for key in ["namesrvAddr", "haMasterAddress"]:
            file = write(tmp_path, "brokerName=a", f"{key}={text}")
            with pytest.raises(ConfigError) as caught:
                BrokerConfig.load(file, {})
            assert str(caught.value).startswith(f"{file}:2: {key}: ")
            assert ADDRESSES[text] in str(caught.value)


def test_an_address_of_the_environment_is_refused_by_the_variable() -> None:
    with pytest.raises(ConfigError, match=r"^NAMESRV_ADDR: has 'a': the port is missing"):
        BrokerConfig.from_properties({}, environment={"NAMESRV_ADDR": "a"})


def test_a_slave_has_one_master() -> None:
    with pytest.raises(ConfigError, match="haMasterAddress: a slave has one master"):
        BrokerConfig.from_properties({"haMasterAddress": "a:1;b:2"})


@pytest.mark.parametrize(
    ("announced", "bound"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.9.9.9", "127.9.9.9"),
        ("localhost", "localhost"),
        ("192.0.2.10", "0.0.0.0"),
        ("2001:db8::10", "::"),
        ("no-such-host.invalid", "no-such-host.invalid"),
    ],
)
def test_a_broker_listens_where_it_is_or_everywhere(announced: str, bound: str) -> None:
    assert address_to_bind(announced) == bound


def small_broker(folder: Path) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {
            "brokerIP1": "127.0.0.1",
            "listenPort": str(free_port_block(5) + 2),
            "storePathRootDir": str(folder),
            "mappedFileSizeCommitLog": "65536",
        }
    )


@pytest.mark.parametrize("is_given", [False, True])
async def test_a_health_port_that_nobody_asked_for_may_be_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_given: bool
) -> None:
    """Brokers of published files share a machine with each other, and with whoever has 8088."""
    stop = asyncio.Event()
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        config = small_broker(tmp_path)
        config.failback_http_port = port
        config.given |= {"failbackHttpPort"} if is_given else set()
        broker = BrokerController(config)
        if is_given:
            with pytest.raises(ConfigError, match=f"^failbackHttpPort: .*:{port}: it is held by"):
                await broker.run(stop, stop.set)
            return
        await broker.run(stop, stop.set)
    assert f"no health and metrics on port {port}: the port is taken" in caplog.text


async def test_the_port_of_replication_is_not_taken_for_health(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stop = asyncio.Event()
    config = small_broker(tmp_path)
    config.failback_http_port = config.listen_port + 1
    await BrokerController(config).run(stop, stop.set)
    assert (
        f"no health and metrics on port {config.listen_port + 1}: replication needs it"
        in caplog.text
    )


# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("fileReservedTime", "48h"),
        ("fileReservedTime", "4_8"),
        ("fileReservedTime", "4 8"),
        ("fileReservedTime", "48 # two days"),
        ("fileReservedTime", "４８"),
        ("fileReservedTime", "0x30"),
        ("fileReservedTime", "48.0"),
        ("fileReservedTime", "1e2"),
        ("fileReservedTime", "99999999999999999999"),
        ("autoCreateTopicEnable", "yes"),
        ("autoCreateTopicEnable", "1"),
        ("autoCreateTopicEnable", "on"),
        ("autoCreateTopicEnable", "true # as always"),
        ("autoCreateTopicEnable", ""),
        ("brokerRole", "async_master"),
        ("brokerRole", "MASTER"),
        ("flushDiskType", "ASYNC_FLUSHll"),
        ("flushDiskType", "Sync_Flush"),
        ("brokerName", "a\\nbrokerRole=SLAVE"),
        ("brokerName", "a\\u0000"),
        ("regionId", "a\\u001b[2J"),
        ("regionId", "\\ud83d"),
    ],
)
def test_a_value_that_4_9_8_takes_for_another_is_refused(
    tmp_path: Path, key: str, value: str
) -> None:
    file = write(tmp_path, "brokerClusterName=c", "", f"{key}={value}")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(file, {})
    assert str(caught.value).startswith(f"{file}:3: {key}: ")
    assert not re.search(r"[\x00-\x1f]", str(caught.value))


def test_what_would_be_dangerous_is_no_broker() -> None:
    for value in ["true", "TRUE", " True "]:
        for key in [
            "enableControllerMode",
            "enableDLegerCommitLog",
            "enableDLedgerCommitLog",
            "enableDledgerCommitlog",
            "ACLEnable",
        ]:
            BrokerConfig.from_properties({key: "false"})
            with pytest.raises(ConfigError) as caught:
                BrokerConfig.from_properties({key: value})
            assert caught.value.field == key
            assert not isinstance(caught.value, SlaveIdError)


def test_a_name_that_cannot_be_one_is_refused_with_its_key() -> None:
    for name in ["a" * 64 + ".example", "a..b", "." * 3]:
        config = BrokerConfig.from_properties({"brokerIP1": name}, environment={})
        with pytest.raises(ConfigError, match="brokerIP1"):
            BrokerIdentity.of(config)
