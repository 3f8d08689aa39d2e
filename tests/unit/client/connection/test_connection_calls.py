"""Calls: styles, time-outs, shared connections, broken peers. Against a real socket."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from failback.client.remoting.connection import NameServers, RemotingClient, RemotingSettings
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import (
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeout,
)
from tests.support.common.polling import until
from tests.support.net.ports import free_port
from tests.support.net.remoting_peer import Answer, RemotingPeer

# 1000 ms of grace and scan become 20 ms, 120 s of idleness 2.4 s.
QUICK = RemotingSettings(time_scale=0.02, connect_timeout_ms=150_000)
NEVER_MS = 60_000.0


def silent(_: RemotingCommand) -> Answer:
    return None


def request(code: int = 34) -> RemotingCommand:
    return RemotingCommand.request(code)


async def test_an_answer_finds_its_call_whatever_the_order() -> None:
    held: list[RemotingCommand] = []

    def answer(command: RemotingCommand) -> Answer:
        held.append(command)
        if len(held) < 3:
            return None
        return b"".join(c.response(c.code + 100).encode() for c in reversed(held))

    async with RemotingPeer(answer) as peer, RemotingClient() as client:
        answers = await asyncio.gather(
            *(client.invoke(peer.addr, request(code)) for code in (1, 2, 3))
        )
    assert [answer.code for answer in answers] == [101, 102, 103]
    assert len({command.opaque for command in peer.received}) == 3


async def test_requests_of_one_loop_iteration_leave_in_one_write() -> None:
    async with RemotingPeer() as peer, RemotingClient() as client:
        await client.invoke(peer.addr, request())
        reads = peer.connections[0].reads
        await asyncio.gather(*(client.invoke(peer.addr, request()) for _ in range(32)))
        assert peer.connections[0].reads == reads + 1


async def test_callers_share_one_attempt_to_connect() -> None:
    async with RemotingPeer() as peer, RemotingClient() as client:
        await asyncio.gather(*(client.invoke(peer.addr, request()) for _ in range(5)))
        assert len(peer.connections) == 1
        assert client.is_connected(peer.addr)


async def test_a_cancelled_caller_leaves_the_attempt_to_the_others() -> None:
    async with RemotingPeer() as peer, RemotingClient() as client:
        first = asyncio.create_task(client.invoke(peer.addr, request()))
        second = asyncio.create_task(client.invoke(peer.addr, request()))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).code == 0
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_a_cancelled_call_is_forgotten_and_its_late_answer_dropped() -> None:
    async with RemotingPeer(silent) as peer, RemotingClient() as client:
        call = asyncio.create_task(client.invoke(peer.addr, request()))
        await until(lambda: peer.received, "the request arrives")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        peer.connections[0].send(peer.received[0].response(0))
        peer.answer = lambda command: command.response(7)
        assert (await client.invoke(peer.addr, request())).code == 7


async def test_nobody_listening_is_a_connect_error_and_connecting_is_tried_anew() -> None:
    addr = f"127.0.0.1:{free_port()}"
    async with RemotingClient() as client:
        for _ in range(2):
            with pytest.raises(RemotingConnectError, match=addr):
                await client.invoke(addr, request())


@pytest.mark.parametrize("addr", ["", "localhost", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999"])
async def test_an_impossible_address_is_a_connect_error(addr: str) -> None:
    async with RemotingClient() as client:
        with pytest.raises(RemotingConnectError):
            await client.invoke(addr, request())


async def test_a_synchronous_timeout_closes_the_connection_and_fails_the_rest() -> None:
    async with RemotingPeer(silent) as peer, RemotingClient() as client:
        other = asyncio.create_task(client.invoke_async(peer.addr, request(11), NEVER_MS))
        await until(lambda: peer.received, "the pull arrives")
        with pytest.raises(RemotingTimeout, match="within 20 ms"):
            await client.invoke(peer.addr, request(), 20)
        with pytest.raises(RemotingSendError, match="synchronous call timed out") as caught:
            await other
        assert caught.value.under_way, "the peer has it"
        peer.answer = lambda command: command.response(0)
        await client.invoke(peer.addr, request())
        assert len(peer.connections) == 2


async def test_closing_on_a_synchronous_timeout_can_be_switched_off() -> None:
    settings = RemotingSettings(close_on_sync_timeout=False)
    async with RemotingPeer(silent) as peer, RemotingClient(settings=settings) as client:
        await client.oneway(peer.addr, request())  # connected: connecting counts as well
        with pytest.raises(RemotingTimeout):
            await client.invoke(peer.addr, request(), 20)
        assert client.is_connected(peer.addr)


async def test_an_asynchronous_call_expires_by_the_scan_and_keeps_the_connection() -> None:
    async with RemotingPeer(silent) as peer, RemotingClient(settings=QUICK) as client:
        await client.oneway(peer.addr, request())  # connected: connecting counts as well
        with pytest.raises(RemotingTimeout, match="within 10 ms"):
            await client.invoke_async(peer.addr, request(), 10)
        assert client.is_connected(peer.addr)
        with pytest.raises(RemotingTimeout):  # the scan goes on
            await client.invoke_async(peer.addr, request(), 10)


async def test_an_asynchronous_answer_may_come_after_the_timeout_but_before_the_scan() -> None:
    async with RemotingPeer(silent) as peer, RemotingClient() as client:
        await client.oneway(peer.addr, request())  # connected: connecting counts as well
        call = asyncio.create_task(client.invoke_async(peer.addr, request(), 1))
        await until(lambda: len(peer.received) == 2, "the request arrives")
        await asyncio.wait((call,), timeout=0.02)
        peer.connections[0].send(peer.received[1].response(5))
        assert (await call).code == 5


async def test_a_reset_fails_the_calls_under_way_at_once() -> None:
    settings = RemotingSettings(fail_inflight_on_eof=False)
    async with RemotingPeer(silent) as peer, RemotingClient(settings=settings) as client:
        call = asyncio.create_task(client.invoke_async(peer.addr, request(), NEVER_MS))
        await until(lambda: peer.received, "the request arrives")
        peer.connections[0].reset()
        with pytest.raises(RemotingSendError):
            await call


async def test_a_fin_fails_the_calls_under_way_at_once_by_default() -> None:
    async with RemotingPeer(silent) as peer, RemotingClient() as client:
        call = asyncio.create_task(client.invoke_async(peer.addr, request(), NEVER_MS))
        await until(lambda: peer.received, "the request arrives")
        peer.connections[0].close()
        with pytest.raises(RemotingSendError, match="closed by the peer"):
            await call


@pytest.mark.full
@pytest.mark.few(1)
async def test_as_in_4_9_8_calls_under_way_outlive_a_fin_until_their_timers() -> None:
    settings = replace(QUICK, fail_inflight_on_eof=False)
    async with RemotingPeer(silent) as peer, RemotingClient(settings=settings) as client:
        pull = asyncio.create_task(client.invoke_async(peer.addr, request(11), 2000))
        sync = asyncio.create_task(client.invoke(peer.addr, request(), 1000))
        await until(lambda: len(peer.received) == 2, "both requests arrive")
        peer.connections[0].close()
        await until(lambda: not client.is_connected(peer.addr), "the client sees the FIN")
        peer.answer = lambda command: command.response(0)
        await client.invoke(peer.addr, request())  # a new connection works meanwhile
        assert not pull.done()
        assert not sync.done()
        with pytest.raises(RemotingTimeout):
            await sync
        assert not pull.done()  # the dead connection's timeout took nothing with it
        with pytest.raises(RemotingTimeout):
            await pull
        assert client.is_connected(peer.addr)


async def test_garbage_from_the_peer_closes_the_connection() -> None:
    async with RemotingPeer(lambda _: b"\xff" * 20) as peer, RemotingClient() as client:
        with pytest.raises(RemotingSendError, match="protocol error"):
            await client.invoke(peer.addr, request())
        peer.answer = lambda command: command.response(0)
        assert (await client.invoke(peer.addr, request())).code == 0


async def test_oneway_sets_the_flag_and_waits_for_nothing() -> None:
    async with RemotingPeer(silent) as peer, RemotingClient() as client:
        await client.oneway(peer.addr, request(15))
        await until(lambda: peer.received, "the request arrives")
        assert peer.received[0].is_oneway


async def test_what_was_handed_in_before_close_is_still_written() -> None:
    async with RemotingPeer(silent) as peer:
        client = RemotingClient()
        for _ in range(10):
            await client.oneway(peer.addr, request(15))
        await client.close()
        await until(lambda: len(peer.received) == 10, "all one-way requests arrive")


async def test_close_fails_what_is_under_way_and_later_calls() -> None:
    async with RemotingPeer(silent) as peer:
        client = RemotingClient(settings=RemotingSettings(fail_inflight_on_eof=False))
        calls = [
            asyncio.create_task(client.invoke_async(peer.addr, request(), NEVER_MS)),
            asyncio.create_task(client.invoke(peer.addr, request(), NEVER_MS)),
        ]
        await until(lambda: len(peer.received) == 2, "the requests arrive")
        await client.close()
        for call in calls:
            with pytest.raises(RemotingSendError, match="client closed"):
                await call
        with pytest.raises(RemotingConnectError, match="client closed"):
            await client.invoke(peer.addr, request())


async def test_an_idle_connection_is_closed() -> None:
    settings = RemotingSettings(idle_seconds=0.05)
    reasons: list[tuple[str, str]] = []

    def on_close(addr: str, reason: str) -> None:
        reasons.append((addr, reason))

    async with (
        RemotingPeer() as peer,
        RemotingClient(settings=settings, on_close=on_close) as client,
    ):
        await client.invoke(peer.addr, request())
        await until(lambda: reasons, "the idle connection is closed")
        assert reasons == [(peer.addr, "idle")]
        await client.invoke(peer.addr, request())
        assert len(peer.connections) == 2


async def test_the_number_of_calls_under_way_is_bounded() -> None:
    settings = RemotingSettings(max_outstanding=2)
    async with RemotingPeer(silent) as peer, RemotingClient(settings=settings) as client:
        calls = [asyncio.create_task(client.invoke_async(peer.addr, request())) for _ in range(2)]
        await until(lambda: len(peer.received) == 2, "both requests arrive")
        with pytest.raises(RemotingSendError, match="2 calls are under way"):
            await client.invoke_async(peer.addr, request())
        for call, command in zip(calls, peer.received, strict=True):
            peer.connections[0].send(command.response(0))
            await call
        peer.answer = lambda command: command.response(0)
        await client.invoke_async(peer.addr, request())


async def test_a_peer_that_does_not_read_holds_back_the_senders() -> None:
    async with RemotingPeer(silent) as peer, RemotingClient() as client:
        await client.oneway(peer.addr, request())
        await until(lambda: peer.connections, "connected")
        peer.connections[0].transport.pause_reading()

        async def flood() -> None:
            for _ in range(50):
                await client.oneway(peer.addr, RemotingCommand.request(10, body=bytes(1 << 20)), 50)
                await asyncio.sleep(0)

        with pytest.raises(RemotingTimeout):
            await flood()
        peer.connections[0].transport.resume_reading()
        await client.oneway(peer.addr, request(77))
        await until(lambda: peer.received[-1].code == 77, "the flow goes on")


async def test_requests_of_the_peer_are_served_and_answered() -> None:
    served: list[str] = []

    async def later(command: RemotingCommand) -> RemotingCommand:
        await asyncio.sleep(0)
        return command.response(2)

    def serve(addr: str, command: RemotingCommand) -> object:
        served.append(addr)
        if command.code == 3:
            raise ValueError("our bug")
        return command.response(1) if command.code == 1 else later(command)

    async with RemotingPeer() as peer, RemotingClient(on_request=serve) as client:  # type: ignore[arg-type]
        await client.invoke(peer.addr, request())
        peer.received.clear()
        peer.answer = silent
        for code in (1, 2, 3):
            command = request(code)
            command.opaque = code
            peer.connections[0].send(command)
        peer.connections[0].send(RemotingCommand.request(40, oneway=True))
        await until(lambda: len(peer.received) == 3, "three answers, none to the one-way")
        answers = {answer.opaque: answer for answer in peer.received}
        assert all(answer.is_response for answer in peer.received)
        assert (answers[1].code, answers[2].code, answers[3].code) == (1, 2, 1)
        assert answers[3].remark == "ValueError: our bug"
        await until(lambda: len(served) == 4, "the one-way request is served")
        assert set(served) == {peer.addr}


async def test_requests_without_a_handler_are_answered_with_3() -> None:
    async with RemotingPeer() as peer, RemotingClient() as client:
        await client.invoke(peer.addr, request())
        peer.connections[0].send(request(307))
        await until(lambda: len(peer.received) == 2, "the answer arrives")
        assert peer.received[1].code == 3


@pytest.mark.parametrize("seed", range(4))
async def test_name_servers_stick_to_one_and_walk_on_when_it_is_gone(seed: int) -> None:
    async with RemotingPeer() as first, RemotingPeer() as second, RemotingClient() as client:
        dead = f"127.0.0.1:{free_port()}"
        addrs = [dead, first.addr, second.addr]
        servers = NameServers(client, addrs, random.Random(seed))
        for _ in range(3):
            await servers.invoke(request(105))
        used = first if first.received else second
        assert len(used.received) == 3
        assert not (second if used is first else first).received
        assert servers.chosen == used.addr
        assert sorted(servers.addresses) == sorted(addrs)


async def test_without_a_reachable_name_server_the_last_failure_is_raised() -> None:
    async with RemotingClient() as client:
        with pytest.raises(RemotingConnectError, match="no address is configured"):
            await NameServers(client, []).invoke(request())
        dead = f"127.0.0.1:{free_port()}"
        with pytest.raises(RemotingConnectError, match=dead):
            await NameServers(client, [dead, dead]).invoke(request())


@pytest.mark.parametrize("turns", range(12))
async def test_cancellation_at_any_await_leaves_the_client_usable(turns: int) -> None:
    async with RemotingPeer() as peer, RemotingClient() as client:
        call = asyncio.create_task(client.invoke(peer.addr, request()))
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait((call,))
        assert (await client.invoke(peer.addr, request())).code == 0
        assert not client._calls


async def never(_: RemotingCommand) -> RemotingCommand:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("serve", "reads", "why"),
    [
        (None, True, "more than 64 requests of its own"),
        (lambda _, command: command.response(0, body=b"x" * 50_000), False, "requests unread"),
        (lambda _, command: never(command), True, "more than 1000 requests of its own"),
    ],
    ids=["a client that serves none", "answers that stay unread", "answers that take time"],
)
async def test_a_peer_that_asks_without_end_is_cut(
    serve: Any, reads: bool, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with RemotingPeer() as peer, RemotingClient(on_request=serve) as client:
        await client.invoke(peer.addr, request())
        (flood,) = peer.connections
        peer.answer = silent
        if not reads:
            flood.transport.pause_reading()
        for _ in range(3000):
            flood.send(request(40))
        await until(lambda: why in caplog.text, "the end of the connection", 30)
        flood.transport.resume_reading()
        await flood.closed
        assert caplog.text.count(why) == 1
        assert len(client._handlers) <= 1000
        peer.answer = lambda command: command.response(0)
        assert (await client.invoke(peer.addr, request())).code == 0, "it is asked again"
