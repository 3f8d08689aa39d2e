"""A broker, or a pair, under load, killed with SIGKILL at instants drawn from a seed."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

from failback.broker.config.config import BrokerConfig
from failback.broker.config.identity import BrokerIdentity
from failback.broker.startup.store_settings import store_config
from failback.broker.store.message_store import MessageStore
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import RemotingError
from failback.protocol.headers import QueryConsumerOffsetRequestHeader
from failback.protocol.message import MessageExt
from failback.protocol.stats import KVTable
from tests.faults.store.broker_load import GROUP, TOPIC, Acknowledged, LoadConnection
from tests.faults.store.fork_server import ForkServer
from tests.support.common.polling import SCALE
from tests.support.java.apache import Broker
from tests.support.store.store_kit import assert_queues_agree_with_log, log_messages

MODES: Final = {
    "ASYNC_MASTER+ASYNC_FLUSH": ("ASYNC_MASTER", "ASYNC_FLUSH"),
    "SYNC_MASTER+ASYNC_FLUSH": ("SYNC_MASTER", "ASYNC_FLUSH"),
    "SYNC_MASTER+SYNC_FLUSH": ("SYNC_MASTER", "SYNC_FLUSH"),
}
SETTINGS: Final[dict[str, object]] = {
    "failbackTimeScale": 0.02,
    "mappedFileSizeCommitLog": 1 << 18,
    "mappedFileSizeConsumeQueue": 4000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 500,
    "transactionCheckInterval": 3_600_000,
}


class KilledPair:
    """A master, in two of the modes with a slave; use as an asynchronous context."""

    def __init__(self, folder: Path, mode: str, seed: int) -> None:
        role, flush = MODES[mode]
        self.random = Random(seed)
        self.acknowledged = Acknowledged()
        self.counts: Counter[str] = Counter()
        self.master = self._broker(folder / "master", role, 0, flush)
        self.slave: Broker | None = None
        if role == "SYNC_MASTER":
            self.slave = self._broker(folder / "slave", "SLAVE", 1, flush)
            self.slave.settings["haMasterAddress"] = f"127.0.0.1:{self.master.port + 1}"
        self._pids: dict[int, int] = {}

    @staticmethod
    def _broker(folder: Path, role: str, broker_id: int, flush: str) -> Broker:
        broker = Broker("failback", folder, "", role=role, broker_id=broker_id)
        broker.settings |= SETTINGS | {"flushDiskType": flush}
        folder.mkdir(parents=True)
        return broker

    async def __aenter__(self) -> KilledPair:
        self._forks = ForkServer().__enter__()
        self.client = RemotingClient()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()
        self._forks.__exit__()

    # --- processes ------------------------------------------------------------------------------

    def start(self, broker: Broker) -> None:
        conf = broker.folder / "broker.conf"
        conf.write_text(broker.conf())
        self._pids[broker.port] = self._forks.start(conf, broker.folder / "broker.log")

    def kill(self, broker: Broker) -> None:
        code = self._forks.end(self._pids[broker.port], signal.SIGKILL)
        assert code == -signal.SIGKILL, self.log(broker)

    def stop(self, broker: Broker) -> None:
        code = self._forks.end(self._pids[broker.port], signal.SIGTERM)
        assert code == 0, self.log(broker)

    def log(self, broker: Broker) -> str:
        return (broker.folder / "broker.log").read_text()[-3000:]

    # --- load and kills -------------------------------------------------------------------------

    async def connect(self) -> LoadConnection:
        """Connect to the master as soon as it serves."""
        loop = asyncio.get_running_loop()
        pid, deadline = self._pids[self.master.port], time.monotonic() + 60 * SCALE
        while True:
            assert not self._forks.is_dead(pid), self.log(self.master)
            assert time.monotonic() < deadline, self.log(self.master)
            with suppress(OSError):
                _, load = await loop.create_connection(
                    lambda: LoadConnection(self.acknowledged, self.random),
                    "127.0.0.1",
                    self.master.port,
                )
                return load
            await asyncio.sleep(0.003)

    async def kill_under_load(self, kills: int) -> None:
        """Kill master or slave ``kills`` times: mostly under load, else while it starts."""
        self.start(self.master)
        if self.slave is not None:
            self.start(self.slave)
        load = await self.connect()
        for _ in range(kills):
            if self.slave is not None and self.random.random() < 0.25:
                await self._kill_slave(load)
                if load.lost.is_set():
                    load = await self.connect()
                continue
            if self.random.random() < 0.8:
                async with asyncio.timeout(60 * SCALE):
                    await (
                        load.first_ok if self.random.random() < 0.7 else load.first_answer
                    ).wait()
                await asyncio.sleep(self.random.uniform(0, 0.15))
                self.counts["master under load"] += 1
            else:
                await asyncio.sleep(self.random.uniform(0, 0.06))
                self.counts["master while it starts or begins"] += 1
            self.kill(self.master)
            load.close()
            await load.lost.wait()
            if self.slave is not None:
                await self._check_replicated(self.slave)
            self.start(self.master)
            load = await self.connect() if self.random.random() < 0.8 else _Nobody()
            if isinstance(load, _Nobody):  # killed again before anybody was served
                await asyncio.sleep(self.random.uniform(0, 0.08))
                self.kill(self.master)
                self.counts["master while it starts or begins"] += 1
                self.start(self.master)
                load = await self.connect()
        await load.first_answer.wait()
        load.stop()
        async with asyncio.timeout(60 * SCALE):
            await load.drained.wait()
        load.close()

    async def _kill_slave(self, load: LoadConnection) -> None:
        assert self.slave is not None
        await asyncio.sleep(self.random.uniform(0, 0.15))
        self.kill(self.slave)
        self.counts["slave"] += 1
        await asyncio.sleep(self.random.uniform(0, 0.1))
        self.start(self.slave)

    async def _check_replicated(self, slave: Broker) -> None:
        """What was answered with SEND_OK while the master waited for its slave is on the slave."""
        end = await self._end_of(slave)
        assert end >= self.acknowledged.replicated_end, "SEND_OK, and the slave does not have it"

    async def _end_of(self, broker: Broker) -> int:
        return int((await self._info_of(broker))["commitLogMaxOffset"])

    async def _info_of(self, broker: Broker) -> dict[str, str]:
        request = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
        answer = await self.ask(broker, request)
        assert answer.code == 0, answer
        return KVTable.from_json(answer.body).table

    async def ask(self, broker: Broker, request: RemotingCommand) -> RemotingCommand:
        """Ask until the broker, which may have been started just now, answers."""
        deadline = time.monotonic() + 60 * SCALE
        while True:
            try:
                return await self.client.invoke(broker.address, request, 10_000 * SCALE)
            except RemotingError:
                assert time.monotonic() < deadline, self.log(broker)
                await asyncio.sleep(0.01)

    # --- afterwards -----------------------------------------------------------------------------

    async def settle(self) -> None:
        """Wait until delayed messages are delivered and the slave has everything; stop both."""
        header = QueryConsumerOffsetRequestHeader(GROUP, TOPIC, 0)
        request = RemotingCommand.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        if max(self.acknowledged.offsets) >= 0:
            answer = await self.ask(self.master, request)
            offset = int((answer.ext_fields or {}).get("offset", -1))
            assert offset in {*self.acknowledged.offsets, 0}
        await self._wait_delivered()
        if self.slave is not None:
            deadline = time.monotonic() + 60 * SCALE
            while await self._end_of(self.slave) < await self._end_of(self.master):
                assert time.monotonic() < deadline, self.log(self.slave)
                await asyncio.sleep(0.02)
        self.stop(self.master)
        if self.slave is not None:
            self.stop(self.slave)

    async def _wait_delivered(self) -> None:
        """Return when the delay service has delivered all that waits, and nothing follows it.

        What it delivers may wait once more: a message that was sent back by its delay's topic.
        """
        quiet, end = 0, -1
        deadline = time.monotonic() + 120 * SCALE
        while quiet < 20:
            assert time.monotonic() < deadline, "the log does not come to rest"
            await asyncio.sleep(0.05)
            info = await self._info_of(self.master)
            delays = [value for key, value in info.items() if key.startswith("scheduleMessageO")]
            waits = any(each.split(",")[0] != each.split(",")[1] for each in delays)
            waits |= bool(self.acknowledged.delayed) and not delays
            now = int(info["commitLogMaxOffset"])
            quiet, end = (quiet + 1, end) if now == end and not waits else (0, now)

    def check(self) -> None:
        """Everything acknowledged is in the master's store; the slave's log is the same."""
        with _opened(self.master) as store:
            messages = log_messages(store)
            assert_queues_agree_with_log(store)
            self._check_messages(messages)
            if self.slave is not None:
                with _opened(self.slave) as copy:
                    assert_queues_agree_with_log(copy)
                    assert _log_bytes(copy) == _log_bytes(store)[copy.min_physical_offset :]

    def _check_messages(self, messages: list[MessageExt]) -> None:
        known = self.acknowledged
        by_topic: dict[str, dict[int, list[MessageExt]]] = {}
        for message in messages:
            number = int.from_bytes(message.body[:6], "big")
            by_topic.setdefault(message.topic, {}).setdefault(number, []).append(message)
        load = by_topic.get(TOPIC, {})
        for number, place in known.stored.items():
            found = [(m.queue_id, m.queue_offset, m.physical_offset) for m in load.get(number, [])]
            assert (place.queue_id, place.queue_offset, place.physical_offset) in found, number
        halves = by_topic.get("RMQ_SYS_TRANS_HALF_TOPIC", {})
        assert known.half.keys() <= halves.keys()
        assert known.committed <= load.keys(), "committed transactions without their message"
        assert known.delayed <= load.keys(), "delayed messages that were never delivered"
        retried = by_topic.get(f"%RETRY%{GROUP}", {}).keys()
        assert known.sent_back <= retried, "messages sent back that never were re-consumed"


class _Nobody(LoadConnection):
    """Stands for no connection."""

    def __init__(self) -> None:
        pass


class _opened:  # noqa: N801 - used like a function
    """The store of a stopped broker, opened in this process."""

    def __init__(self, broker: Broker) -> None:
        config = BrokerConfig.load(broker.folder / "broker.conf", environment={})
        self._store = MessageStore(store_config(config, BrokerIdentity.of(config)))

    def __enter__(self) -> MessageStore:
        report = self._store.load()
        assert report.clean
        return self._store

    def __exit__(self, *_: object) -> None:
        self._store.close()


def _log_bytes(store: MessageStore) -> bytes:
    parts, position = [], store.min_physical_offset
    while position < store.max_physical_offset:
        part = bytes(store.read_raw(position, 1 << 30))
        parts.append(part)
        position += len(part)
    return b"".join(parts)


def table(pair: KilledPair, mode: str, seconds: float) -> str:
    """Return what happened, as lines for a person."""
    known = pair.acknowledged
    kills = ", ".join(f"{count} {what}" for what, count in sorted(pair.counts.items()))
    codes = ", ".join(f"code {code}: {count}" for code, count in sorted(known.codes.items()))
    return (
        f"\n{mode}: {sum(pair.counts.values())} kills ({kills}) in {seconds:.0f} s\n"
        f"  acknowledged: {len(known.stored)} messages, {len(known.delayed)} delayed, "
        f"{len(known.half)} half, {len(known.committed)} committed, {len(known.sent_back)} sent "
        f"back, {len(known.offsets) - 1} offsets; {codes}; lost: 0"
    )
