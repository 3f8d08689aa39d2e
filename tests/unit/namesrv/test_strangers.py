"""What strangers may leave at a name server."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from failback.client.program import LineFormatter
from failback.client.remoting.access.guard import RequestGuard
from failback.client.remoting.access.rules_file import RulesFiles
from failback.client.remoting.tls_server import ServerTls
from failback.namesrv.config import NamesrvConfig
from failback.namesrv.kv_config import KVConfigManager
from failback.namesrv.processor import Processor
from failback.namesrv.routes import RouteInfoManager
from failback.namesrv.server import render
from failback.protocol import headers
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.metric_families import NAMESRV
from failback.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)

pytestmark = pytest.mark.foreign

BAD_NAMES = (
    "n" * 256,
    "n" * 200_000,
    "",
    "x\n2031-01-01 00:00:00,000 CRITICAL failback.namesrv: all brokers removed",
    "esc\x1b[2J",
    "right\u202eleft",
    "line\u2028end",
    "$(touch never)",
    "a b",
    "'quote",
)
BAD_ADDRESSES = (
    *BAD_NAMES,
    "127.0.0.1:9;touch never #",
    "127.0.0.1",
    ":9",
    "127.0.0.1:65536",
    "127.0.0.1:99999999",
    "-n:9",
    "`id`:9",
)


class Lab:
    """A name server without sockets, and what it keeps."""

    def __init__(
        self, folder: Path, *, brokers: int = 10, topics: int = 10, keys: int = 10
    ) -> None:
        config = NamesrvConfig({"kvConfigPath": str(folder / "kv.json")}, folder / "namesrv.conf")
        self.routes = RouteInfoManager(most_brokers=brokers, most_topics=topics)
        self.kv = KVConfigManager(config.kv_config_path, keys)
        self.kv.load()
        self.processor = Processor(self.routes, self.kv, config, lambda: 0)

    def ask(self, code: int, header: headers.Header | None = None, body: bytes = b"") -> int:
        request = RemotingCommand.request(code, header, body)
        request.version = 409
        answer = self.processor.process(request, "channel")
        assert isinstance(answer, RemotingCommand)
        assert answer.remark is None or (answer.remark.isprintable() and len(answer.remark) < 300)
        return answer.code

    def register(self, *topics: str, **fields: str) -> int:
        header = headers.RegisterBrokerRequestHeader(
            "broker-a", "10.0.0.1:10911", "C", "10.0.0.1:10912", 0
        )
        for field, value in fields.items():
            setattr(header, field, value)
        table = {topic: TopicConfig(topic, 1, 1) for topic in topics}
        wrapper = TopicConfigSerializeWrapper(table, DataVersion(1, 1))
        return self.ask(RequestCode.REGISTER_BROKER, header, RegisterBrokerBody(wrapper).to_json())

    def kept(self) -> object:
        info = self.routes.cluster_info()
        return info, self.routes.all_topics(), self.kv._table, self.processor.config.to_text()


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


@pytest.mark.parametrize("name", BAD_NAMES)
def test_no_such_name_is_kept(lab: Lab, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    before = lab.kept()
    for field in ("broker_name", "cluster_name"):
        assert lab.register(**{field: name}) == 1
    for code in (RequestCode.WIPE_WRITE_PERM_OF_BROKER, RequestCode.ADD_WRITE_PERM_OF_BROKER):
        assert lab.ask(code, headers.WritePermOfBrokerRequestHeader(name)) == 1
    gone = headers.UnregisterBrokerRequestHeader(name, "10.0.0.1:1", "C", 0)
    assert lab.ask(RequestCode.UNREGISTER_BROKER, gone) == 1
    for key in (("ns", name), (name, "k")):
        header = headers.PutKVConfigRequestHeader(*key, "v")
        assert lab.ask(RequestCode.PUT_KV_CONFIG, header) == 1
    assert lab.kept() == before
    formatter = LineFormatter("%(levelname)s %(message)s")
    assert [each for each in map(formatter.format, caplog.records) if "\n" in each] == []


@pytest.mark.parametrize("address", BAD_ADDRESSES)
def test_no_such_address_is_kept(lab: Lab, address: str) -> None:
    before = lab.kept()
    assert lab.register(broker_addr=address) == 1
    if address:
        assert lab.register(ha_server_addr=address) == 1
    assert lab.kept() == before


@pytest.mark.parametrize(
    "address", ["10.0.0.1:10911", "broker_1.shop.svc:10911", "[fe80::1]:1", "::1:10911", "h:65535"]
)
def test_real_addresses_are_taken(lab: Lab, address: str) -> None:
    assert lab.register(broker_addr=address) == 0


@pytest.mark.parametrize("name", ["broker-a", "ip-10-0-0-1.ec2.internal", "b_1", "集群"])
def test_real_names_are_taken(lab: Lab, name: str) -> None:
    assert lab.register(broker_name=name, cluster_name=name) == 0


@pytest.mark.parametrize("value", ["a\nb", "\u202e", "v" * 70_000])
def test_values_are_checked_too(lab: Lab, value: str) -> None:
    before = lab.kept()
    header = headers.PutKVConfigRequestHeader("ns", "k", value)
    assert lab.ask(RequestCode.PUT_KV_CONFIG, header) == 1
    body = f"mine={value}".replace("\n", "\\n").encode()
    assert lab.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body) == 1
    assert lab.kept() == before


def test_a_topic_that_cannot_be_is_left_out_and_the_others_are_served(lab: Lab) -> None:
    group = "g" * 255
    assert lab.register("T", "t" * 128, "a.b", "x\ny", f"%RETRY%{group}", f"%DLQ%{group}x") == 0
    assert lab.routes.all_topics() == [f"%RETRY%{group}", "T"]


def test_tables_have_room_for_so_many(tmp_path: Path) -> None:
    lab = Lab(tmp_path, brokers=3, topics=5, keys=2)
    for number in range(6):
        address, name = f"10.0.0.{number}:1", f"b{number}"
        expected = 0 if number < 3 else 1
        assert lab.register(f"T{number}", broker_addr=address, broker_name=name) == expected
        key = headers.PutKVConfigRequestHeader(f"n{number}", "k", "v")
        assert lab.ask(RequestCode.PUT_KV_CONFIG, key) == (0 if number < 2 else 1)
    assert len(lab.routes.live_brokers()) == 3
    topics = [f"U{number}" for number in range(10)]
    assert lab.register(*topics, broker_addr="10.0.0.0:9", broker_name="b0") == 1
    lab.routes.unregister_broker("C", "b2", 0, "10.0.0.2:1")
    assert lab.register(*topics, broker_addr="10.0.0.9:9", broker_name="b9") == 0
    assert len(lab.routes.all_topics()) == 5
    again = headers.PutKVConfigRequestHeader("n0", "k", "other")
    assert lab.ask(RequestCode.PUT_KV_CONFIG, again) == 0


def test_unknown_keys_have_room_for_so_many(lab: Lab) -> None:
    for number in range(100):
        lab.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=f"mine{number}=1".encode())
    shown = lab.processor.config.to_text().splitlines()
    assert len([line for line in shown if line.startswith("mine")]) == 64


def test_what_was_refused_is_counted(tmp_path: Path) -> None:
    lab = Lab(tmp_path, brokers=1)
    for number in range(3):
        lab.register(broker_addr=f"10.0.0.{number}:1")
    assert lab.processor.full_tables == 2
    tls = ServerTls(None)
    tls.not_after = 7.0
    (tmp_path / "plain_acl.yml").write_text("accounts: []")
    access = RequestGuard(RulesFiles(tmp_path), lambda: "warn", frozenset())
    access.refused["", 103, "warn"] = 3
    access.last_used["admin-key"] = 5.0
    values = {"connections": 4, "brokers": 1, "topics": 0}
    text = render(**values, refused={"tables": 2}, tls=tls, access=access).decode()
    shown = dict(line.split(" ") for line in text.splitlines() if not line.startswith("#"))
    assert {name: value for name, value in shown.items() if "_failures_" not in name} == {
        "failback_namesrv_tls_certificate_not_after_timestamp_seconds": "7.0",
        "failback_namesrv_tls_connections": "0.0",
        "failback_namesrv_connections": "4.0",
        "failback_namesrv_brokers": "1.0",
        "failback_namesrv_topics": "0.0",
        'failback_namesrv_refused_total{bound="tables"}': "2.0",
        'failback_namesrv_access_refused_total{access_key="",code="103",mode="warn"}': "3.0",
        'failback_namesrv_access_key_last_used_timestamp_seconds{access_key="admin-key"}': "5.0",
        "failback_namesrv_access_rules_current": "1.0",
    }
    assert {each.name for each in NAMESRV} == {name.partition("{")[0] for name in shown}
