"""A real Prometheus that scrapes real processes, and a pair of brokers with an exporter for it.

Brokers run at :data:`BROKER_SCALE` of their periods and the chart's rules at times that are
shorter by :data:`RULES_FACTOR`, so that a minute of the rules passes in seconds. Limits that are
seconds, or messages and bytes that grow with them, are given for each lab.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from failback.client.admin.admin import AdminClient
from failback.client.remoting.settings import ClientSettings
from failback.protocol.errors import FailbackError
from failback.protocol.route import TopicConfig, parse_offset_table
from tests.support.common.polling import SCALE as PATIENCE
from tests.support.common.polling import wait_until
from tests.support.dashboard.alert_rules import hurried, prometheus_home
from tests.support.java.apache import Broker, NameServer
from tests.support.net.ports import free_port, free_port_block
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

BROKER_SCALE = 0.2
RULES_FACTOR = 20.0
THRESHOLDS = {
    "SlaveSyncStale": ("> 30", "> 8"),
    "OffsetPersistStale": ("> 15", "> 6"),
    "OffsetOverwriteImminent": ("< 100", "< 30"),
    "ReconsumeExposureHigh": ("> 10000", "> 2000"),
}
"""Limits for brokers of that scale, with room for a machine that is busy."""
PERIOD = "500ms"
KEY = "T@g"


class Prometheus:
    """One server with the chart's rules, on its own port."""

    def __init__(
        self,
        folder: Path,
        targets: Mapping[str, Sequence[int]],
        thresholds: Mapping[str, tuple[str, str]] = THRESHOLDS,
    ) -> None:
        """Make it, not started.

        Args:
            targets: Jobs with the ports on 127.0.0.1 that they scrape.
            thresholds: As of :func:`tests.support.dashboard.alert_rules.hurried`.
        """
        self.folder = folder
        self.port = free_port()
        folder.mkdir(parents=True)
        (folder / "rules.json").write_text(json.dumps(hurried(RULES_FACTOR, thresholds)))
        config = {
            "global": {
                "scrape_interval": PERIOD,
                "scrape_timeout": PERIOD,
                "evaluation_interval": PERIOD,
            },
            "rule_files": ["rules.json"],
            "scrape_configs": [
                {
                    "job_name": job,
                    "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}],
                }
                for job, ports in targets.items()
            ],
        }
        (folder / "prometheus.yml").write_text(json.dumps(config))
        self.process = TestProcess(
            "prometheus",
            [
                str(prometheus_home() / "prometheus"),
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--log.level=warn",
            ],
            folder,
        )

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the samples of an expression now."""
        words = urllib.parse.urlencode({"query": expression})
        address = f"http://127.0.0.1:{self.port}/api/v1/query?{words}"
        with urllib.request.urlopen(address, timeout=30 * PATIENCE) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found

    def fired(self, since_seconds: float = 600) -> set[str]:
        """Return the alerts that have fired within these seconds."""
        window = f"{round(since_seconds * 1000)}ms"
        rows = self.query(f'max_over_time(ALERTS{{alertstate="firing"}}[{window}])')
        return {row["metric"]["alertname"] for row in rows}

    def firing(self) -> set[str]:
        """Return the alerts that fire now."""
        return {row["metric"]["alertname"] for row in self.query('ALERTS{alertstate="firing"}')}

    def is_ready(self) -> bool:
        try:
            return bool(self.query("up"))
        except OSError:
            return False


@contextmanager
def watching(
    folder: Path,
    targets: Mapping[str, Sequence[int]],
    thresholds: Mapping[str, tuple[str, str]] = THRESHOLDS,
) -> Iterator[Prometheus]:
    """Run a Prometheus until the block ends; it has looked at its targets before it begins."""
    found = Prometheus(folder, targets, thresholds)
    try:
        found.process.start()
        wait_until(found.is_ready, "Prometheus", 60)
        yield found
    finally:
        found.process.dispose()


@contextmanager
def exporting(folder: Path, *arguments: str) -> Iterator[int]:
    """Run an exporter until the block ends; yield its port."""
    port = free_port()
    process = TestProcess(
        "exporter",
        failback_command("cli", "exporter", *arguments, "--port", str(port), "--interval", "0.3"),
        folder,
        environment=failback_environment(),
    )
    try:
        process.start()
        process.wait_for("exporter on")
        yield port
    finally:
        process.dispose()


class AlertLab:
    """Name server, master, slave, exporter and Prometheus; ends all of them."""

    def __init__(self, folder: Path, **settings: object) -> None:
        """``settings`` are more lines of both brokers' configuration."""
        self.folder = folder
        self.namesrv = NameServer("failback", folder / "namesrv")
        self.admin = AdminClient()
        self.nodes: list[Broker] = []
        self._more = settings
        self._stack = ExitStack()

    async def __aenter__(self) -> Self:
        try:
            await self._begin()
        except BaseException:
            self._dispose()
            raise
        return self

    async def _begin(self) -> None:
        self._stack.callback(self.namesrv.process.dispose)
        self.namesrv.start()
        self.nodes += [self._node(0, "ASYNC_MASTER"), self._node(1, "SLAVE")]
        for node in self.nodes:
            node.start()
        async with AdminClient() as admin:
            await admin.create_topic(self.master.address, TopicConfig("T", 1, 1))
        arguments = ["--namesrv", self.namesrv.address]
        exporter_port = self._stack.enter_context(exporting(self.folder / "exporter", *arguments))
        ports = [int(str(node.settings["failbackHttpPort"])) for node in self.nodes]
        self.prometheus = self._stack.enter_context(
            watching(self.folder / "prometheus", {"brokers": ports, "exporter": [exporter_port]})
        )

    def _node(self, number: int, role: str) -> Broker:
        return Broker(
            "failback",
            self.folder / f"broker{number}",
            self.namesrv.address,
            name="pair",
            broker_id=number,
            role=role,
            port=free_port_block(5) + 2,
            settings={
                "failbackHttpPort": free_port(),
                "failbackTimeScale": BROKER_SCALE,
                **self._more,
            },
        )

    def settings(self, time_scale: float = 1.0) -> ClientSettings:
        """Return the settings of producers and consumers of the pair."""
        return ClientSettings(
            namesrv_addrs=(self.namesrv.address,), client_ip="127.0.0.1", time_scale=time_scale
        )

    async def __aexit__(self, *_: object) -> None:
        await self.admin.close()
        self._dispose()

    def _dispose(self) -> None:
        for node in self.nodes:
            if hasattr(node, "process"):
                node.process.dispose()
        self._stack.close()

    @property
    def master(self) -> Broker:
        return self.nodes[0]

    @property
    def slave(self) -> Broker:
        return self.nodes[1]

    async def offset(self, node: Broker) -> int | None:
        """Return what a broker's table says of the group; ``None`` when it does not answer."""
        try:
            return (await self.admin.all_offsets(node.address)).get(KEY, {}).get(0, -1)
        except (FailbackError, OSError):
            return None

    async def commit(self, node: Broker, offset: int) -> None:
        await self.admin.update_offset(node.address, "g", "T", 0, offset)

    async def holds(self, node: Broker, offset: int) -> None:
        """Wait until a broker's table has the offset."""
        async with asyncio.timeout(120 * PATIENCE):
            while await self.offset(node) != offset:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.05)

    async def is_in_file(self, offset: int) -> None:
        """Wait until the master has written the offset."""
        path = self.master.store / "config" / "consumerOffset.json"

        def is_there() -> bool:
            try:
                return parse_offset_table(path.read_bytes()).get(KEY, {}).get(0) == offset
            except (OSError, FailbackError):  # just being replaced
                return False

        await self.comes(is_there, f"{offset} in the file", seconds=60)

    async def fires(self, alert: str, seconds: float = 120) -> None:
        """Wait until an alert fires."""
        await self.comes(lambda: alert in self.prometheus.fired(), f"alert {alert}", seconds)

    async def comes(self, condition: Callable[[], object], what: str, seconds: float) -> None:
        """Wait for a condition that asks others, without holding up the loop."""
        deadline = time.monotonic() + seconds * PATIENCE
        while not await asyncio.to_thread(condition):
            assert time.monotonic() < deadline, f"not within {seconds * PATIENCE:g} s: {what}"
            await asyncio.sleep(0.1)
