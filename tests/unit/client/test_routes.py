"""What a route answer changes, and what leaves everything as it was."""

from __future__ import annotations

import asyncio

import pytest

from failback.client.errors import RouteQueryFailed
from failback.client.model import Message
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from tests.support.clients.client_lab import GROUP, TOPIC, Lab
from tests.support.clients.fake_cluster import FakeNameServer
from tests.support.common.virtual_time import now, until, virtual_time


@virtual_time
async def test_routes_are_polled_every_30_s_for_all_topics() -> None:
    async with Lab() as lab:
        lab.pair()
        await lab.start()
        await asyncio.sleep(5)
        lab.name_server.requests.clear()
        await asyncio.sleep(60)
        asked = [
            (round(r.time), r.ext["topic"])
            for r in lab.name_server.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        ]
        topics = {TOPIC, f"%RETRY%{GROUP}", "TBW102"}
        assert {topic for _, topic in asked} == topics
        assert {time for time, _ in asked} == {30, 60}


@virtual_time
async def test_topic_not_exist_changes_nothing() -> None:
    """A lone broker that died: its queues are kept and everything waits."""
    async with Lab() as lab:
        (master,) = lab.pair()
        member = await lab.start()
        await until(lambda: len(member.consumer.held_queues) == 2)
        before = dict(member.consumer.held_queues)
        master.kill()
        await asyncio.sleep(100)
        assert dict(member.consumer.held_queues) == before
        assert list(member.consumer.instance.brokers) == [("broker-a", 0, master.addr)]


@virtual_time
async def test_a_route_without_a_broker_takes_its_queues_at_the_next_rebalance() -> None:
    async with Lab() as lab:
        lab.pair("broker-a")
        (b,) = lab.pair("broker-b")
        member = await lab.start()
        await until(lambda: len(member.consumer.held_queues) == 4)
        b.kill()
        await until(lambda: len(member.consumer.held_queues) == 2, within=51)
        assert {queue.broker_name for queue in member.consumer.held_queues} == {"broker-a"}
        assert {row.reason for row in member.hook.of("assign_end")} == {"REBALANCE"}


@virtual_time
async def test_a_route_with_only_the_slave_keeps_the_queues() -> None:
    async with Lab() as lab:
        master, slave = lab.pair(slaves=1)
        member = await lab.start()
        await until(lambda: len(member.consumer.held_queues) == 2)
        master.kill()
        await asyncio.sleep(100)
        assert member.hook.of("assign_end") == []
        assert list(member.consumer.instance.brokers) == [("broker-a", 1, slave.addr)]


@virtual_time
async def test_a_name_server_that_is_gone_ends_the_poll_round_and_keeps_everything() -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        member = await lab.start()
        await until(lambda: len(member.consumer.held_queues) == 2)
        lab.name_server.stop()
        with pytest.raises(RouteQueryFailed):
            await member.consumer.instance.refresh_route(TOPIC, trigger="test")
        await asyncio.sleep(65)
        assert len(member.consumer.held_queues) == 2
        lab.name_server.start()
        master.kill()
        await asyncio.sleep(1)
        assert TOPIC in member.consumer.instance.routes


@virtual_time
async def test_a_start_without_a_name_server_fails_and_leaves_nothing_behind() -> None:
    async with Lab() as lab:
        lab.pair()
        lab.name_server.stop()
        member = lab.member()
        with pytest.raises(RouteQueryFailed):
            await member.consumer.start()
        assert {task for task in asyncio.all_tasks() if task is not asyncio.current_task()} == set()


@virtual_time
async def test_one_name_server_is_kept_until_it_refuses_then_the_next_is_asked() -> None:
    async with Lab() as lab:
        lab.pair()
        first, second = lab.name_server, FakeNameServer("10.9.0.2:9876")
        second.registered, second.topics = first.registered, first.topics
        second.start()
        lab.switches["namesrv_addrs"] = (first.addr, second.addr)
        await lab.start()
        await asyncio.sleep(65)
        asked, other = (first, second) if first.requests else (second, first)
        assert other.requests == []
        asked.stop()
        await asyncio.sleep(30)
        assert other.requests
        second.stop()


@virtual_time
async def test_a_changed_route_is_logged_once_with_its_trigger() -> None:
    async with Lab() as lab:
        master, _ = lab.pair(slaves=1)
        member = await lab.start()
        await asyncio.sleep(5)
        rows = member.hook.of("route", topic=TOPIC)
        assert [(row.before, row.trigger) for row in rows] == [(None, "start")]
        master.kill()
        await asyncio.sleep(61 - now())
        last = member.hook.of("route", topic=TOPIC)[-1]
        assert master.addr in last.before
        assert master.addr not in last.after
        assert len(member.hook.of("route", topic=TOPIC)) == 2


@virtual_time
async def test_the_address_table_follows_the_newest_route_and_drops_offline_brokers() -> None:
    async with Lab() as lab:
        lab.pair("broker-a")
        (b,) = lab.pair("broker-b")
        member = await lab.start()
        await asyncio.sleep(5)
        assert len(list(member.consumer.instance.brokers)) == 2
        b.kill()
        # The poll at 30 s drops b from the routes of the topic and of the retry topic; the
        # heartbeat a second later drops its address.
        await asyncio.sleep(30.5 - now())
        assert len(list(member.consumer.instance.brokers)) == 2
        await asyncio.sleep(1)
        assert [name for name, *_ in member.consumer.instance.brokers] == ["broker-a"]


@virtual_time
async def test_senders_at_once_share_a_question_to_a_slow_name_server() -> None:
    """One question may have been sent before the others came; the next one answers them all."""
    async with Lab() as lab:
        (master,) = lab.pair()
        producer, _ = await lab.producer()
        server = lab.name_server

        def slowly(request: RemotingCommand) -> None:
            connection = server.connections[-1]
            answer = server.serve(connection, request)
            assert answer is not None
            asyncio.get_running_loop().call_later(0.9, connection.send, answer)

        server.overrides[RequestCode.GET_ROUTEINFO_BY_TOPIC] = slowly
        sends = [producer.send(Message(TOPIC, b"%d" % number)) for number in range(50)]
        await asyncio.gather(*sends)
        asked = server.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)
        assert [request.ext["topic"] for request in asked].count(TOPIC) == 2
        assert len(master.of(RequestCode.SEND_MESSAGE_V2)) == 50


@virtual_time
async def test_a_question_that_failed_is_asked_again_by_those_who_wait() -> None:
    async with Lab(api_timeout_ms=1_000) as lab:
        lab.pair()
        producer, _ = await lab.producer()
        server, code = lab.name_server, RequestCode.GET_ROUTEINFO_BY_TOPIC
        server.ignore(code)
        asyncio.get_running_loop().call_later(1.5, server.overrides.clear)
        sends = [producer.send(Message(TOPIC, b"%d" % number)) for number in range(5)]
        found = await asyncio.gather(*sends, return_exceptions=True)
        failed = [each for each in found if isinstance(each, RouteQueryFailed)]
        assert len(failed) == 2, "those whose own question was not answered"
