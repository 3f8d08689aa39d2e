"""What a pod says over HTTP is read as far as its limit, packed or not."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import aiohttp
import pytest
from aiohttp import web

from failback.operator.brokers.http_answers import read_bounded
from failback.operator.brokers.peers import Peers
from failback.operator.metrics import Metrics
from failback.protocol.route import BrokerData, ClusterInfo
from tests.support.net.remoting_peer import RemotingPeer

pytestmark = pytest.mark.foreign

LIMIT = 100_000
BODIES = {
    "empty": b"",
    "short": b"a" * 10,
    "at its limit": b"a" * LIMIT,
    "one more": b"a" * (LIMIT + 1),
    "long": b"a" * (20 << 20),
}


async def answer_with(request: web.Request) -> web.StreamResponse:
    body = BODIES[request.query["body"]]
    if request.query["packed"] == "yes":
        return web.Response(
            body=gzip.compress(body, 1), headers={"Content-Encoding": "gzip"}, zlib_executor_size=0
        )
    return web.Response(body=body)


async def endless(request: web.Request) -> web.StreamResponse:
    answer = web.StreamResponse()
    await answer.prepare(request)
    while True:
        await answer.write(b"a 1\n" * 1000)


@pytest.fixture
async def url() -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes([web.get("/body", answer_with), web.get("/endless", endless)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield site.name if not site.name.endswith(":0") else "http://{}:{}".format(*runner.addresses[0])
    await runner.cleanup()


@pytest.mark.parametrize("packed", ["yes", "no"])
@pytest.mark.parametrize("body", BODIES)
async def test_an_answer_is_read_up_to_its_limit(url: str, body: str, packed: str) -> None:
    query = {"body": body, "packed": packed}
    async with aiohttp.ClientSession() as session, session.get(f"{url}/body", params=query) as got:
        if len(BODIES[body]) > LIMIT:
            with pytest.raises(ValueError, match="more than 100000 bytes"):
                await read_bounded(got, LIMIT)
        else:
            assert await read_bounded(got, LIMIT) == BODIES[body]


async def test_an_answer_without_an_end_is_given_up(url: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/endless") as got:
        with pytest.raises(ValueError, match="more than 100000 bytes"):
            await asyncio.wait_for(read_bounded(got, LIMIT), 60)


@pytest.mark.parametrize(
    ("peers", "brokers", "known"), [(1, 500, 1), (1, 8_000, 0), (30, 2_000, 5)]
)
async def test_lists_of_name_servers_have_a_bound_each_and_together(
    peers: int, brokers: int, known: int
) -> None:
    names = {
        f"broker-{n}": BrokerData("c", f"broker-{n}", {0: f"10.0.0.1:{n}"}) for n in range(brokers)
    }
    body = ClusterInfo(names, {"c": list(names)}).to_json()
    asked = Peers(Metrics(version="0", kopf="0", kubernetes="0"), timeout_seconds=60)
    async with AsyncExitStack() as stack:
        lists = [
            await stack.enter_async_context(
                RemotingPeer(lambda request: request.response(0, body=body))
            )
            for _ in range(peers)
        ]
        for each in lists:
            await asked.refresh_routes([each.addr], fast=True)
        found = [asked.route(each.addr).brokers for each in lists]
        assert sum(each is not None for each in found) in range(known, 2 * known + 1)
        short = ClusterInfo({"b": BrokerData("c", "b", {0: "10.0.0.1:1"})}, {"c": ["b"]}).to_json()
        async with RemotingPeer(lambda request: request.response(0, body=short)) as honest:
            await asked.refresh_routes([honest.addr], fast=True)
            assert asked.route(honest.addr).brokers == {"b": {0: "10.0.0.1:1"}}
        await asked.close()
