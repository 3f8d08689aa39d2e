"""Requests to the name server, without sockets: every code, every form, every refusal."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from failback.namesrv.config import DEFAULTS, LIVE, NamesrvConfig
from failback.namesrv.kv_config import KVConfigManager
from failback.namesrv.processor import Processor
from failback.namesrv.routes import RouteInfoManager
from failback.protocol import headers
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.route import (
    ClusterInfo,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from failback.protocol.stats import KVTable, TopicList

VERSION = DataVersion(1_700_000_000_000, 4)
WRAPPER = TopicConfigSerializeWrapper({"T": TopicConfig("T", 8, 8)}, VERSION)
BODY = RegisterBrokerBody(WRAPPER)


class Asker:
    """Asks a processor as some connection; ``clock`` is its clock in ms."""

    def __init__(self, folder: Path, **properties: str) -> None:
        self.clock = 0
        self.config_file = folder / "namesrv.conf"
        properties = {"kvConfigPath": str(folder / "kv" / "kvConfig.json"), **properties}
        config = NamesrvConfig(properties, self.config_file)
        self.kv_config = KVConfigManager(config.kv_config_path)
        self.kv_config.load()
        self.processor = Processor(RouteInfoManager(), self.kv_config, config, lambda: self.clock)

    def ask(
        self,
        code: int,
        header: headers.Header | None = None,
        body: bytes = b"",
        *,
        version: int = 409,
        ext: dict[str, str] | None = None,
    ) -> RemotingCommand:
        request = RemotingCommand.request(code, header, body, ext=ext)
        request.opaque, request.version = 5, version
        response = self.processor.process(request, "channel")
        assert isinstance(response, RemotingCommand)
        assert (response.opaque, response.is_response) == (5, True)
        return response

    def register(
        self, broker_id: int = 0, body: bytes | None = None, *, version: int = 409, **more: object
    ) -> RemotingCommand:
        addr = f"10.0.0.{broker_id + 1}:10911"
        header = headers.RegisterBrokerRequestHeader(
            "broker-a",
            addr,
            "C",
            f"10.0.0.{broker_id + 1}:10912",
            broker_id,
            **more,  # type: ignore[arg-type]
        )
        body = BODY.to_json() if body is None else body
        return self.ask(RequestCode.REGISTER_BROKER, header, body, version=version)

    def route(self, topic: str = "T") -> TopicRouteData:
        response = self.ask(105, headers.GetRouteInfoRequestHeader(topic))
        assert response.code == 0
        return TopicRouteData.from_json(response.body)


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    return Asker(tmp_path)


def test_registration_in_json(asker: Asker) -> None:
    response = asker.register()
    assert (response.code, response.ext_fields, response.body) == (0, {}, b"")
    assert asker.route().queue_datas[0].read_queue_nums == 8


def test_registration_compressed(asker: Asker) -> None:
    assert asker.register(body=BODY.to_compressed(), compressed=True).code == 0
    assert asker.route().queue_datas[0].read_queue_nums == 8


def test_registration_of_a_broker_before_3_0_11(asker: Asker) -> None:
    assert asker.register(body=WRAPPER.to_json(), version=36).code == 0
    assert asker.route().queue_datas[0].read_queue_nums == 8


def test_registration_without_body_counts_as_version_0(asker: Asker) -> None:
    assert asker.register(body=b"").code == 0
    query = headers.QueryDataVersionRequestHeader("broker-a", "10.0.0.1:10911", "C", 0)
    response = asker.ask(322, query, VERSION.to_json())
    assert response.ext_fields == {"changed": "true"}
    assert response.body == b'{"counter":0,"timestamp":0}'


def test_the_checksum_of_the_body_is_checked_where_given(asker: Asker) -> None:
    crc = zlib.crc32(BODY.to_json()) & 0x7FFFFFFF
    assert asker.register(body_crc32=crc).code == 0
    refused = asker.register(1, body_crc32=crc ^ 1)
    assert (refused.code, refused.remark) == (1, "crc32 not match")
    assert 1 not in asker.route().broker_datas[0].broker_addrs


@pytest.mark.parametrize(
    ("body", "more"), [(b"{", {}), (b"[]", {}), (b"no zlib", {"compressed": True})]
)
def test_an_unreadable_body_changes_nothing(
    asker: Asker, body: bytes, more: dict[str, bool]
) -> None:
    response = asker.register(body=body, **more)
    assert response.code == 1
    assert response.remark
    info = ClusterInfo.from_json(asker.ask(106).body)
    assert info.broker_addr_table == {}


def test_a_slave_learns_its_master_and_every_broker_the_order_topics(asker: Asker) -> None:
    asker.ask(100, headers.PutKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "T", "broker-a:8"))
    response = asker.register()
    assert KVTable.from_json(response.body).table == {"T": "broker-a:8"}
    response = asker.register(1)
    assert response.ext_fields == {
        "haServerAddr": "10.0.0.1:10912",
        "masterAddr": "10.0.0.1:10911",
    }


def test_a_missing_header_field_is_named(asker: Asker) -> None:
    response = asker.ask(103, ext={"brokerName": "b"})
    assert response.code == 1
    assert response.remark is not None
    assert "brokerAddr" in response.remark


def test_unregistration(asker: Asker) -> None:
    asker.register()
    header = headers.UnregisterBrokerRequestHeader("broker-a", "10.0.0.1:10911", "C", 0)
    assert asker.ask(104, header).code == 0
    assert asker.ask(105, headers.GetRouteInfoRequestHeader("T")).code == 17


def test_an_unchanged_version_keeps_a_broker_alive(asker: Asker) -> None:
    asker.register()
    query = headers.QueryDataVersionRequestHeader("broker-a", "10.0.0.1:10911", "C", 0)
    asker.clock = 100_000
    response = asker.ask(322, query, VERSION.to_json())
    assert (response.ext_fields, response.body) == ({"changed": "false"}, VERSION.to_json())
    unknown = headers.QueryDataVersionRequestHeader("broker-a", "elsewhere:1", "C", 0)
    response = asker.ask(322, unknown, VERSION.to_json())
    assert (response.ext_fields, response.body) == ({"changed": "true"}, b"")


@pytest.mark.parametrize("version", [0, 399, 401, 409])
def test_route_keys_are_quoted_for_every_version(asker: Asker, version: int) -> None:
    asker.register()
    response = asker.ask(105, headers.GetRouteInfoRequestHeader("T"), version=version)
    brokers = json.loads(response.body)["brokerDatas"]
    assert brokers[0]["brokerAddrs"] == {"0": "10.0.0.1:10911"}


def test_no_route_is_17_with_the_usual_text(asker: Asker) -> None:
    response = asker.ask(105, headers.GetRouteInfoRequestHeader("nope"))
    assert response.code == 17
    assert response.remark is not None
    assert response.remark.startswith("No topic route info in name server for the topic: nope")


def test_order_configuration_is_in_the_route_only_where_enabled(tmp_path: Path) -> None:
    for enabled in ("false", "true"):
        asker = Asker(tmp_path, orderMessageEnable=enabled)
        asker.ask(100, headers.PutKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "T", "broker-a:8"))
        asker.register()
        expected = "broker-a:8" if enabled == "true" else None
        assert asker.route().order_topic_conf == expected


def test_write_permission(asker: Asker) -> None:
    asker.register()
    header = headers.WritePermOfBrokerRequestHeader("broker-a")
    assert asker.ask(205, header).ext_fields == {"wipeTopicCount": "1"}
    assert asker.route().queue_datas[0].perm == 4
    assert asker.ask(327, header).ext_fields == {"addTopicCount": "1"}
    assert asker.route().queue_datas[0].perm == 6


def test_topic_lists(asker: Asker) -> None:
    unit = TopicConfig("U", topic_sys_flag=1)
    sub = TopicConfig("S", topic_sys_flag=2)
    both = TopicConfig("B", topic_sys_flag=3)
    table = {config.topic_name: config for config in (TopicConfig("T"), unit, sub, both)}
    asker.register(body=RegisterBrokerBody(TopicConfigSerializeWrapper(table, VERSION)).to_json())

    def topics(code: int, header: headers.Header | None = None) -> list[str]:
        return TopicList.from_json(asker.ask(code, header).body).topic_list

    assert topics(206) == ["B", "S", "T", "U"]
    assert topics(224, headers.GetTopicsByClusterRequestHeader("C")) == ["B", "S", "T", "U"]
    assert topics(224, headers.GetTopicsByClusterRequestHeader("D")) == []
    assert topics(311) == ["B", "U"]
    assert topics(312) == ["B", "S"]
    assert topics(313) == ["S"]
    system = TopicList.from_json(asker.ask(304).body)
    assert (system.topic_list, system.broker_addr) == (["C", "broker-a"], "10.0.0.1:10911")
    assert asker.ask(216, headers.DeleteTopicRequestHeader("T")).code == 0
    assert topics(206) == ["B", "S", "U"]


def test_key_values_survive_a_restart(asker: Asker, tmp_path: Path) -> None:
    get = headers.GetKVConfigRequestHeader("ns", "k")
    assert asker.ask(101, get).code == 22
    assert asker.ask(100, headers.PutKVConfigRequestHeader("ns", "k", "v=1")).code == 0
    restarted = Asker(tmp_path)
    assert restarted.ask(101, get).ext_fields == {"value": "v=1"}
    assert KVTable.from_json(
        restarted.ask(219, headers.GetKVListByNamespaceRequestHeader("ns")).body
    ).table == {"k": "v=1"}
    for _ in range(2):  # missing or not: 0
        assert restarted.ask(102, headers.DeleteKVConfigRequestHeader("ns", "k")).code == 0
    emptied = Asker(tmp_path).ask(219, headers.GetKVListByNamespaceRequestHeader("ns"))
    assert (emptied.code, emptied.body) == (0, b'{"table":{}}')
    assert asker.ask(219, headers.GetKVListByNamespaceRequestHeader("other")).code == 22


def test_a_key_value_that_cannot_be_written_is_not_there(asker: Asker, tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("a file where the folder should be")
    response = asker.ask(100, headers.PutKVConfigRequestHeader("ns", "k", "v"))
    assert response.code == 1
    assert asker.ask(101, headers.GetKVConfigRequestHeader("ns", "k")).code == 22


def test_own_configuration_is_shown_changed_and_kept(asker: Asker) -> None:
    asker.register()
    asker.ask(100, headers.PutKVConfigRequestHeader("ORDER_TOPIC_CONFIG", "T", "broker-a:8"))
    assert asker.ask(318, body=b"orderMessageEnable=true\nmine=\\u00e9\n").code == 0
    assert asker.route().order_topic_conf == "broker-a:8"
    shown = asker.ask(319).body.decode().splitlines()
    assert {"orderMessageEnable=true", "mine=é", "listenPort=9876"} <= set(shown)
    kept = NamesrvConfig.from_file(asker.config_file)
    assert kept.order_message_enable


@pytest.mark.parametrize("key", ["kvConfigPath", "configStorePath", "configBlackList"])
def test_protected_settings_are_refused(asker: Asker, key: str) -> None:
    response = asker.ask(318, body=f"orderMessageEnable=true\n{key}=/tmp/x\n".encode())
    assert (response.code, response.remark) == (16, "Can not update config in black list.")
    assert not asker.processor.config.order_message_enable


@pytest.mark.foreign
@pytest.mark.parametrize(
    "key", sorted(DEFAULTS.keys() - LIVE - {"kvConfigPath", "configStorePath"})
)
def test_what_a_running_name_server_cannot_take_up_is_refused_whole(asker: Asker, key: str) -> None:
    before = asker.ask(319).body
    value = DEFAULTS[key]
    others = {"failbackTlsMode": "disabled", "failbackAccessFolder": "/elsewhere"}
    others["aclEnable"] = "true"
    others |= dict.fromkeys(("bindAddress", "failbackHttpAddress"), "127.0.0.9")
    text = others.get(key) or str(round(float(value)) + 1)
    response = asker.ask(318, body=f"orderMessageEnable=true\n{key}={text}\n".encode())
    problem = f"{key}: can't change while the name server runs: nothing was changed"
    assert (response.code, response.remark) == (1, problem)
    assert asker.ask(319).body == before
    assert not asker.config_file.exists()


@pytest.mark.foreign
def test_a_change_that_cannot_be_stored_is_refused_whole(asker: Asker) -> None:
    before = asker.ask(319).body
    asker.config_file.mkdir()
    response = asker.ask(318, body=b"orderMessageEnable=true\n")
    problem = f"{asker.config_file} can't be written: is a folder, not a file; nothing was changed"
    assert (response.code, response.remark) == (1, problem)
    assert asker.ask(319).body == before


@pytest.mark.parametrize("body", [b"orderMessageEnable=perhaps", b"a=\\u00zz"])
def test_an_unreadable_setting_changes_nothing(asker: Asker, body: bytes) -> None:
    before = asker.ask(319).body
    assert asker.ask(318, body=body).code == 1
    assert asker.ask(319).body == before
    assert not asker.config_file.exists()


def test_an_unknown_code_is_answered_with_3(asker: Asker) -> None:
    response = asker.ask(901)
    assert (response.code, response.remark) == (3, " request type 901 not supported")


def test_a_oneway_request_is_done_and_not_answered(asker: Asker) -> None:
    header = headers.PutKVConfigRequestHeader("ns", "k", "v")
    request = RemotingCommand.request(100, header, oneway=True)
    assert asker.processor.process(request, "channel") is None
    assert asker.kv_config.get("ns", "k") == "v"


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    code=st.sampled_from(sorted(RequestCode)),
    ext=st.none()
    | st.dictionaries(
        st.sampled_from(["brokerName", "brokerAddr", "clusterName", "brokerId", "topic", "key"]),
        st.text(max_size=5),
    ),
    body=st.binary(max_size=30),
)
def test_hostile_requests_are_answered(
    asker: Asker, code: int, ext: dict[str, str] | None, body: bytes
) -> None:
    asker.ask(code, body=body, ext=ext)
