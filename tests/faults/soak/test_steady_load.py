"""Minutes of steady load with file rolling, expiry and slave restarts: nothing grows.

Half of the rate that the first seconds measure is kept up for ``FAILBACK_SOAK_SECONDS`` (480). One
row a minute is printed; a shorter soak has shorter rows. Intervals run at a hundredth or so of
theirs, so files expire after most of a minute.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.faults.soak.paced_load import QUEUES, Consumer, Producer, process_figures
from tests.support.common.polling import SCALE
from tests.support.java.apache import Broker

pytestmark = pytest.mark.soak

SECONDS = float(os.environ.get("FAILBACK_SOAK_SECONDS", "480"))
ROWS = 8
FASTEST_SECONDS = 8.0
SAMPLE_SECONDS = 2.0
SLAVE_LIFE_SECONDS = 40.0
OLD_READ_SECONDS = 5.0
SETTINGS: dict[str, object] = {
    "failbackTimeScale": 0.015,
    "fileReservedTime": 1,  # hours, so 54 s
    "deleteWhen": ";".join(map(str, range(24))),
    "mappedFileSizeCommitLog": 8 << 20,
    "mappedFileSizeConsumeQueue": 60_000,
    "maxHashSlotNum": 50_000,
    "maxIndexNum": 100_000,
}
GROWTH_KIB = 6 << 10
GROWTH_FILES = 12


@dataclass
class Row:
    """The highest figures of a stretch of time."""

    seconds: float = 0.0
    sent: int = 0
    consumed: int = 0
    figures: dict[str, dict[str, int]] = field(default_factory=dict)
    log_files: int = 0
    queue_files: int = 0
    restarts: int = 0

    def add(self, who: str, figures: dict[str, int]) -> None:
        high = self.figures.setdefault(who, dict(figures))
        for name, value in figures.items():
            high[name] = max(high[name], value)

    def __str__(self) -> str:
        master, slave = self.figures["master"], self.figures.get("slave", {})
        return (
            f"{self.seconds:6.0f} {self.sent / max(self.seconds, 0.001):8.0f} "
            f"{self.consumed / max(self.seconds, 0.001):10.0f} "
            f"{master['anon']:12d} {master['file']:9d} {master['fds']:6d} {master['others']:7d} "
            f"{master['threads']:8d} {slave.get('anon', 0):12d} {slave.get('fds', 0):6d} "
            f"{self.log_files:5d} {self.queue_files:12d} {self.restarts:9d}"
        )


HEADING = (
    "seconds   sent/s consumed/s master: anon      file  files  others  threads  slave: anon  files"
    "  logs  queue files  restarts"
)


class Soak:
    """A pair and its load."""

    def __init__(self, folder: Path) -> None:
        self.master = Broker("failback", folder / "master", "", settings=dict(SETTINGS))
        self.slave = Broker(
            "failback", folder / "slave", "", role="SLAVE", broker_id=1, settings=dict(SETTINGS)
        )
        self.slave.settings["haMasterAddress"] = f"127.0.0.1:{self.master.port + 1}"
        self.producer = Producer(256)
        self.consumers = [Consumer(queue) for queue in range(QUEUES)]
        self.old_reader = Consumer(0)
        self.restarts = 0
        self._random = Random(7)

    async def start(self) -> None:
        for broker in (self.master, self.slave):
            await asyncio.to_thread(broker.start)
        await self._connect(self.master, lambda: self.producer)
        for consumer in self.consumers:
            await self._connect(self.master, lambda consumer=consumer: consumer)  # type: ignore[misc]

    @staticmethod
    async def _connect(broker: Broker, protocol: Callable[[], asyncio.Protocol]) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(protocol, "127.0.0.1", broker.port)

    async def measure_fastest(self) -> float:
        """Return messages a second with 64 outstanding, after a moment to warm up."""
        await asyncio.sleep(FASTEST_SECONDS / 4)
        before, began = self.producer.acknowledged, time.monotonic()
        await asyncio.sleep(FASTEST_SECONDS)
        return (self.producer.acknowledged - before) / (time.monotonic() - began)

    async def restart_slave(self) -> None:
        """End the slave, by a kill every other time, and start it a second later."""
        self.restarts += 1
        if self.restarts % 2:
            await asyncio.to_thread(self.slave.kill)
        else:
            assert await asyncio.to_thread(self.slave.stop) == 0
        await asyncio.sleep(1)
        await asyncio.to_thread(self.slave.start)

    async def restart_slaves(self) -> None:
        while True:
            await asyncio.sleep(min(SLAVE_LIFE_SECONDS, SECONDS / 6))
            await self.restart_slave()

    async def read_what_is_old(self) -> None:
        """Begin a queue again, every few seconds: cold files are mapped, and let go again."""
        while True:
            await asyncio.sleep(OLD_READ_SECONDS)
            self.old_reader.close()
            self.old_reader = Consumer(self._random.randrange(QUEUES), 0)
            reader = self.old_reader
            await self._connect(self.master, lambda reader=reader: reader)  # type: ignore[misc]
            await asyncio.sleep(1)
            reader.close()

    def sample(self, row: Row) -> None:
        row.add("master", process_figures(self.master.process.pid))
        if self.slave.process.alive:
            with suppress(OSError, KeyError):  # it is being restarted
                row.add("slave", process_figures(self.slave.process.pid))
        queues = self.master.store / "consumequeue"
        row.queue_files = max(row.queue_files, sum(1 for _ in queues.glob("*/*/*")))
        row.log_files = max(row.log_files, len(os.listdir(self.master.store / "commitlog")))

    async def rows(self) -> list[Row]:
        """Watch for :data:`SECONDS`, print a row for each eighth, return the rows."""
        found = []
        print(HEADING, flush=True)
        for _ in range(ROWS):
            row, began = Row(restarts=-self.restarts), time.monotonic()
            sent, consumed = self.producer.acknowledged, self._consumed()
            while time.monotonic() - began < SECONDS / ROWS:
                await asyncio.sleep(min(SAMPLE_SECONDS, SECONDS / ROWS / 3))
                assert self.producer.lost is None, self.producer.lost
                self.sample(row)
            row.seconds = time.monotonic() - began
            row.sent = self.producer.acknowledged - sent
            row.consumed = self._consumed() - consumed
            row.restarts += self.restarts
            print(row, flush=True)
            found.append(row)
        return found

    def _consumed(self) -> int:
        return sum(consumer.consumed for consumer in self.consumers)

    async def finish(self) -> None:
        """Let everything arrive, stop both in order, compare what both have."""
        self.producer.stop()
        await _reached(lambda: self.producer.outstanding == 0, "every send is answered")
        await _reached(
            lambda: self._consumed() >= self.producer.acknowledged, "everything is consumed"
        )
        assert set(self.producer.codes) == {0}, self.producer.codes
        assert self._consumed() == self.producer.acknowledged
        assert not any(consumer.gaps or consumer.moved for consumer in self.consumers)
        logs = [broker.store / "commitlog" for broker in (self.master, self.slave)]
        await _reached(lambda: _tail(logs[0]) == _tail(logs[1]), "the slave has everything")
        ends: list[Consumer | Producer] = [*self.consumers, self.old_reader, self.producer]
        for end in ends:
            end.close()
        for broker in (self.master, self.slave):
            assert await asyncio.to_thread(broker.stop) == 0
            assert "Traceback" not in broker.process.errors()

    def dispose(self) -> None:
        self.master.process.dispose()
        self.slave.process.dispose()


def _tail(log: Path) -> tuple[str, bytes]:
    """Return name and content of the last file of a log."""
    last = max(log.iterdir())
    return last.name, last.read_bytes()


async def _reached(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 120 * SCALE
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.2)


async def test_nothing_grows_under_steady_load(tmp_path: Path) -> None:
    soak = Soak(tmp_path)
    tasks: list[asyncio.Task[None]] = []
    try:
        await soak.start()
        fastest = await soak.measure_fastest()
        soak.producer.rate = fastest / 2
        print(f"\nfastest {fastest:.0f} messages/s with 64 outstanding; half of it from now on")
        tasks = [
            asyncio.create_task(soak.restart_slaves()),
            asyncio.create_task(soak.read_what_is_old()),
        ]
        rows = await soak.rows()
        for task in tasks:
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not soak.slave.process.alive:  # cancelled between its end and its start
            await asyncio.to_thread(soak.slave.start)
        await soak.finish()
    finally:
        for task in tasks:
            task.cancel()
        soak.dispose()
    assert soak.restarts >= 3
    # The row in which the first minute ends; a trial of less than two is settled at half-time.
    minute = 59 if SECONDS >= 120 else SECONDS / 2
    first = next(n for n in range(ROWS) if sum(row.seconds for row in rows[: n + 1]) >= minute)
    settled = rows[first].figures["master"]
    for row in rows[first + 1 :]:
        later = row.figures["master"]
        assert later["anon"] <= settled["anon"] + GROWTH_KIB, "anonymous memory grows"
        assert later["others"] <= settled["others"] + GROWTH_FILES, "open files grow"
        assert later["fds"] - later["others"] <= 2 * row.queue_files + 16, "deleted files stay open"
        assert later["threads"] <= settled["threads"] + 2
        assert row.log_files <= rows[first].log_files * 2 + 10, "files do not expire"
        assert row.sent > 0
