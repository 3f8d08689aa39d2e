"""Of several operators one leads, whatever the clocks of their machines say."""

from __future__ import annotations

import asyncio
import copy
import datetime
from typing import Any, cast

import pytest

from failback.kube.asynchronous import Kube
from failback.kube.errors import ApiError
from failback.operator.kubernetes.leader import LEASE, lead
from failback.operator.settings import Settings
from tests.support.common.virtual_time import virtual_time

HOUR = datetime.timedelta(hours=1)


class Leases:
    """The one Lease of an API server in memory."""

    def __init__(self, spec: dict[str, Any] | None = None) -> None:
        self.lease: dict[str, Any] | None = None
        if spec is not None:
            self.lease = {"metadata": {"name": LEASE, "resourceVersion": "1"}, "spec": spec}
        self.cut_off = False

    @property
    def holder(self) -> str:
        return "" if self.lease is None else str(self.lease["spec"]["holderIdentity"])

    async def get(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        self._answer("get")
        return copy.deepcopy(self.lease)

    async def create(self, manifest: dict[str, Any]) -> None:
        self._answer("create")
        self.lease = copy.deepcopy(manifest)
        self.lease["metadata"]["resourceVersion"] = "1"

    async def replace(self, manifest: dict[str, Any]) -> None:
        self._answer("update")
        assert self.lease is not None
        version = self.lease["metadata"]["resourceVersion"]
        if manifest["metadata"]["resourceVersion"] != version:
            raise ApiError("update", "leases", 409, "Conflict", "it moved on")
        self.lease = copy.deepcopy(manifest)
        self.lease["metadata"]["resourceVersion"] = str(int(version) + 1)

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


@virtual_time
async def test_a_leader_that_cannot_renew_ends_before_another_may_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leases, loop = Leases(), asyncio.get_running_loop()
    ended: list[float] = []
    monkeypatch.setattr("os._exit", lambda code: ended.append(loop.time()))
    async with lead(cast(Kube, leases), Settings(identity="me"), asyncio.Event()):
        await asyncio.sleep(12)
        leases.cut_off, cut_at = True, loop.time()
        await asyncio.sleep(30)
        assert ended
        assert ended[0] - cut_at < 15
        leases.cut_off = False
