"""Asks members of groups what they hold of each queue, through a broker that lists them (307).

A broker passes the question on and waits for the answer. So members are asked seldom, few at a
time, and beside the looks. The next look has their answers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from failback.analytics.observe.folder import seconds
from failback.analytics.observe.looks import BrokerLook, ClientLook, HeldQueue, Place
from failback.client.admin.admin import AdminClient
from failback.client.admin.survey import Silences
from failback.protocol.body import MessageQueue
from failback.protocol.errors import FailbackError
from failback.protocol.stats import ProcessQueueInfo

CLIENTS_SECONDS: Final = 5.0
TAKES_CALLS: Final = 62
"""MQVersion.V3_1_8_SNAPSHOT: older clients know no such question."""
_AT_ONCE: Final = 4


class _Member(NamedTuple):
    cluster: str
    group: str
    client: str


class ClientAsker:
    """Asks every member once in five seconds at most. Times are seconds after ``zero``."""

    def __init__(self, admin: AdminClient, zero: float) -> None:
        self._admin = admin
        self._zero = zero
        self._listed: dict[Place, Mapping[str, Iterable[str]]] = {}
        self._silences = Silences()
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._round: asyncio.Future[list[ClientLook | None]] | None = None
        self._began = -CLIENTS_SECONDS

    def take(
        self, brokers: Iterable[BrokerLook], versions: Mapping[tuple[str, str], int]
    ) -> tuple[ClientLook, ...]:
        """Return the answers since the last look, and ask again if it is time.

        Args:
            brokers: The answers of this look, with the members that each broker lists.
            versions: Group and client id to the version of the client, as MQVersion numbers it.
        """
        found: tuple[ClientLook, ...] = ()
        if self._round is not None and self._round.done():
            found = tuple(each for each in self._round.result() if each is not None)
            self._round = None
        askable = self._askable(brokers, versions)
        if self._round is None and time.monotonic() - self._began >= CLIENTS_SECONDS:
            self._began = time.monotonic()
            asked = (self._ask(member, address) for member, address in askable.items())
            self._round = asyncio.ensure_future(asyncio.gather(*asked))
        return found

    async def close(self) -> None:
        """Cancel the questions under way."""
        if self._round is not None:
            self._round.cancel()
            await asyncio.gather(self._round, return_exceptions=True)

    def _askable(
        self, brokers: Iterable[BrokerLook], versions: Mapping[tuple[str, str], int]
    ) -> dict[_Member, str]:
        """Return the broker to ask for each member: a master where it lists the member."""
        found: dict[_Member, str] = {}
        for broker in sorted(brokers, key=lambda each: each.broker_id):
            if broker.members is not None:
                self._listed[broker.place] = broker.members
            if broker.offsets is None:  # it did not answer
                self._listed.pop(broker.place, None)
            cluster = broker.pair.rpartition("/")[0]
            for group, clients in self._listed.get(broker.place, {}).items():
                for client in clients:
                    member = _Member(cluster, group, client)
                    if versions.get((group, client), 0) >= TAKES_CALLS and self._silences.may_ask(
                        member, time.monotonic()
                    ):
                        found.setdefault(member, broker.addr)
        return found

    async def _ask(self, member: _Member, address: str) -> ClientLook | None:
        async with self._turn:
            at = seconds() - self._zero
            try:
                told = await self._admin.held_queues(address, member.group, member.client)
            except (FailbackError, OSError):
                self._silences.silent(member, time.monotonic())
                return None
        self._silences.answered(member)
        return ClientLook(member.cluster, member.group, member.client, at, _held(told))


def _held(
    told: Mapping[MessageQueue, ProcessQueueInfo],
) -> dict[str, dict[str, dict[int, HeldQueue]]]:
    """Return queues by broker name, topic and queue id; dropped ones are left out."""
    found: dict[str, dict[str, dict[int, HeldQueue]]] = {}
    for queue, info in told.items():
        if info.droped:
            continue
        by_topic = found.setdefault(queue.broker_name, {}).setdefault(queue.topic, {})
        by_topic[queue.queue_id] = HeldQueue(
            info.commit_offset,
            info.cached_msg_min_offset,
            info.cached_msg_max_offset,
            info.cached_msg_count,
        )
    return found
