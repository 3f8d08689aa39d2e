"""Heartbeats, member lists, goodbyes and locks through a whole broker."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from failback.broker.startup import controller
from failback.protocol.body import MessageQueue
from failback.protocol.clients import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumerIdList,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    ProducerData,
    SubscriptionData,
)
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from failback.protocol.route import SubscriptionGroupConfig
from tests.support.brokers.broker_lab import LabClient, broker_lab

NOTIFY = int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)


async def beat(client: LabClient, client_id: str, group: str = "CG") -> RemotingCommand:
    subscription = SubscriptionData("TopicTest", "*", sub_version=1)
    consumer = ConsumerData(group, subscription_data_set=[subscription])
    body = HeartbeatData(client_id, [ProducerData("PG")], [consumer]).to_json()
    return await client.ask(RequestCode.HEART_BEAT, None, body)


async def members(client: LabClient, group: str = "CG") -> list[str]:
    answer = await client.ask(
        RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(group)
    )
    assert answer.code == 0, answer
    assert answer.ext_fields == {}
    return sorted(ConsumerIdList.from_json(answer.body).consumer_id_list)


def notified(client: LabClient) -> list[str]:
    return [
        (each.ext_fields or {})["consumerGroup"]
        for each in client.received
        if each.code == NOTIFY and not each.is_response
    ]


async def test_a_heartbeat_registers_and_says_the_version(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        answer = await beat(client, "id-1")
        assert (answer.code, answer.version, answer.body) == (0, 409, b"")
        assert await members(client) == ["id-1"]
        assert list(lab.controller.clients.producers.groups) == ["PG"]


async def test_a_heartbeat_creates_group_and_retry_topic(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        await beat(lab.connect(), "id-1")
        retry = lab.controller.topics.get("%RETRY%CG")
        assert "CG" in lab.controller.groups.table
    assert retry is not None
    assert (retry.read_queue_nums, retry.write_queue_nums, retry.perm) == (1, 1, 6)


async def test_a_change_is_announced_to_all_before_the_heartbeat_is_answered(
    tmp_path: Path,
) -> None:
    async with broker_lab(tmp_path) as lab:
        first, second = lab.connect(), lab.connect()
        await beat(first, "id-1")
        await beat(second, "id-2")
        await first.turn()
        assert notified(first) == ["CG", "CG"]
        assert [each.code for each in second.received] == [NOTIFY, 0]
        assert second.received[0].is_oneway


async def test_a_group_may_switch_announcements_off(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        quiet = SubscriptionGroupConfig("CG", notify_consumer_ids_changed_enable=False)
        lab.controller.groups.update(quiet)
        client = lab.connect()
        await beat(client, "id-1")
        assert notified(client) == []


async def test_the_broker_may_switch_announcements_off(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, notifyConsumerIdsChangedEnable="false") as lab:
        client = lab.connect()
        await beat(client, "id-1")
        assert notified(client) == []


async def test_a_goodbye_removes_and_announces(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        first, second = lab.connect(), lab.connect()
        await beat(first, "id-1")
        await beat(second, "id-2")
        await first.turn()
        before = len(notified(first))
        header = UnregisterClientRequestHeader("id-2", "PG", "CG")
        answer = await second.ask(RequestCode.UNREGISTER_CLIENT, header)
        await first.turn()
        assert (answer.code, answer.ext_fields) == (0, {})
        assert await members(first) == ["id-1"]
        assert len(notified(first)) == before + 1


async def test_a_lost_connection_is_a_goodbye(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        first, second = lab.connect(), lab.connect()
        await beat(first, "id-1")
        await beat(second, "id-2")
        await first.turn()
        before = len(notified(first))
        second.disconnect()
        await first.turn()
        assert await members(first) == ["id-1"]
        assert len(notified(first)) == before + 1


async def test_an_empty_group_is_an_error_never_an_empty_list(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        answer = await lab.connect().ask(
            RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader("None")
        )
    assert answer.code == 1
    assert answer.remark == "no consumer for this group, None"


async def test_guarded_rules_give_no_list_that_may_lack_members(tmp_path: Path) -> None:
    async def refused(client: LabClient, group: str) -> bool:
        header = GetConsumerListByGroupRequestHeader(group)
        answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        assert answer.code == 0, "an error ends a member of ali-ons that starts"
        return not answer.body

    def ask_in_go(client: LabClient, group: str) -> RemotingCommand:
        header = GetConsumerListByGroupRequestHeader(group)
        request = client.make(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        request.language = "GO"
        client.feed(request.encode())
        return request

    async with broker_lab(tmp_path, failbackGuardConsumerList="true") as lab:
        client = lab.connect()
        await beat(client, "id-1", "known")
        await beat(client, "id-1", "new")
        lab.controller.offsets.commit("known", "TopicTest", 0, 7)
        assert await refused(client, "known")
        assert not await refused(client, "new"), "nobody can be missing in a group without progress"
        lab.controller.config.failback_time_scale = 0.001
        await asyncio.sleep(0.04)
        assert await refused(client, "known"), "no client can know yet that the broker is back"
        lab.controller.clients.registered()
        assert await refused(client, "known")
        unanswered, answered = ask_in_go(client, "known"), ask_in_go(client, "new")
        await client.turn()
        assert client.find_answer(unanswered) is None, "Go takes any other answer for no members"
        assert client.answer_to(answered).body
        await asyncio.sleep(0.04)  # more than 35 ms
        assert await members(client, "known") == ["id-1"]


async def test_a_client_without_heartbeat_is_cut_off(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        silent, lively = lab.connect(), lab.connect()
        await beat(silent, "id-1")
        await beat(lively, "id-2")
        for group in lab.controller.clients.consumers.groups.values():
            group.members[silent.connection].last_update_ms -= 120_001
        lab.controller.clients.close_expired()
        await lively.turn()
        assert silent.transport.aborted
        assert not lively.transport.aborted
        assert await members(lively) == ["id-2"]


@pytest.mark.parametrize(
    "body",
    [b"", b"nonsense", b'{"consumerDataSet":[]}', b'{"clientID":"c","consumerDataSet":5}', b"\xff"],
)
async def test_a_bad_heartbeat_is_refused_with_a_reason(tmp_path: Path, body: bytes) -> None:
    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        answer = await client.ask(RequestCode.HEART_BEAT, None, body)
        assert answer.code == 1
        assert answer.remark
        assert (await beat(client, "id-1")).code == 0


@pytest.mark.parametrize(("kind", "code"), [("TAG", 0), ("SQL92", 1)])
async def test_an_expression_that_can_not_be_evaluated_is_refused_at_the_start(
    tmp_path: Path, kind: str, code: int
) -> None:
    subscription = SubscriptionData("TopicTest", "a > 1", expression_type=kind)
    async with broker_lab(tmp_path) as lab:
        answer = await lab.connect().ask(
            RequestCode.CHECK_CLIENT_CONFIG,
            None,
            CheckClientRequestBody("id-1", "CG", subscription).to_json(),
        )
    assert answer.code == code


async def test_ordered_consumers_lock_queues(tmp_path: Path) -> None:
    queues = [MessageQueue("TopicTest", "broker-a", queue_id) for queue_id in (0, 1)]

    def body(client_id: str, wanted: list[MessageQueue]) -> bytes:
        return LockBatchRequestBody("CG", client_id, wanted).to_json()

    async with broker_lab(tmp_path) as lab:
        client = lab.connect()
        first = await client.ask(RequestCode.LOCK_BATCH_MQ, None, body("a", queues[:1]))
        second = await client.ask(RequestCode.LOCK_BATCH_MQ, None, body("b", queues))
        released = await client.ask(RequestCode.UNLOCK_BATCH_MQ, None, body("a", queues))
        third = await client.ask(RequestCode.LOCK_BATCH_MQ, None, body("b", queues))
    held = [
        LockBatchResponseBody.from_json(each.body).lock_ok_mq_set for each in (first, second, third)
    ]
    assert held == [queues[:1], queues[1:], queues]
    assert released.code == 0


@pytest.mark.parametrize(("rules", "kept"), [("guarded", True), ("compat", False)])
async def test_a_wall_clock_that_is_set_forward_drops_no_client_under_guarded_rules(
    rules: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 0
    monkeypatch.setattr(controller, "wall_ms", lambda: time.time_ns() // 1_000_000 + ahead)
    async with broker_lab(tmp_path, failbackRules=rules) as lab:
        client = lab.connect()
        assert (await beat(client, "c1")).code == 0
        locks = LockBatchRequestBody("CG", "c1", [MessageQueue("T", "broker-a", 0)]).to_json()
        assert (await client.ask(RequestCode.LOCK_BATCH_MQ, None, locks)).code == 0
        ahead = 180_000
        lab.controller.clients.close_expired()
        assert client.transport.aborted is not kept
        other = LockBatchRequestBody("CG", "c2", [MessageQueue("T", "broker-a", 0)]).to_json()
        answer = await lab.connect().ask(RequestCode.LOCK_BATCH_MQ, None, other)
        assert (b'"lockOKMQSet":[]' in answer.body) is kept
