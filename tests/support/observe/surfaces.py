"""Asks explain-offset, dashboard and exporter each second what they say of a pair's offsets."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Final

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingSettings
from failback.protocol.errors import FailbackError
from tests.support.common.background_thread import Beside
from tests.support.dashboard.dashboard_lab import DashboardLab
from tests.support.java.apache import got_by
from tests.support.observe.answers import ALL, Answer, Queue, Sample, Truth
from tests.support.observe.cluster import TOPIC, Observed
from tests.support.processes.child_process import failback_command, failback_environment
from tests.support.processes.exporter_process import Exporter

_EXPOSURE: Final = re.compile(
    r'^rocketmq_reconsume_exposure_messages\{.*consumer_group="([^"]+)".*\} (\S+)$'
)


class SampleWatch(Beside):
    """Samples what members were handed, and what master and slave hold."""

    def __init__(self, observed: Observed) -> None:
        super().__init__("samples")
        self.truth = Truth()
        self._observed = observed

    def work(self) -> None:
        while not self.stopping.wait(0.5):
            self.truth.samples.append(asyncio.run(self._sample()))

    async def _sample(self) -> Sample:
        observed = self._observed
        settings = RemotingSettings(connect_timeout_ms=500, access=observed.lab.access)
        async with AdminClient([], settings=settings, timeout_ms=1000) as admin:
            held = [await _table(admin, each.address) for each in (observed.master, observed.slave)]
        handled: dict[Queue, int] = {}
        for group, members in observed.members.items():
            for got in (got for member in members for got in got_by(member)):
                key = group, got.queue_id
                handled[key] = max(handled.get(key, 0), got.queue_offset + 1)
        return Sample(time.time(), handled, held[0], held[1] or {})


async def _table(admin: AdminClient, address: str) -> dict[Queue, int] | None:
    try:
        found = await admin.all_offsets(address)
    except FailbackError:
        return None
    return {
        (key.partition("@")[2], queue): offset
        for key, queues in found.items()
        if key.startswith(f"{TOPIC}@")
        for queue, offset in queues.items()
    }


class AnswerWatch(Beside):
    """Asks each surface about each group once a second, as well as the machine can."""

    def __init__(self, observed: Observed, dashboard: DashboardLab, exporter: Exporter) -> None:
        super().__init__("answers")
        self.answers: list[Answer] = []
        self._observed, self._dashboard, self._exporter = observed, dashboard, exporter

    def work(self) -> None:
        number = 0
        while not self.stopping.wait(0.2):
            for group in self._observed.members:
                self.answers.append(self._explained(group, number % 4))
            self.answers += [*self._shown(), *self._exported()]
            number += 1

    def _explained(self, group: str, queue: int) -> Answer:
        words = ("explain-offset", group, TOPIC, str(queue), "--live", "--json")
        options = self._observed.lab.cluster_options(self._observed.namesrv)
        at = time.time()
        made = subprocess.run(
            failback_command("cli", *words, *options),
            env=failback_environment(), capture_output=True, text=True, check=False,
        )  # fmt: skip
        said = json.loads(made.stdout) if made.stdout.startswith("{") else {}
        bound = said.get("bound") or "not known"
        return Answer(
            at, "explain-offset", group, queue, said.get("safe_offset"), bound,
            bound == "exact" and said.get("fell_at") is None,
            bool(said) and said.get("safe_offset") is None, time.time(),
        )  # fmt: skip

    def _shown(self) -> Iterator[Answer]:
        at = time.time()
        rows = self._dashboard.ask("GET", "/api/v1/offsets").json()["offsets"]
        until = time.time()
        clusters = self._dashboard.ask("GET", "/api/v1/clusters").json()["clusters"]
        for row in rows:
            if row["topic"] == TOPIC and row["group"] in self._observed.members:
                yield Answer(
                    at, "dashboard", row["group"], row["qid"], row["safe_offset"], row["bound"],
                    row["at_risk"] == 0 or row["at_risk_on_slave"] == 0 or row["state"] == "equal",
                    row["safe_offset"] is None, until,
                )  # fmt: skip
        for pair in (pair for each in clusters for pair in each["pairs"]):
            for row in (row for row in pair["groups"] if row["group"] in self._observed.members):
                none = pair["state"] == "ok" or 0 in (row["after_return"], row["on_slave"])
                yield Answer(at, "dashboard", row["group"], ALL, says_none=none)

    def _exported(self) -> Iterator[Answer]:
        at = time.time()
        for found in filter(None, map(_EXPOSURE.match, self._exporter.lines())):
            if found[1] in self._observed.members:
                yield Answer(at, "exporter", found[1], says_none=float(found[2]) == 0)
