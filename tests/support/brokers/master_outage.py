"""An outage of a master in which its slave was consumed from, seen through committed offsets."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, ProtocolError, RemotingError
from failback.protocol.route import parse_offset_table
from tests.support.brokers.broker_lab import send_header
from tests.support.common.polling import SCALE
from tests.support.java.apache import Broker, Engine, NameServer
from tests.support.java.java_lab import Lab

TOPIC = "TopicTest"
GROUP = "billing"
MESSAGES = 20
BEFORE, MEANWHILE = 5, 15
"""Where the group stood before the kill, and where its reads from the slave brought it."""
QUICK: dict[str, object] = {"failbackTimeScale": 0.05}


@dataclass
class Outage:
    """A pair with a slave that is ahead of its returned master: run :meth:`live` once."""

    ns: NameServer
    master: Broker
    slave: Broker
    admin: AdminClient
    access: ClusterAccess | None = None
    """Signs the sends; ``admin`` signs by itself."""

    @classmethod
    def of(
        cls,
        lab: Lab,
        admin: AdminClient,
        ns: NameServer,
        engines: tuple[Engine, Engine],
        settings: dict[str, object],
        access: ClusterAccess | None = None,
    ) -> Outage:
        """Start a pair of two engines; ``settings`` are for those that are ours."""
        # An Apache slave reports every 5 s: a hasty master of ours would take it for dead.
        pace: dict[str, object] = {} if engines == ("failback", "apache") else QUICK

        def broker(engine: Engine, **fields: object) -> Broker:
            ours = pace | settings if engine == "failback" else {}
            return lab.broker(engine, ns, settings=ours, **fields)

        master = broker(engines[0])
        slave = broker(engines[1], broker_id=1, role="SLAVE")
        if engines[0] == "failback":
            master.settings["failbackMembers"] = f"{master.address};{slave.address}"
        master.start()
        slave.start()
        return cls(ns, master, slave, admin, access)

    async def live(self) -> None:
        """:meth:`die`, and start the master."""
        await self.die()
        self.master.start()

    async def die(self) -> None:
        """Consume a little, kill the master, consume more from the slave."""
        async with RemotingClient(settings=RemotingSettings(access=self.access)) as client:
            for _ in range(MESSAGES):
                request = RemotingCommand.request(
                    RequestCode.SEND_MESSAGE_V2, send_header(topic=TOPIC), b"hello"
                )
                assert (await client.invoke(self.master.address, request)).code == 0
        await self.reaches(self.slave, MESSAGES, end=True)
        await self.commit(self.master, BEFORE)
        await self.reaches(self.slave, BEFORE)
        await self.in_file(self.master, BEFORE)
        self.master.kill()
        await self.commit(self.slave, MEANWHILE)

    async def commit(self, broker: Broker, offset: int, group: str = GROUP) -> None:
        await self.admin.update_offset(broker.address, group, TOPIC, 0, offset)

    async def offset_at(self, broker: Broker, group: str = GROUP) -> int | None:
        table = await self.admin.all_offsets(broker.address)
        return table.get(f"{TOPIC}@{group}", {}).get(0)

    async def copied_again(self) -> None:
        """Wait until the slave has copied its master once more: a group of our own shows it."""
        group = f"marker-{time.monotonic_ns()}"
        await self.commit(self.master, 1, group)
        await self.reaches(self.slave, 1, group=group)

    async def reaches(
        self, broker: Broker, wanted: int, *, end: bool = False, group: str = GROUP
    ) -> None:
        """Wait until a committed offset, or the queue's end, is ``wanted``."""
        deadline = time.monotonic() + 90 * SCALE
        found: int | None = None
        while found != wanted:
            assert time.monotonic() < deadline, f"{broker.name}: {found}, wanted {wanted}"
            await asyncio.sleep(0.05)
            try:
                if end:
                    found = await self.admin.max_offset(broker.address, TOPIC, 0)
                else:
                    found = await self.offset_at(broker, group)
            except (BrokerError, RemotingError, ProtocolError):
                found = None

    async def in_file(self, broker: Broker, wanted: int) -> None:
        """Wait until ``consumerOffset.json`` of a broker says ``wanted``."""
        file = broker.store / "config" / "consumerOffset.json"
        deadline = time.monotonic() + 60 * SCALE
        while not _says(file.read_text() if file.exists() else "", wanted):
            assert time.monotonic() < deadline, f"{file} never said {wanted}"
            await asyncio.sleep(0.05)


def _says(text: str, wanted: int) -> bool:
    try:
        return parse_offset_table(text).get(f"{TOPIC}@{GROUP}", {}).get(0) == wanted
    except ProtocolError:
        return False
