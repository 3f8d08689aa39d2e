"""Of several operators one leads, whatever the clocks of their machines say."""

from __future__ import annotations

import asyncio
import copy
import datetime
import random
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from failback.kube.asynchronous import Kube
from failback.kube.errors import ApiError
from failback.operator.kubernetes.leader import lead
from failback.operator.settings import MANAGER, Settings
from tests.support.common.virtual_time import virtual_time

Delay = Callable[[], float]

HOUR = datetime.timedelta(hours=1)


class Leases:
    """The one Lease of an API server in memory."""

    def __init__(self, spec: dict[str, Any] | None = None) -> None:
        self.lease: dict[str, Any] | None = None
        if spec is not None:
            self.lease = {"metadata": {"name": MANAGER, "resourceVersion": "1"}, "spec": spec}
        self.cut_off = False

    @property
    def holder(self) -> str:
        return "" if self.lease is None else str(self.lease["spec"]["holderIdentity"])

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        self._answer("get")
        return copy.deepcopy(self.lease)

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self._answer("create")
        if self.lease is not None:
            raise ApiError("create", "leases", 409, "AlreadyExists", "there is one")
        self.lease = copy.deepcopy(manifest)
        self.lease["metadata"]["resourceVersion"] = "1"
        return copy.deepcopy(self.lease)

    async def replace(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self._answer("update")
        assert self.lease is not None
        version = self.lease["metadata"]["resourceVersion"]
        if manifest["metadata"]["resourceVersion"] != version:
            raise ApiError("update", "leases", 409, "Conflict", "it moved on")
        self.lease = copy.deepcopy(manifest)
        self.lease["metadata"]["resourceVersion"] = str(int(version) + 1)
        return copy.deepcopy(self.lease)

    def _answer(self, verb: str) -> None:
        if self.cut_off:
            raise ApiError(verb, "leases", 0, "Timeout", "no answer")


def stamp(moment: datetime.datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def held(renewed: datetime.datetime) -> dict[str, Any]:
    return {
        "holderIdentity": "other",
        "leaseDurationSeconds": 15,
        "renewTime": stamp(renewed),
    }


async def leads(leases: Leases, seconds: float) -> bool:
    """Tell whether a second operator comes to lead within this time; it waits no longer."""
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, stop.set)
    async with lead(cast(Kube, leases), Settings(identity="me"), stop):
        return leases.holder == "me"


@virtual_time
async def test_a_free_lease_is_taken_and_handed_over() -> None:
    free = {**held(datetime.datetime.now(datetime.UTC)), "holderIdentity": ""}
    for leases in (Leases(), Leases(free)):
        assert await leads(leases, 1)
        assert leases.holder == ""


@pytest.mark.parametrize("ahead", [HOUR, datetime.timedelta(), -HOUR])
def test_a_leader_that_renews_is_never_followed_whatever_its_clock(
    ahead: datetime.timedelta,
) -> None:
    @virtual_time
    async def scene() -> None:
        begin = datetime.datetime.now(datetime.UTC) - ahead
        leases = Leases(held(begin))

        async def renew() -> None:
            for number in range(1, 100):
                await asyncio.sleep(5)
                assert leases.lease is not None
                moment = begin + datetime.timedelta(seconds=5 * number)
                leases.lease["spec"]["renewTime"] = stamp(moment)

        renewing = asyncio.create_task(renew())
        assert not await leads(leases, 120)
        assert leases.holder == "other"
        renewing.cancel()

    scene()


@pytest.mark.parametrize("ahead", [HOUR, datetime.timedelta(), -HOUR])
def test_a_leader_that_is_gone_is_followed_after_the_time_of_its_lease(
    ahead: datetime.timedelta,
) -> None:
    @virtual_time
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        leases = Leases(held(datetime.datetime.now(datetime.UTC) - ahead))
        begun = loop.time()
        assert await leads(leases, 60)
        assert 15 < loop.time() - begun < 20

    scene()


class SlowServer:
    """The API server as one operator reaches it: requests arrive late, answers come late.

    A request that nobody waits for any more is carried out all the same.
    """

    def __init__(self, leases: Leases, there: Delay, back: Delay) -> None:
        self._leases = leases
        self._there = there
        self._back = back
        self._under_way: set[asyncio.Task[Any]] = set()
        self.is_reached = True

    async def get(self, *where: str) -> Any:
        return await self._ask(lambda: self._leases.get(*where))

    async def create(self, manifest: dict[str, Any]) -> Any:
        return await self._ask(lambda: self._leases.create(manifest))

    async def replace(self, manifest: dict[str, Any]) -> Any:
        return await self._ask(lambda: self._leases.replace(manifest))

    async def _ask(self, request: Callable[[], Awaitable[Any]]) -> Any:
        if not self.is_reached:
            raise ApiError("any", "leases", 0, "Unreachable", "the process is gone")

        async def carry_out() -> Any:
            await asyncio.sleep(self._there())
            try:
                found = await request()
            except ApiError as error:
                found = error
            await asyncio.sleep(self._back())
            return found

        task = asyncio.create_task(carry_out())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        answer = await asyncio.shield(task)
        if isinstance(answer, ApiError):
            raise answer
        return answer


class Machine:
    """One replica: processes of one name, each started when the one before has ended."""

    def __init__(self, name: str, leases: Leases, there: Delay, back: Delay) -> None:
        self.name = name
        self.acts = False
        self.led = 0
        self._connect: Callable[[], SlowServer] = lambda: SlowServer(leases, there, back)
        self._order: asyncio.TimerHandle | None = None
        self._server: SlowServer | None = None
        self._process: asyncio.Task[None] | None = None

    def end_within(self, seconds: float) -> None:
        self.call_off()
        self._order = asyncio.get_running_loop().call_later(seconds, self.kill)

    def call_off(self) -> None:
        if self._order is not None:
            self._order.cancel()

    def kill(self) -> None:
        assert self._server is not None
        assert self._process is not None
        self.acts = self._server.is_reached = False
        self._process.cancel()

    async def live(self, stop: asyncio.Event, lives: Callable[[], float]) -> None:
        """Start a process again and again until ``stop``; each ends by itself, too."""
        while not stop.is_set():
            self._server = self._connect()
            self._process = asyncio.create_task(self._operate(self._server, stop, lives()))
            await asyncio.wait([self._process])
            self.call_off()
            self.acts = False

    async def _operate(self, server: SlowServer, stop: asyncio.Event, seconds: float) -> None:
        ended = asyncio.Event()
        asyncio.get_running_loop().call_later(seconds, ended.set)
        settings = Settings(identity=self.name)
        async with lead(cast(Kube, server), settings, ended, ender=self):
            if ended.is_set():
                return
            self.acts, self.led = True, self.led + 1
            await ended.wait()
            self.acts = False


def life(seed: int) -> tuple[int, int]:
    """Let two operators and a slow API server live for ten minutes.

    Returns:
        How often one came to lead, and how often the two acted at the same moment.
    """
    draw, clashes, led = random.Random(seed), 0, 0

    def way() -> Delay:
        ranges = [(0.0, 0.1), (0.0, 0.1), (0.0, 4.0), (0.0, 30.0), (20.0, 30.0)]
        by_half_minute = [draw.choice(ranges) for _ in range(21)]

        def delay() -> float:
            return draw.uniform(*by_half_minute[int(asyncio.get_running_loop().time() / 30)])

        return delay

    @virtual_time
    async def scene() -> None:
        nonlocal clashes, led
        leases, stop = Leases(), asyncio.Event()
        both = [Machine(name, leases, way(), way()) for name in ("one", "two")]
        lives = [
            asyncio.create_task(each.live(stop, lambda: draw.choice([60, 600]))) for each in both
        ]
        for _ in range(2400):
            await asyncio.sleep(0.25)
            clashes += all(each.acts for each in both)
        stop.set()
        for each in both:
            each.kill()
        await asyncio.gather(*lives)
        led = sum(each.led for each in both)

    scene()
    return led, clashes


@pytest.mark.full
def test_two_operators_never_act_at_the_same_time_however_late_the_api_server_answers() -> None:
    found = {seed: life(seed) for seed in range(60)}
    assert [seed for seed, (_, clashes) in found.items() if clashes] == []
    assert sum(led > 3 for led, _ in found.values()) > 54


@virtual_time
async def test_a_leader_that_cannot_renew_is_told_to_end_before_another_may_follow() -> None:
    leases, loop = Leases(), asyncio.get_running_loop()
    orders: list[float] = []

    class Orders:
        def end_within(self, seconds: float) -> None:
            orders.append(loop.time() + seconds)

        def call_off(self) -> None:
            orders.append(float("inf"))

    stop = asyncio.Event()
    async with lead(cast(Kube, leases), Settings(identity="me"), stop, ender=Orders()):
        await asyncio.sleep(14)
        leases.cut_off, cut_at = True, loop.time()
        await asyncio.sleep(30)
        assert cut_at < orders[-1] < cut_at + 15
        leases.cut_off = False
    assert orders[-1] == float("inf")


def test_a_process_whose_loop_does_not_turn_is_ended_all_the_same() -> None:
    text = (
        "import time\n"
        "from failback.operator.kubernetes.leader import ProcessEnder\n"
        "ProcessEnder().end_within(60)\n"
        "ProcessEnder().end_within(0.2)\n"
        "time.sleep(60)\n"
    )
    ended = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=50)
    assert ended.returncode == 1
    assert b"line 5" in ended.stderr


def test_a_process_that_led_to_its_end_is_not_ended() -> None:
    text = (
        "import time\n"
        "from failback.operator.kubernetes.leader import ProcessEnder\n"
        "ender = ProcessEnder()\n"
        "ender.end_within(0.2)\n"
        "ender.call_off()\n"
        "time.sleep(0.6)\n"
    )
    assert subprocess.run([sys.executable, "-c", text], timeout=50).returncode == 0
