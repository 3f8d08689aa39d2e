"""Asks every member (26) and name server (106) ten times a second: never two masters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Final

from failback.client.admin.admin import AdminClient
from failback.protocol.errors import FailbackError
from tests.support.common.background_thread import Beside
from tests.support.operator.resources import member_at, name_server_at

_PERIOD_SECONDS: Final = 0.1
_ANSWER_MS: Final = 1000.0
_MEMBERS: Final = (0, 1)


class MastersWatch(Beside):
    """Looks while the block lasts.

    A round that took longer than an answer may is not judged: its parts are of different moments.
    """

    def __init__(self, namespace: str, brokers: Sequence[str]) -> None:
        """Watch pairs by broker name (``orders-0``), of clusters named like its first part."""
        super().__init__("masters")
        self._namespace = namespace
        self._brokers = brokers
        self.rounds = 0
        self.seen: dict[str, set[str]] = {name: set() for name in brokers}
        """Broker name → members that were its master at one time or another."""
        self.doubles: list[str] = []

    def work(self) -> None:
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        server = name_server_at(self._namespace)
        async with AdminClient([server], timeout_ms=_ANSWER_MS) as admin:
            while not self.stopping.is_set():
                begun = time.monotonic()
                tables = await asyncio.gather(
                    self._listed(admin), *(self._claim(admin, *who) for who in self._all())
                )
                spent = time.monotonic() - begun
                if spent <= _ANSWER_MS / 1000:
                    self._judge(tables)
                await asyncio.sleep(max(0.0, _PERIOD_SECONDS - spent))

    def _all(self) -> list[tuple[str, int]]:
        return [(name, member) for name in self._brokers for member in _MEMBERS]

    def _address(self, name: str, member: int) -> str:
        return member_at(self._namespace, f"{name}-{member}")

    async def _listed(self, admin: AdminClient) -> set[tuple[str, str]]:
        """Return broker names with the address that the name server lists as id 0."""
        try:
            table = (await admin.cluster_info()).broker_addr_table
        except (FailbackError, OSError):
            return set()
        return {
            (name, data.broker_addrs[0]) for name, data in table.items() if 0 in data.broker_addrs
        }

    async def _claim(self, admin: AdminClient, name: str, member: int) -> set[tuple[str, str]]:
        """Return the member itself if it says that it is a master."""
        address = self._address(name, member)
        try:
            config = await admin.broker_config(address)
        except (FailbackError, OSError):
            return set()
        return set() if config["brokerRole"] == "SLAVE" else {(name, address)}

    def _judge(self, tables: list[set[tuple[str, str]]]) -> None:
        self.rounds += 1
        found = set().union(*tables)
        for name in self._brokers:
            masters = sorted(address for broker, address in found if broker == name)
            self.seen[name].update(masters)
            if len(masters) > 1:
                self.doubles.append(f"round {self.rounds}: {masters}")
