"""The same requests at a broker of Apache 4.9.7 and at ours, by one plain_acl.yml: same outcomes.

``acl`` of 4.9.7 differs from that of 4.9.8 in how YAML tags are read, and in a list that other
threads may change while it is read; both brokers have no tags and no such change here.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from failback.client.remoting.guarded.signing import SIGNATURE, AccessKey, sign
from failback.protocol.clients import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.frames import FrameReader
from tests.support.common.polling import SCALE
from tests.support.java.admin_shell import AdminShell
from tests.support.java.apache import (
    Broker,
    Engine,
    NameServer,
    java_program,
    server_home,
)

ADMIN = AccessKey("admin-key", "hush-of-the-admin")
OPS = AccessKey("ops-key-1", "hush-of-operations")
READER = AccessKey("reader-key", "1234567890")
WHITE = AccessKey("white-key", "hush-of-the-white")
ACL = """globalWhiteRemoteAddresses: [10.10.103.*, 192.168.0.1-20]
accounts:
- accessKey: admin-key
  secretKey: hush-of-the-admin
  whiteRemoteAddress:
  admin: true
- accessKey: ops-key-1
  secretKey: hush-of-operations
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [orders=PUB|SUB, "hidden=DENY", told= SUB]
  groupPerms: [billing=SUB, closed=DENY]
- accessKey: reader-key
  secretKey: 1234567890
  defaultTopicPerm: SUB
  defaultGroupPerm: SUB
- accessKey: white-key
  secretKey: hush-of-the-white
  whiteRemoteAddress: 127.0.0.*
"""
_SEND = {
    "a": "PG",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "1700000000000",
    "h": "0",
    "i": "",
    "j": "0",
    "k": "false",
    "m": "false",
}
_PULL = {
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "1",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "*",
    "subVersion": "0",
    "expressionType": "TAG",
}


def _beat(group: str, topic: str) -> bytes:
    subscription = SubscriptionData(topic, sub_version=1)
    consumer = ConsumerData(group, subscription_data_set=[subscription])
    return HeartbeatData("me", [ProducerData("PG")], [consumer]).to_json()


@dataclass(frozen=True)
class Order:
    """A request as it is before it is signed."""

    code: int
    ext: dict[str, str]
    body: bytes = b""

    def made(self) -> RemotingCommand:
        return RemotingCommand.request(self.code, ext=self.ext, body=self.body)


def _send(topic: str) -> Order:
    return Order(RequestCode.SEND_MESSAGE_V2, _SEND | {"b": topic}, b"hello")


def _pull(topic: str, group: str) -> Order:
    return Order(RequestCode.PULL_MESSAGE, _PULL | {"topic": topic, "consumerGroup": group})


ORDERS = {
    "send orders": _send("orders"),
    "send hidden": _send("hidden"),
    "send told": _send("told"),
    "send other": _send("other"),
    "send retry": _send("%RETRY%billing"),
    "send retry of a closed group": Order(
        RequestCode.SEND_MESSAGE_V2, _SEND | {"a": "closed", "b": "%RETRY%closed"}, b"x"
    ),
    "send the old way": Order(
        RequestCode.SEND_MESSAGE,
        {
            "producerGroup": "PG",
            "topic": "hidden",
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": "4",
            "queueId": "0",
            "sysFlag": "0",
            "bornTimestamp": "1700000000000",
            "flag": "0",
        },
        b"hello",
    ),
    "send a trace": _send("RMQ_SYS_TRACE_TOPIC"),
    "pull": _pull("orders", "billing"),
    "pull of a closed group": _pull("orders", "closed"),
    "pull of a hidden topic": _pull("hidden", "billing"),
    "query": Order(
        RequestCode.QUERY_MESSAGE,
        {
            "topic": "hidden",
            "key": "k",
            "maxNum": "1",
            "beginTimestamp": "0",
            "endTimestamp": "1",
        },
    ),
    "query by unique key": Order(
        RequestCode.QUERY_MESSAGE,
        {
            "topic": "orders",
            "key": "7F00000100002A9F0000000000000000",
            "maxNum": "1",
            "beginTimestamp": "0",
            "endTimestamp": "9223372036854775807",
            "_UNIQUE_KEY_QUERY": "true",
        },
    ),
    "heartbeat": Order(RequestCode.HEART_BEAT, {}, _beat("billing", "orders")),
    "heartbeat of a closed group": Order(RequestCode.HEART_BEAT, {}, _beat("closed", "orders")),
    "heartbeat for a hidden topic": Order(RequestCode.HEART_BEAT, {}, _beat("billing", "hidden")),
    "unregister": Order(
        RequestCode.UNREGISTER_CLIENT, {"clientID": "me", "consumerGroup": "closed"}
    ),
    "members": Order(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "closed"}),
    "commit": Order(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "billing", "topic": "hidden", "queueId": "0", "commitOffset": "0"},
    ),
    "offset": Order(
        RequestCode.QUERY_CONSUMER_OFFSET,
        {"consumerGroup": "closed", "topic": "hidden", "queueId": "0"},
    ),
    "create a topic": Order(
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        {
            "topic": "made",
            "defaultTopic": "TBW102",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        },
    ),
    "delete a topic": Order(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "not-there"}),
    "change settings": Order(RequestCode.UPDATE_BROKER_CONFIG, {}, b"fileReservedTime=71\n"),
    "settings": Order(RequestCode.GET_BROKER_CONFIG, {}),
    "delete a group": Order(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "not-there"}),
    "accounts of all": Order(54, {}),
    "no such request": Order(9_999, {}),
}


def _credentials(order: Order, how: str) -> RemotingCommand:
    request = order.made()
    keys = {"admin": ADMIN, "ops": OPS, "reader": READER, "white": WHITE}
    if how in keys:
        sign(request, keys[how])
    elif how == "unknown":
        sign(request, AccessKey("unknown-key", "hush-of-nobody"))
    elif how == "wrong secret":
        sign(request, AccessKey("ops-key-1", "hush-of-somebody"))
    elif how == "wrong secret of a white address":
        sign(request, AccessKey("white-key", "hush-of-somebody"))
    elif how == "altered body":
        sign(request, OPS)
        request.body += b"!"
    elif how == "altered field":
        sign(request, OPS)
        request.ext_fields = {**(request.ext_fields or {}), "more": "1"}
    elif how == "no signature":
        sign(request, OPS)
        (request.ext_fields or {}).pop(SIGNATURE)
    return request


HOW = (
    "nothing",
    "unknown",
    "wrong secret",
    "wrong secret of a white address",
    "altered body",
    "altered field",
    "no signature",
    "admin",
    "ops",
    "reader",
    "white",
)


def _said(remark: str | None) -> str:
    """Return a refusal without the place in the code that its end names."""
    text = remark or ""
    return text.rpartition(", ")[0] if "AclException" in text else ""


@dataclass(frozen=True)
class Guarded:
    """A broker with accounts."""

    broker: Broker
    acl: Path

    def accounts(self) -> tuple[list[str], dict[str, dict[str, object]], int]:
        """Return the file's white addresses, its accounts, and how often it was changed."""
        found = YAML(typ="safe", pure=True).load(self.acl.read_text())
        accounts = {each["accessKey"]: each for each in found["accounts"]}
        version = found.get("dataVersion", [{"counter": 0}])[0]["counter"]
        return found["globalWhiteRemoteAddresses"], accounts, version


def _start(engine: Engine, folder: Path, namesrv: str) -> Guarded:
    broker = Broker(engine, folder, namesrv, name=engine, settings={"aclEnable": "true"})
    if engine == "apache":
        shutil.copytree(server_home() / "home", folder / "home")
        broker.home = folder / "home"
        acl = broker.home / "conf" / "plain_acl.yml"
    else:
        acl = folder / "plain_acl.yml"
    acl.parent.mkdir(parents=True, exist_ok=True)
    acl.write_text(ACL)
    tools = f"accessKey: {ADMIN.access_key}\nsecretKey: {ADMIN.secret_key}\n"
    acl.with_name("tools.yml").write_text(tools)
    broker.start()
    return Guarded(broker, acl)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Guarded]]:
    folder = tmp_path_factory.mktemp("acl")
    server_home()
    namesrv = NameServer("apache", folder / "ns")
    started: dict[str, Guarded] = {}
    try:
        namesrv.start()
        for engine in ("apache", "failback"):
            started[engine] = _start(engine, folder / engine, namesrv.address)
        yield started
    finally:
        for each in started.values():
            each.broker.process.dispose()
        namesrv.process.dispose()


async def _outcomes(address: str) -> dict[tuple[str, str], tuple[int, str]]:
    """Ask one after the other, without our client, which puts refusals in words of its own."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    found, frames = {}, FrameReader()
    for name, how in itertools.product(ORDERS, HOW):
        writer.write(_credentials(ORDERS[name], how).encode())
        answer = None
        async with asyncio.timeout(10 * SCALE):
            while answer is None or not answer.is_response:  # a broker tells members of changes
                while (frame := frames.next_frame()) is None:
                    frames.receive_data(await reader.read(1 << 16))
                answer = RemotingCommand.from_frame(frame)
        found[name, how] = answer.code, _said(answer.remark)
    writer.close()
    return found


def test_each_request_has_the_same_outcome(both: dict[str, Guarded]) -> None:
    apache, ours = (
        asyncio.run(_outcomes(both[engine].broker.address)) for engine in ("apache", "failback")
    )
    refused = {key for key, (_, text) in apache.items() if text}
    assert len(refused) > 100
    for (name, how), (_, text) in ours.items():
        # Apache's decodes a heartbeat before it looks at the signature, ours after it.
        if name.startswith("heartbeat") and how == "altered body":
            assert "Check signature failed" in text
            assert apache.pop((name, how))[1]
    different = {
        key: (apache[key], ours[key])
        for key in apache
        if apache[key][1] != ours[key][1] or (apache[key][1] and apache[key][0] != ours[key][0])
    }
    assert different == {}


@pytest.fixture
def shell(both: dict[str, Guarded], tmp_path: Path) -> Iterator[AdminShell]:
    """mqadmin, which signs by tools.yml of Apache's home."""
    found = AdminShell(tmp_path / "mqadmin", both["apache"].broker.home)
    yield found
    found.close()


@pytest.mark.long
def test_mqadmin_and_java_clients(
    both: dict[str, Guarded], shell: AdminShell, tmp_path: Path
) -> None:
    """An account is made, used, given less, and taken away, all while the brokers run."""

    def at_both(*words: str) -> dict[str, str]:
        return {
            engine: shell.run(*words, "-b", each.broker.address).out
            for engine, each in both.items()
        }

    def sent(engine: str, topic: str) -> str:
        namesrv = both[engine].broker.namesrv
        process = java_program(
            tmp_path / f"{engine}-{topic}",
            "Producer",
            namesrv=namesrv,
            topic=topic,
            count=1,
            retries=0,
            accessKey="made-key-1",
            secretKey="hush-of-the-made",
        )
        process.start()
        try:
            return process.wait_for(" 0 ")  # "sent 0 SEND_OK ...", or "failed 0 ..."
        finally:
            process.dispose()

    for engine, each in both.items():
        for topic in ("open", "shut"):
            words = ("-t", f"{topic}-{engine}", "-r", "1", "-w", "1", "-b", each.broker.address)
            shell.run("updateTopic", *words)
    rights = ",".join(f"open-{engine}=PUB" for engine in both)
    account = ("-a", "made-key-1", "-s", "hush-of-the-made", "-m", "false", "-i", "SUB")
    at_both("updateAclConfig", *account, "-t", rights, "-w", "10.7.7.*")
    for engine in both:
        assert sent(engine, f"open-{engine}").startswith("sent"), engine
        refused = sent(engine, f"shut-{engine}")
        assert f"No default permission for topic:shut-{engine}" in refused
    at_both("updateAclConfig", *account, "-t", "other=PUB", "-g", "billing=SUB")
    at_both("updateGlobalWhiteAddr", "-g", "10.1.1.1,10.2.2.*")
    for engine in both:
        assert f"No default permission for topic:open-{engine}" in sent(engine, f"open-{engine}")
    apache, ours = both["apache"].accounts(), both["failback"].accounts()
    assert apache == ours
    at_both("deleteAclConfig", "-a", "made-key-1")
    for engine in both:
        assert "No acl config for made-key-1" in sent(engine, f"open-{engine}")
    versions = at_both("clusterAclConfigVersion")
    for engine, out in versions.items():
        assert engine in out
        assert both[engine].broker.address in out
    assert both["apache"].accounts() == both["failback"].accounts()
