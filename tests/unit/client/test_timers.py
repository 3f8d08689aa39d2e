"""Fixed-rate jobs, heartbeats and start phases."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from failback.client.clock import Scheduler
from failback.client.model import ConsumeFrom
from failback.protocol.codes import RequestCode
from tests.support.clients.client_lab import GROUP, TOPIC, Lab
from tests.support.common.virtual_time import network, now, until, virtual_time


@virtual_time
async def test_a_slow_job_delays_the_others_which_then_catch_up() -> None:
    scheduler = Scheduler(now)
    times: list[float] = []

    async def slow() -> None:
        await asyncio.sleep(3)

    async def quick() -> None:
        times.append(round(now(), 1))

    scheduler.every("slow", 1_000, 10_000, slow)
    scheduler.every("quick", 500, 1_000, quick)
    running = asyncio.create_task(scheduler.run())
    await asyncio.sleep(6.2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert times == [0.5, 4.0, 4.0, 4.0, 4.5, 5.5]  # due 1.5, 2.5 and 3.5


@virtual_time
async def test_a_job_that_fails_runs_again() -> None:
    scheduler = Scheduler(now)
    runs: list[float] = []

    async def job() -> None:
        runs.append(now())
        raise ValueError("no")

    scheduler.every("job", 0, 1_000, job)
    running = asyncio.create_task(scheduler.run())
    await asyncio.sleep(2.5)
    running.cancel()
    assert runs == [0, 1, 2]


@virtual_time
async def test_heartbeats_go_to_every_address_every_30_s() -> None:
    async with Lab() as lab:
        master, slave = lab.pair(slaves=1)
        await lab.start()
        await asyncio.sleep(95)
        for broker in (master, slave):
            beats = [round(r.time) for r in broker.of(RequestCode.HEART_BEAT)]
            assert [t for t in beats if t > 2] == [31, 61, 91]
            assert beats[0] == 0


@virtual_time
async def test_what_changes_while_a_heartbeat_is_under_way_is_in_one_that_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with Lab() as lab:
        (master,) = lab.pair()
        member = await lab.start()
        await asyncio.sleep(5)
        instance = member.consumer.instance
        send, sent = instance.api.heartbeat, len(master.of(RequestCode.HEART_BEAT))

        async def slow(addr: str, data: Any) -> None:
            await asyncio.sleep(1)
            await send(addr, data)

        monkeypatch.setattr(instance.api, "heartbeat", slow)
        await asyncio.gather(*(instance.heartbeat_all() for _ in range(3)))
        assert len(master.of(RequestCode.HEART_BEAT)) == sent + 2


@virtual_time
async def test_a_black_holed_broker_delays_the_commits_of_the_others() -> None:
    """Heartbeat and commits share one thread: each connect to the hole costs 3 s."""
    async with Lab(fail_inflight_on_eof=True) as lab:
        (hole,), (healthy,) = lab.pair("broker-a"), lab.pair("broker-b")
        for broker in (hole, healthy):
            lab.cluster.fill(broker, TOPIC, 0, 1)
        member = await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await until(lambda: len(member.handler.got) == 2)
        await asyncio.sleep(21 - now())
        hole.stop(reset=True)
        network().swallow(hole.address)
        await asyncio.sleep(40)
        ticks = [
            t
            for t, kind, key, _ in healthy.commits
            if (kind, key[1]) == ("COMMIT", TOPIC) and t > 21
        ]
        # A round commits two queues of the hole, 3 s each, so it takes longer than its period.
        assert all(b - a > 5.9 for a, b in pairwise(ticks[1:]))
        network().swallow(hole.address, swallow=False)


@virtual_time
async def test_there_is_no_heartbeat_on_connect_unless_asked_for() -> None:
    async def seconds_until_member(**switches: object) -> float:
        async with Lab(**switches) as lab:
            master, _ = lab.pair(slaves=1)
            await lab.start()
            await asyncio.sleep(35)
            master.kill(reset=True)
            await asyncio.sleep(1)
            master.boot()
            begin = now()
            await until(lambda: master.members(GROUP))
            return now() - begin

    assert await seconds_until_member() == pytest.approx(25, abs=0.2)  # the tick at 61 s
    assert await seconds_until_member(heartbeat_on_connect=True) < 1.5


@virtual_time
async def test_a_start_phase_delays_the_whole_client() -> None:
    async with Lab(start_phase_ms=7_000) as lab:
        (master,) = lab.pair()
        member = await lab.start()
        assert now() == pytest.approx(7, abs=0.1)
        assert member.consumer.switches()["start_phase_ms"] == 7_000
        await asyncio.sleep(70 - now())
        assert [round(r.time) for r in master.of(RequestCode.HEART_BEAT)][-2:] == [38, 68]


@virtual_time
async def test_a_scaled_client_does_everything_faster() -> None:
    async with Lab(time_scale=0.1) as lab:
        (master,) = lab.pair()
        lab.cluster.fill(master, TOPIC, 0, 1)
        member = await lab.start(consume_from=ConsumeFrom.FIRST_OFFSET)
        await asyncio.sleep(9.05)
        beats = [round(r.time, 1) for r in master.of(RequestCode.HEART_BEAT)]
        assert beats[-2:] == [3.1, 6.1]
        commits = [
            round(t, 1) for t, kind, key, _ in master.commits if (kind, key[1]) == ("COMMIT", TOPIC)
        ]
        assert commits[:3] == [1.0, 1.5, 2.0]
        held = [r.time for r in master.of(RequestCode.PULL_MESSAGE) if r.ext["topic"] == TOPIC]
        assert held[-1] - held[-2] == pytest.approx(1.5, abs=0.01)
        assert [
            round(r.time) for r in member.hook.of("rebalance", topic=TOPIC, trigger="tick")
        ] == [
            2,
            4,
            6,
            8,
        ]
