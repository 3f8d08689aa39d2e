"""A pair that nobody but the test runs, Java clients on it, and an observer beside.

The truth is what the Java consumers print, a line for each delivery.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tools.setup_java import SERVER_VERSION

from failback.analytics.report.make_report import report
from failback.analytics.trace.records import TRACE_TOPIC
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingSettings
from tests.support.common.polling import wait_until
from tests.support.java.apache import Broker, Engine, NameServer, got_by
from tests.support.java.java_lab import Lab
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

TOPIC: Final = "orders"
COPIES_NONE: Final = "5.5.0"
"""A published slave of this version never copies consumer offsets (apache/rocketmq#10284)."""
Copy = tuple[str, int, int]
"""Broker, queue id and offset."""


class Observed:
    """A pair of one engine under load, with a consumer of group ``billing``."""

    def __init__(
        self,
        lab: Lab,
        engine: Engine,
        *,
        groups: tuple[str, ...] = ("billing",),
        is_traced: bool = False,
        options: tuple[str, ...] = (),
        consumers: Mapping[str, int] | None = None,
    ) -> None:
        """Make processes of a pair; none is started.

        Args:
            groups: Of consumers.
            is_traced: Consumers trace, to a broker that stays, and the observer reads it.
            options: Of the observer.
            consumers: Options of the consumers' program.
        """
        self.consumers = dict(consumers or {})
        self.lab = lab
        self.is_traced = is_traced
        self.keepers: list[Broker] = []
        self.namesrv: NameServer = lab.namesrv(engine)
        self.master: Broker = lab.broker(engine, self.namesrv)
        self.slave: Broker = lab.broker(engine, self.namesrv, broker_id=1, role="SLAVE")
        self.members: dict[str, list[TestProcess]] = {group: [] for group in groups}
        self.out: Path = lab.folder / "run"
        self.observer = self._observer(options)

    def start_brokers(self) -> None:
        if self.is_traced:
            settings = {"traceTopicEnable": "true", "autoCreateTopicEnable": "false"}
            self.keepers.append(
                self.lab.broker(self.master.engine, self.namesrv, name="keeper", settings=settings)
            )
        for broker in (*self.keepers, self.master, self.slave):
            broker.start()
            self.wait_listed(broker)

    def wait_listed(self, broker: Broker) -> None:
        """Wait until clients can find a broker; one of 5.x serves before the name server knows."""
        wait_until(lambda: asyncio.run(self._is_listed(broker)), f"{broker.address} is listed", 60)

    async def _is_listed(self, broker: Broker) -> bool:
        settings = RemotingSettings(access=self.lab.access)
        async with AdminClient([self.namesrv.address], settings=settings) as admin:
            members = (await admin.cluster_info()).members()
        return broker.address in {member.addr for member in members}

    def begin(self, *, interval: int = 5, is_observed: bool = True) -> TestProcess:
        """Start clients, and return when offsets are on the master's disk and observed.

        Returns the producer, which sends every ``interval`` ms.
        """
        first = self.lab.program("Producer", self.namesrv, topic=TOPIC, count=4)
        first.wait_for("done")
        for group in self.members:
            self.join(group)
        producer = self.lab.program("Producer", self.namesrv, topic=TOPIC, interval=interval)
        if is_observed:
            self.observer.start()
            self.observer.wait_for("observing")
        # The master's file is written 10 s after its start first, then every 5 s.
        wait_until(self._file_has_offsets, "offsets on the master's disk", 60)
        if self.lab.version != SERVER_VERSION:
            # 5.x copies topics and offsets to its slave a minute after its start, then each minute.
            # Without its topic the slave serves no message and takes no commit.
            wait_until(self._slave_has_all, "topics and offsets on the slave's disk", 150)
        time.sleep(3)
        return producer

    def join(self, group: str = "billing", *, topic: str = TOPIC) -> TestProcess:
        options: dict[str, object] = {"topic": topic, "group": group, **self.consumers}
        if self.is_traced:
            options["trace"] = TRACE_TOPIC
        member = self.lab.program("PushConsumer", self.namesrv, **options)
        self.members[group].append(member)
        member.wait_for("started")
        wait_until(lambda: got_by(member), f"a delivery to {group}", 60)
        return member

    def leave(self, group: str = "billing") -> None:
        """The member that came last shuts down cleanly."""
        self.members[group][-1].stop()

    def outage(self, seconds: float, during: Callable[[], None] | None = None) -> None:
        """Kill the master, wait, start it again; return when clients can find it."""
        self.master.kill()
        time.sleep(seconds)
        if during is not None:
            during()
        self.master.start()
        self.wait_listed(self.master)

    def stop_observing(self, codes: tuple[int, ...] = (0, 3)) -> dict[str, Any]:
        """Stop the observer, which ends with one of these codes; return its report."""
        assert self.observer.stop() in codes, self.observer.errors()
        made = report(self.out)
        found: dict[str, Any] = json.loads(made.json.read_text())
        return found

    def again(self, group: str = "billing") -> Counter[int]:
        """How many distinct messages the group was handed more than once, by queue."""
        return Counter(queue for (_, queue, _), count in self.handed(group).items() if count > 1)

    def handed(self, group: str = "billing") -> Counter[Copy]:
        """How often each message was handed to the group."""
        seen: Counter[Copy] = Counter()
        for member in self.members[group]:
            for got in got_by(member):
                if got.reconsume_times == 0:
                    seen[got.broker, got.queue_id, got.queue_offset] += 1
        return seen

    @contextmanager
    def blind(self) -> Iterator[None]:
        """Let the observer stand still while the block runs."""
        os.kill(self.observer.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.observer.pid, signal.SIGCONT)

    def _file_has_offsets(self) -> bool:
        return self._has_offsets(self.master)

    def _slave_has_all(self) -> bool:
        copies_none = self.lab.version == COPIES_NONE
        has_topic = self._has(self.slave, "topics.json", f'"{TOPIC}"')
        return has_topic and (copies_none or self._has_offsets(self.slave))

    def _has_offsets(self, broker: Broker) -> bool:
        return self._has(broker, "consumerOffset.json", f"{TOPIC}@billing")

    @staticmethod
    def _has(broker: Broker, file: str, text: str) -> bool:
        path = broker.store / "config" / file
        return path.exists() and text in path.read_text()

    def _observer(self, options: tuple[str, ...]) -> TestProcess:
        trace = ["--trace"] if self.is_traced else []
        command = failback_command(
            "cli",
            "observe",
            *self.lab.cluster_options(self.namesrv),
            "--out",
            str(self.out),
            *trace,
            *options,
        )
        environment = failback_environment()
        return self.lab.keep(
            TestProcess("observer", command, self.lab.folder, environment=environment)
        )
