"""A pair on whose slave two groups of eight queues went on while the master was down."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from failback.client.admin.admin import AdminClient
from failback.protocol.codes import RequestCode
from failback.protocol.errors import FailbackError
from failback.protocol.headers import SendMessageRequestHeader
from failback.protocol.route import TopicConfig, parse_offset_table
from tests.support.common.polling import SCALE
from tests.support.java.apache import Engine
from tests.support.java.java_lab import Lab
from tests.support.processes.child_process import failback_command, failback_environment

TOPIC = "orders"
GROUPS = ("billing", "audit")
QUEUES = range(8)
STORED, BEFORE, MEANWHILE = 20, 5, 12
"""Messages of a queue, and where both groups stood before the kill and at the return."""


class EightQueues:
    """Start, :meth:`die`, and ``master.start()``."""

    def __init__(self, lab: Lab, engine: Engine, time_scale: float = 1.0) -> None:
        settings: dict[str, object] = {"failbackRules": "compat", "failbackTimeScale": time_scale}
        ours = settings if engine == "failback" else {}
        self.ns = lab.namesrv(engine)
        self.master = lab.broker(engine, self.ns, settings=ours)
        self.slave = lab.broker(engine, self.ns, settings=ours, broker_id=1, role="SLAVE")
        if engine == "failback":
            self.master.settings["failbackMembers"] = f"{self.master.address};{self.slave.address}"
        self.master.start()
        self.slave.start()
        self.admin = AdminClient([self.ns.address], timeout_ms=5000)

    async def fill(self) -> None:
        """Store messages; both groups commit, and the slave has copied it."""
        await self.admin.create_topic(self.master.address, TopicConfig(TOPIC, 8, 8))
        for queue in [*QUEUES] * STORED:
            header = SendMessageRequestHeader("PG", TOPIC, "TBW102", 4, queue, 0, 1, 0, "", 0)
            await self.admin.ask(self.master.address, RequestCode.SEND_MESSAGE, header, b"x")
        await self.commit(self.master.address, BEFORE)
        await self._until(lambda: self.offsets(self.slave.address), BEFORE)
        await self._until(self._file, BEFORE)

    async def die(self) -> None:
        """:meth:`fill`, then kill the master; both groups go on at the slave."""
        await self.fill()
        self.master.kill()
        await self.commit(self.slave.address, MEANWHILE)

    async def commit(self, address: str, offset: int, groups: tuple[str, ...] = GROUPS) -> None:
        for group in groups:
            for queue in QUEUES:
                await self.admin.update_offset(address, group, TOPIC, queue, offset)

    async def offsets(self, address: str) -> list[int]:
        """Return the offsets of both groups; those of the first come first."""
        return _listed(await self.admin.all_offsets(address))

    async def _file(self) -> list[int]:
        file = self.master.store / "config" / "consumerOffset.json"
        return _listed(parse_offset_table(file.read_text()) if file.exists() else {})

    async def _until(self, look: Callable[[], Awaitable[list[int]]], offset: int) -> None:
        deadline = time.monotonic() + 90 * SCALE
        found: list[int] = []
        while found != [offset] * 16:
            assert time.monotonic() < deadline, f"{found}, wanted {offset}"
            await asyncio.sleep(0.1)
            try:
                found = await look()
            except FailbackError:
                found = []

    async def said(self, *words: str, cwd: Path) -> tuple[int, str, str]:
        """Run ``failback offsets``; return its code, output and errors."""
        words = ("offsets", *words, "--namesrv", self.ns.address)
        done = await asyncio.to_thread(
            subprocess.run,
            failback_command("cli", *words),
            env=failback_environment(),
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=60 * SCALE,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr


def _listed(table: Mapping[str, Mapping[int, int]]) -> list[int]:
    told = [table.get(f"{TOPIC}@{group}", {}) for group in GROUPS]
    return [each.get(queue, -1) for each in told for queue in QUEUES]
