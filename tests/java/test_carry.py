"""``failback carry`` between the death of an Apache master and its next start, with Java clients.

Three groups go through one outage: a member of the first is stopped cleanly and another begins
after the return, the member of the second is killed, that of the third stays. The truth is what
the consumers print, a line for each delivery, before their handler. That more repeats without a
carry is seen in test_observe.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from tools.setup_java import SERVER_VERSION

from failback.carry.command import main
from failback.client.admin.admin import AdminClient
from tests.support.common.polling import wait_until
from tests.support.java.apache import got_by, sent_by
from tests.support.java.java_lab import Lab
from tests.support.observe.cluster import TOPIC, Copy, Observed
from tests.support.observe.truth import AWAY_SECONDS
from tests.support.processes.child_process import TestProcess

pytestmark = pytest.mark.long

HANDED_OVER, KILLED, STAYS = GROUPS = ("billing", "audit", "ledger")
VERSIONS = pytest.mark.parametrize(
    "lab",
    [
        pytest.param(SERVER_VERSION, marks=pytest.mark.sample),
        pytest.param("5.3.3", marks=pytest.mark.soak),
        pytest.param("5.1.4", marks=pytest.mark.soak),
        pytest.param("5.5.0", marks=pytest.mark.soak),
    ],
    indirect=True,
)
_WITH_THE_SLAVE_SECONDS = 45
"""A client reads the route every 30 s, and commits to the slave only afterwards. All that a slave
of 5.5.0 knows is told to it so."""
_ALL = "every message that was stored is handed to every group"


class Outage:
    """An outage of the master that the three groups go through, slower than the producer is."""

    def __init__(self, lab: Lab) -> None:
        self.pair = Observed(lab, "apache", groups=GROUPS, consumers={"handler": 40})
        self.pair.start_brokers()
        self.producer: TestProcess = self.pair.begin(interval=12, is_observed=False)
        self.carried: dict[str, Any] = {}
        self.told: Mapping[str, Mapping[int, int]] = {}
        """What the slave knew when the master started."""

    def run(self) -> None:
        is_short = self.pair.lab.version == SERVER_VERSION
        seconds = AWAY_SECONDS if is_short else _WITH_THE_SLAVE_SECONDS
        self.pair.outage(seconds, during=self._before_the_start)
        for group in (HANDED_OVER, KILLED):
            self.pair.join(group)
        self.producer.stop()
        sent = self._sent()
        wait_until(lambda: all(sent <= set(self.pair.handed(group)) for group in GROUPS), _ALL, 120)

    def _before_the_start(self) -> None:
        self.pair.leave(HANDED_OVER)
        self.pair.members[KILLED][-1].kill()
        self.told = asyncio.run(self._known_to_the_slave())
        report = self.pair.lab.folder / "carried.json"
        conf = self.pair.master.folder / "broker.conf"
        words = ["--conf", conf, "--slave", self.pair.slave.address, "--json", report]
        assert main([*map(str, words), "--strict"]) == 0
        self.carried = json.loads(report.read_text())

    async def _known_to_the_slave(self) -> Mapping[str, Mapping[int, int]]:
        async with AdminClient() as admin:
            return await admin.all_offsets(self.pair.slave.address)

    def _sent(self) -> set[Copy]:
        return {(each.broker, each.queue_id, each.queue_offset) for each in sent_by(self.producer)}

    def told_to_no_broker(self, group: str) -> set[Copy]:
        """What the group's first member was handed and the slave does not know to be handled."""
        told = self.told.get(f"{TOPIC}@{group}", {})
        return {
            (got.broker, got.queue_id, got.queue_offset)
            for got in got_by(self.pair.members[group][0])
            if got.queue_offset >= told.get(got.queue_id, 0)
        }

    def again(self, group: str) -> set[Copy]:
        return {copy for copy, count in self.pair.handed(group).items() if count > 1}


@VERSIONS
def test_with_a_carry_only_what_no_broker_was_told_comes_again(lab: Lab) -> None:
    outage = Outage(lab)
    outage.run()
    assert outage.carried["raised"], "the slave knew more than the file"
    assert outage.again(HANDED_OVER) == set()
    assert outage.again(STAYS) == set()
    assert outage.again(KILLED) == outage.told_to_no_broker(KILLED)
