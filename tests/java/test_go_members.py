"""Members of Apache's Go client, which commit to no broker while only a slave is there.

What is re-consumed is counted from a line for each delivery, which the member prints before its
handler. Each group handles its messages at one rate from a backlog that outlives the outage. A
member that stops handles what it has first: what it finishes in its last second reaches no keeper.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections import Counter
from itertools import pairwise

import pytest

from failback.analytics.report.make_report import report
from failback.client.admin.admin import AdminClient
from tests.support.common.polling import SCALE, wait_until
from tests.support.java.apache import Broker, Engine, got_by
from tests.support.java.java_lab import Lab
from tests.support.observe.truth import cost, holds
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

TOPIC = "orders"
MESSAGES = 16_000
THRESHOLD = 32
"""Messages of a queue that a member pulls ahead; it handles them before it stops."""
HANDLER_MS = 200
RATE = 20 * 1000 / HANDLER_MS
"""Messages a second of a group: the client has 20 handlers at once."""
KILLED_AT_MOST = round(2 * RATE * SCALE)
WATCHED_SECONDS = 40
SILENT_AT_MOST = 2 * SCALE
FROM_SLAVE = 1_000
"""Messages that a group handles in the outage at least, nearly all of them from the slave."""
HANDED, SUCCESSOR, KILLED, STAYS = "handed", "successor", "killed", "stays"
GROUPS = (HANDED, SUCCESSOR, KILLED, STAYS)


class Outage:
    """A pair whose master dies and returns, and groups whose members are of Go."""

    def __init__(self, lab: Lab, engine: Engine, groups: tuple[str, ...], **ours: object) -> None:
        self.lab = lab
        self.namesrv = lab.namesrv(engine)
        self.master: Broker = lab.broker(engine, self.namesrv, settings=dict(ours))
        self.slave: Broker = lab.broker(
            engine, self.namesrv, broker_id=1, role="SLAVE", settings=dict(ours)
        )
        if engine == "failback":
            self.master.settings["failbackMembers"] = f"{self.master.address};{self.slave.address}"
        self.members: dict[str, list[TestProcess]] = {group: [] for group in groups}
        self.returned_at = 0.0

    def begin(self) -> None:
        """Start all, and return when groups consume and the slave has copied their offsets."""
        for broker in (self.master, self.slave):
            broker.start()
        sender = self.lab.program("Producer", self.namesrv, topic=TOPIC, count=MESSAGES)
        sender.wait_for("done", 120)
        for group in self.members:
            self.join(group)
        self.wait_beyond(200)
        wait_until(lambda: asyncio.run(self._copied()), "offsets at the slave", 60)

    def join(self, group: str) -> None:
        member = self.lab.go_member(
            self.namesrv, topic=TOPIC, group=group, handler=HANDLER_MS, threshold=THRESHOLD
        )
        self.members[group].append(member)
        member.wait_for("started", 30)

    def keep(self) -> None:
        command = failback_command("cli", "carry", "--keep", "--slave", self.slave.address)
        keeper = TestProcess("keeper", command, self.lab.folder, environment=failback_environment())
        self.lab.keep(keeper).start()

    def observe(self, *options: str) -> TestProcess:
        """Start an observer of the pair; its run is ``run`` in the lab's folder."""
        where = ("--namesrv", self.namesrv.address, "--out", str(self.lab.folder / "run"))
        command = failback_command("cli", "observe", *where, *options)
        observer = TestProcess(
            "observer", command, self.lab.folder, environment=failback_environment()
        )
        self.lab.keep(observer).start()
        observer.wait_for("observing")
        return observer

    def handled(self, group: str) -> int:
        return len({key for member in self.members[group] for key in self._keys(member)})

    def again(self, group: str) -> int:
        """How many distinct messages the group was handed more than once."""
        return self.again_by_queue(group).total()

    def again_by_queue(self, group: str) -> Counter[int]:
        seen = Counter(key for member in self.members[group] for key in self._keys(member))
        return Counter(queue for (queue, _), count in seen.items() if count > 1)

    def wait_beyond(self, more: int, *groups: str) -> None:
        """Wait until each of the groups, by default all, has handled so many more messages."""
        wanted = {group: self.handled(group) + more for group in groups or self.members}
        for group, count in wanted.items():
            self.wait_handled(group, count)

    def wait_handled(self, group: str, count: int) -> None:
        wait_until(lambda: self.handled(group) >= count, f"{count} messages of {group}", 90)

    def outage(self, *, carries: bool) -> None:
        """Kill the master, consume on the slave, change members as groups say, and start it."""
        self.master.kill()
        self.wait_beyond(FROM_SLAVE)  # what was pulled from the master first
        time.sleep(3)
        for group, members in self.members.items():
            if group in (HANDED, SUCCESSOR):
                members[-1].stop()
            elif group == KILLED:
                members[-1].kill()
            if group == SUCCESSOR:
                self.join(group)
        time.sleep(2)
        if carries:
            self.carry()
        self.master.start()
        self.returned_at = time.time()
        for group in self.members.keys() & {HANDED, KILLED}:
            self.join(group)
        self.wait_beyond(500)

    def silence(self, group: str) -> float:
        """The longest time in seconds without a delivery to a group that stays, since the return.

        It is watched for longer than a guarded master withholds its lists.
        """
        self.wait_beyond(round(WATCHED_SECONDS * RATE), group)
        (member,) = self.members[group]
        words = [line.split() for line in member.lines()]
        times = [int(word[-1]) / 1000 for word in words if word[0] == "got"]
        after = [self.returned_at, *(at for at in times if at > self.returned_at)]
        return max(later - at for at, later in pairwise(after))

    def carry(self) -> None:
        conf = self.master.folder / "broker.conf"
        words = ["carry", "--conf", str(conf), "--slave", self.slave.address, "--strict"]
        done = subprocess.run(
            failback_command("cli", *words),
            env=failback_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "raised" in done.stdout

    async def _copied(self) -> bool:
        async with AdminClient([self.namesrv.address]) as admin:
            table = await admin.all_offsets(self.slave.address)
        return all(sum(table.get(f"{TOPIC}@{group}", {}).values()) for group in self.members)

    @staticmethod
    def _keys(member: TestProcess) -> list[tuple[int, int]]:
        return [
            (got.queue_id, got.queue_offset) for got in got_by(member) if not got.reconsume_times
        ]


@pytest.mark.soak
def test_with_keeper_and_carry_a_group_that_is_handed_over_repeats_nothing(lab: Lab) -> None:
    outage = Outage(lab, "apache", (HANDED,))
    outage.begin()
    outage.keep()
    outage.outage(carries=True)
    assert outage.again(HANDED) == 0


@pytest.mark.soak
@pytest.mark.parametrize("with_keeper", [False, True], ids=["control", "kept"])
def test_go_groups_on_apache(lab: Lab, with_keeper: bool) -> None:
    outage = Outage(lab, "apache", GROUPS)
    outage.begin()
    if with_keeper:
        outage.keep()
    outage.outage(carries=with_keeper)
    again = {group: outage.again(group) for group in GROUPS}
    if not with_keeper:
        assert all(again[group] > FROM_SLAVE // 2 for group in (HANDED, SUCCESSOR, KILLED)), again
    else:
        assert [again[group] for group in (HANDED, SUCCESSOR, STAYS)] == [0, 0, 0], again
        assert again[KILLED] <= KILLED_AT_MOST
        assert outage.silence(STAYS) <= SILENT_AT_MOST


@pytest.mark.soak
@pytest.mark.parametrize("asks", [False, True], ids=["control", "asks"])
def test_go_groups_on_our_guarded_pair(lab: Lab, asks: bool) -> None:
    ours = {"failbackRules": "guarded", "failbackGuardAskMembers": str(asks).lower()}
    outage = Outage(lab, "failback", GROUPS, **ours)
    outage.begin()
    outage.outage(carries=False)
    again = {group: outage.again(group) for group in GROUPS}
    if not asks:
        assert all(again[group] > FROM_SLAVE // 2 for group in (HANDED, SUCCESSOR, KILLED)), again
    else:
        assert [again[group] for group in (HANDED, SUCCESSOR, STAYS)] == [0, 0, 0], again
        assert again[KILLED] <= KILLED_AT_MOST
        assert outage.silence(STAYS) <= SILENT_AT_MOST


@pytest.mark.soak
@pytest.mark.parametrize("options", [(), ("--ask-clients",)], ids=["plain", "ask-clients"])
def test_what_an_observer_says_of_go_groups_holds(lab: Lab, options: tuple[str, ...]) -> None:
    outage = Outage(lab, "apache", GROUPS)
    outage.begin()
    observer = outage.observe(*options)
    time.sleep(12)  # the observer has met the members
    outage.outage(carries=False)
    time.sleep(15)
    assert observer.stop() in (0, 3), observer.errors()
    found = json.loads(report(outage.lab.folder / "run").json.read_text())
    for group in GROUPS:
        print(group, outage.again(group), [cost(found, group)[end] for end in ("lo", "hi")])
    for group in GROUPS:
        holds(found, outage.again_by_queue(group), group)
    assert outage.again(HANDED) > FROM_SLAVE // 2
