"""What the accounts of plain_acl.yml let through, in every way into a broker."""

from __future__ import annotations

import copy
import itertools
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from failback.broker.processors.compose import handled_codes
from failback.client.remoting.guarded.signing import AccessKey, sign
from failback.protocol.clients import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from failback.protocol.codes import TRANSACTION_PREPARED, RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError
from failback.protocol.headers import Header
from tests.support.brokers.broker_lab import (
    BrokerLab,
    LabClient,
    broker_lab,
    pull_header,
    send_header,
)

ADMIN = AccessKey("admin-key", "hush-of-the-admin")
OPS = AccessKey("ops-key-1", "hush-of-operations")
NO_RIGHTS = AccessKey("bare-key", "hush-of-the-bare")
ACL = """globalWhiteRemoteAddresses: [10.9.*.*]
accounts:
- {accessKey: admin-key, secretKey: hush-of-the-admin, admin: true}
- {accessKey: bare-key, secretKey: hush-of-the-bare}
- accessKey: ops-key-1
  secretKey: hush-of-operations
  topicPerms: [TopicTest=PUB|SUB]
  groupPerms: [CG=SUB]
"""
REFUSED = "org.apache.rocketmq.acl.common.AclException: "


@asynccontextmanager
async def lab_of(root: Path, acl: str = ACL, **settings: object) -> AsyncIterator[BrokerLab]:
    (root / "plain_acl.yml").write_text(acl)
    folder = {"aclEnable": "true", "failbackAccessFolder": root}
    async with broker_lab(root, **folder | settings) as lab:
        yield lab


async def ask(client: LabClient, key: AccessKey | None, request: RemotingCommand) -> str:
    """Send a request, signed; return the remark of its answer."""
    if key is not None:
        sign(request, key)
    client.feed(request.encode())
    await client.turn()
    return client.answer_to(request).remark or ""


# --- every code, every kind of credentials, both ports, two-way and one-way ---------------------

BEAT = HeartbeatData(
    "stranger",
    [ProducerData("PG")],
    [ConsumerData("CG2", subscription_data_set=[SubscriptionData("TopicTest", sub_version=1)])],
).to_json()
EXT = {
    "topic": "TopicTest",
    "group": "CG",
    "groupName": "CG",
    "consumerGroup": "CG",
    "producerGroup": "PG",
    "clientID": "stranger",
    "srcGroup": "CG",
    "destGroup": "CG2",
    "queueId": "0",
    "commitOffset": "1",
    "offset": "0",
    "timestamp": "0",
    "isForce": "true",
    "defaultTopic": "TBW102",
    "readQueueNums": "9",
    "writeQueueNums": "9",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
    "accessKey": "stranger-key",
    "secretKey": "hush-of-strangers",
    "globalWhiteAddrs": "*",
}
"""Fields by which most requests would do something."""
BODIES = {
    RequestCode.HEART_BEAT: BEAT,
    RequestCode.UPDATE_BROKER_CONFIG: b"fileReservedTime=71\n",
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: b'{"groupName":"CG2"}',
    RequestCode.LOCK_BATCH_MQ: (
        b'{"consumerGroup":"CG","clientId":"x","mqSet":'
        b'[{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}]}'
    ),
}
CREDENTIALS = ("none", "unknown", "wrong", "altered", "few")
CODES = sorted({handled.code for _, handled in handled_codes()})


def request_of(client: LabClient, code: int, how: str, *, oneway: bool) -> RemotingCommand:
    header: Header | None = None
    ext = dict(EXT)
    if code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        header, ext = send_header(), {}
    elif code in (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE):
        header, ext = pull_header(commit_offset=1), {}
    body = BODIES.get(RequestCode(code), b"hello")
    request = client.make(code, header, body, ext=ext, oneway=oneway)
    if how == "unknown":
        sign(request, AccessKey("stranger-key", "hush-of-strangers"))
    elif how == "wrong":
        sign(request, AccessKey(ADMIN.access_key, "hush-of-strangers"))
    elif how == "altered":
        sign(request, ADMIN)
        request.body += b" "
    elif how == "few":
        sign(request, NO_RIGHTS)
    return request


def state(lab: BrokerLab, root: Path) -> str:
    """What a request may change in a broker."""
    found, parts = lab.controller, lab.controller.parts
    return json.dumps(
        [
            found.config.to_properties(),
            repr(found.topics.table),
            repr(found.groups.table),
            repr(found.offsets.table),
            repr(sorted(parts.consumers.groups)),
            repr(sorted(parts.producers.groups)),
            repr(sorted(vars(parts.locks).items(), key=str)),
            found.store.max_physical_offset,
            found.store.pending_bytes,
            (root / "plain_acl.yml").read_text(),
        ]
    )


OF_SIGNERS = frozenset(CODES) - {
    code
    for code in CODES
    if code
    in {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.PULL_MESSAGE,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
    }
}
"""Codes for which 4.9.8 asks for a signature only."""


@pytest.mark.parametrize("how", CREDENTIALS)
async def test_what_is_not_allowed_changes_nothing(how: str, tmp_path: Path) -> None:
    async with lab_of(tmp_path) as lab:
        admin = lab.connect()
        assert await ask(admin, ADMIN, admin.make(RequestCode.SEND_MESSAGE_V2, send_header())) == ""
        before = state(lab, tmp_path)
        for fast, oneway in itertools.product((False, True), repeat=2):
            client = lab.connect(fast=fast)
            for code in CODES:
                if how == "few" and code in OF_SIGNERS:
                    continue
                request = request_of(client, code, how, oneway=oneway)
                client.feed(request.encode())
                await client.turn()
                if not oneway:
                    said = client.answer_to(request)
                    assert (said.code, (said.remark or "")[: len(REFUSED)]) == (1, REFUSED), code
                assert state(lab, tmp_path) == before, RequestCode(code)
            assert len(client.received) == (0 if oneway else len(client.received))
        refused = sum(lab.controller.access.refused.values())  # type: ignore[union-attr]
        assert refused == 4 * len([c for c in CODES if how != "few" or c not in OF_SIGNERS])


async def test_the_same_requests_change_something_where_they_are_allowed(tmp_path: Path) -> None:
    changing = 0
    for code in CODES:
        root = tmp_path / str(code)
        root.mkdir()
        async with lab_of(root) as lab:
            client = lab.connect()
            before = state(lab, root)
            request = request_of(client, code, "none", oneway=False)
            sign(request, ADMIN)
            client.feed(request.encode())
            await client.turn()
            changing += state(lab, root) != before
    assert changing >= 10


# --- one JSON header, two readers -----------------------------------------------------------------


async def test_a_header_that_reads_in_two_ways_does_not_get_around(tmp_path: Path) -> None:
    """The kernel and the fast decoders may not see another request than the one that is checked."""
    for head in [
        b'{"code":310,"extFields":%s,"flag":0,"language":"JAVA","opaque":7,"version":1,"code":36}',
        b'{"code":310,"extFields":%s,"flag":0,"language":"JAVA","opaque":7,"version":1,"x":{}}',
        b'{"code":310,"extFields":%s,"flag":0,"language":"JAVA","opaque":7,"version":1,'
        b'"extFields":{"b":"TopicTest"}}',
    ]:
        async with lab_of(tmp_path) as lab:
            client = lab.connect()
            request = client.make(RequestCode.SEND_MESSAGE_V2, send_header(topic="Hidden"))
            sign(request, OPS)
            fields = json.dumps(request.ext_fields).encode()
            header = head % fields
            frame = len(header) + 4
            client.feed(frame.to_bytes(4) + len(header).to_bytes(4) + header)
            await client.turn()
            assert "Hidden" not in lab.controller.topics.table
            assert lab.controller.store.max_physical_offset == 0


async def test_sends_that_a_run_takes_end_at_the_first_that_is_refused(tmp_path: Path) -> None:
    async with lab_of(tmp_path) as lab:
        client = lab.connect()
        assert await ask(client, OPS, client.make(310, send_header())) == ""
        requests = [client.make(310, send_header()) for _ in range(6)]
        for at, request in enumerate(requests):
            sign(request, OPS)
            if at == 3:
                request.body += b"!"
        client.feed(b"".join(request.encode() for request in requests))
        await client.turn()
        codes = [client.answer_to(request).code for request in requests]
        assert codes == [0, 0, 0, 1, 0, 0]
        assert lab.controller.store.max_queue_offset("TopicTest", 0) == 6
        assert lab.controller.access is not None
        assert dict(lab.controller.access.refused) == {("ops-key-1", 310, "enforce"): 1}


# --- modes, white addresses, rights ---------------------------------------------------------------


@pytest.mark.parametrize(("mode", "stored", "counted"), [("warn", 2, 1), ("off", 2, 0)])
async def test_warn_counts_what_enforce_refuses(
    mode: str, stored: int, counted: int, tmp_path: Path
) -> None:
    async with lab_of(tmp_path, failbackAclMode=mode) as lab:
        client = lab.connect()
        for key in (None, ADMIN):
            request = client.make(RequestCode.SEND_MESSAGE_V2, send_header())
            assert REFUSED not in await ask(client, key, request)
        assert lab.controller.store.max_queue_offset("TopicTest", 0) == stored
        assert lab.controller.access is not None
        assert dict(lab.controller.access.refused) == (
            {("", 310, mode): counted} if counted else {}
        )


async def test_the_mode_changes_while_the_broker_runs(tmp_path: Path) -> None:
    async with lab_of(tmp_path, failbackAclMode="warn", failbackAdminFrom="10.0.0.1") as lab:
        client = lab.connect()
        body = b"failbackAclMode=enforce\n"
        assert await ask(client, None, client.make(25, body=body)) == ""
        assert REFUSED in await ask(client, None, client.make(25, body=b"failbackAclMode=off\n"))
        assert await ask(client, ADMIN, client.make(25, body=b"failbackAclMode=off\n")) == ""


async def test_a_white_address_needs_no_key(tmp_path: Path) -> None:
    for peer, code in [("10.9.1.1", 0), ("::ffff:10.9.1.1", 0), ("10.8.1.1", 1), ("::1", 1)]:
        async with lab_of(tmp_path) as lab:
            client = lab.connect((peer, 5))
            assert (await client.send()).code == code


async def test_guarded_rules_keep_more_for_administrators(tmp_path: Path) -> None:
    outcomes, no_white = {}, {"globalWhiteAddrs": "10.7.7.7"}
    for rules in ("compat", "guarded"):
        root = tmp_path / rules
        root.mkdir()
        async with lab_of(root, failbackRules=rules) as lab:
            client = lab.connect()
            for code in CODES:
                said = await ask(client, NO_RIGHTS, client.make(code, ext=EXT | no_white))
                outcomes[rules, code] = REFUSED in said
    more = {
        RequestCode(code).name
        for code in CODES
        if outcomes["guarded", code] and not outcomes["compat", code]
    }
    assert more == {
        "CLEAN_EXPIRED_CONSUMEQUEUE",
        "CLEAN_UNUSED_TOPIC",
        "CLONE_GROUP_OFFSET",
        "CONSUME_MESSAGE_DIRECTLY",
        "DELETE_ACL_CONFIG",
        "DELETE_EXPIRED_COMMITLOG",
        "GET_ALL_CONSUMER_OFFSET",
        "GET_BROKER_CONFIG",
        "INVOKE_BROKER_TO_RESET_OFFSET",
        "LOCK_BATCH_MQ",
        "QUERY_CONSUMER_OFFSET",
        "UNLOCK_BATCH_MQ",
        "UPDATE_AND_CREATE_ACL_CONFIG",
        "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG",
    }


async def test_under_guarded_rules_a_record_is_its_topics(tmp_path: Path) -> None:
    """What names a record by its offset alone is asked for the right to the record's topic."""
    async with lab_of(tmp_path, failbackRules="guarded") as lab:
        client = lab.connect()
        outcomes = {}
        for topic in ("TopicTest", "Hidden"):
            for flag in (0, TRANSACTION_PREPARED):
                text = f"TRAN_MSG\x01true\x02PGROUP\x01PG{topic}\x02" if flag else ""
                header = send_header(topic=topic, sys_flag=flag, properties=text)
                at = lab.controller.store.max_physical_offset
                assert await ask(client, ADMIN, client.make(310, header)) == ""
                code = RequestCode.END_TRANSACTION if flag else RequestCode.VIEW_MESSAGE_BY_ID
                ext = {"offset": str(at), "commitLogOffset": str(at), "producerGroup": f"PG{topic}"}
                ext |= {
                    "commitOrRollback": "12",
                    "tranStateTableOffset": "0",
                    "fromTransactionCheck": "false",
                    "msgId": "x",
                }
                outcomes[topic, code] = REFUSED in await ask(
                    client, OPS, client.make(code, ext=ext)
                )
        assert outcomes == {
            ("TopicTest", RequestCode.VIEW_MESSAGE_BY_ID): False,
            ("TopicTest", RequestCode.END_TRANSACTION): False,
            ("Hidden", RequestCode.VIEW_MESSAGE_BY_ID): True,
            ("Hidden", RequestCode.END_TRANSACTION): True,
        }


# --- files ----------------------------------------------------------------------------------------


def write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("accounts: {", "line 1 is no YAML"),
        ("- a", "holds no settings such as accounts:"),
        ("accounts: 5", "accounts: must be a list"),
        ("accounts: [5]", "accounts[0]: is no account"),
        ("accounts: [{accessKey: short, secretKey: hush-hush}]", "accounts[0]: accessKey: must"),
        ("accounts: [{accessKey: long-key, secretKey: hush}]", "accounts[0]: secretKey: must"),
        ("accounts: [{accessKey: long-key, secretKey: 1.5e9}]", "secretKey: must be a text"),
        (ACL + "- {accessKey: bare-key, secretKey: hush-hush}", "bare-key is there twice"),
        ("globalWhiteRemoteAddresses: [10.0.0.256]", "10.0.0.256 is no address"),
        (ACL.replace("CG=SUB", "CG"), "groupPerms: must be NAME=RIGHT"),
        (ACL + "  admin: maybe", "admin: must be true or false"),
        ("a: 1\n---\nb: 2", "more than one document"),
        ("a: &a [*a]", "parts in one document"),
    ],
)
async def test_a_bad_file_keeps_the_rules_and_starts_no_broker(
    text: str, problem: str, tmp_path: Path
) -> None:
    async with lab_of(tmp_path) as lab:
        access = lab.controller.access
        assert access is not None
        write(tmp_path / "plain_acl.yml", text)
        access.files.look()
        assert problem in access.files.problem
        assert "hush-" not in access.files.problem
        client = lab.connect()
        assert await ask(client, ADMIN, client.make(RequestCode.GET_BROKER_CONFIG)) == ""
        write(tmp_path / "plain_acl.yml", ACL.replace("the-admin", "the-admins"))
        access.files.look()
        assert access.files.problem == ""
        assert REFUSED in await ask(client, ADMIN, client.make(RequestCode.GET_BROKER_CONFIG))
    with pytest.raises(ConfigError, match=r"plain_acl\.yml"):
        async with lab_of(tmp_path, text):
            pass


async def test_a_mounted_secret_changes_by_its_link(tmp_path: Path) -> None:
    """The time and the size of the file may stay the same."""
    mount = tmp_path / "mount"
    mount.mkdir()
    for name, secret in (("..1", "hush-one"), ("..2", "hush-two")):
        (mount / name).mkdir()
        text = f"accounts: [{{accessKey: admin-key, secretKey: {secret}, admin: true}}]"
        write(mount / name / "plain_acl.yml", text)
        os.utime(mount / name / "plain_acl.yml", (1, 1))
    (mount / "..data").symlink_to("..1")
    (mount / "plain_acl.yml").symlink_to("..data/plain_acl.yml")
    (mount / "acl").symlink_to(".")
    async with lab_of(tmp_path, failbackAccessFolder=mount) as lab:
        client = lab.connect()
        old, new = AccessKey("admin-key", "hush-one"), AccessKey("admin-key", "hush-two")
        assert await ask(client, old, client.make(RequestCode.GET_BROKER_CONFIG)) == ""
        (mount / "..new").symlink_to("..2")
        (mount / "..new").rename(mount / "..data")
        lab.controller.access.files.look()  # type: ignore[union-attr]
        assert await ask(client, new, client.make(RequestCode.GET_BROKER_CONFIG)) == ""
        assert REFUSED in await ask(client, old, client.make(RequestCode.GET_BROKER_CONFIG))


async def test_accounts_are_changed_by_requests(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    async with lab_of(tmp_path) as lab:
        client = lab.connect()
        made = AccessKey("made-key", "hush-of-made")
        ext = {"accessKey": "made-key", "secretKey": "hush-of-made", "admin": "true"}
        assert await ask(client, ADMIN, client.make(50, ext=ext)) == ""
        assert await ask(client, made, client.make(RequestCode.UPDATE_BROKER_CONFIG)) == ""
        changed = copy.deepcopy(ext) | {"admin": "false", "topicPerms": "A=PUB,B=SUB"}
        assert await ask(client, ADMIN, client.make(50, ext=changed)) == ""
        said = await ask(client, made, client.make(RequestCode.UPDATE_BROKER_CONFIG))
        assert "Need admin permission for request code=25, but accessKey=made-key is not" in said
        assert await ask(client, ADMIN, client.make(51, ext={"accessKey": "made-key"})) == ""
        said = await ask(client, made, client.make(RequestCode.GET_BROKER_CONFIG))
        assert "No acl config for made-key" in said
        white = {"globalWhiteAddrs": "10.0.0.*,10.1.1.1"}
        assert await ask(client, ADMIN, client.make(53, ext=white)) == ""
        assert await ask(client, None, client.make(RequestCode.GET_BROKER_CONFIG)) == ""
        answer = await client.ask(52)
        assert json.loads((answer.ext_fields or {})["version"])["counter"] == 4
        for ext, problem in (
            ({"accessKey": "tiny", "secretKey": "hush-of-made"}, "length should longer than 6"),
            ({**changed, "topicPerms": "A"}, "Parse Resource format error for A"),
            ({**changed, "topicPerms": "A=ALL"}, "Parse resource permission error for A=ALL"),
        ):
            answer = await client.ask(50, ext=ext)
            assert (answer.code, problem in (answer.remark or "")) == (209, True), answer
        answer = await client.ask(51, ext={"accessKey": "nobodys"})
        assert answer.code == 210
        answer = await client.ask(
            53, ext={"globalWhiteAddrs": "*", "aclFileFullPath": "/etc/x.yml"}
        )
        assert answer.code == 211
        assert (await client.ask(54)).code == 3
        if os.geteuid():
            file.chmod(0o400)
            assert (await client.ask(50, ext=changed)).code == 209
