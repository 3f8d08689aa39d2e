"""``failback carry`` on copies of a store that Apache's master left, asked of Apache's slaves."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.setup_java import SERVER_VERSION

from failback.carry.command import main
from failback.carry.offset_file import read_document
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.route import SubscriptionGroupConfig
from tests.support.brokers.broker_lab import send_header
from tests.support.brokers.master_outage import GROUP, TOPIC, Outage
from tests.support.carry.killed import carry_until
from tests.support.java.apache import Broker, client_folders, server_home
from tests.support.java.java_lab import Lab

pytestmark = pytest.mark.long

EARLY, ALL = 30, 60
"""Messages when the disk was copied that is restored, and when the master died."""
OWN, FIRST, SECOND = 10, 40, 25
"""Where the group stood when the master died, and what each slave was told afterwards."""
RESET, LOWER = "audit", "ledger"
"""A group that the master lowered just before it died, and one that was reset on the slaves."""


class Stopped:
    """A master that was killed, its two slaves, and a broker of another log that runs."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.early = lab.folder / "early"
        asyncio.run(self._die())

    async def _die(self) -> None:
        ns = self.lab.namesrv()
        async with AdminClient([ns.address]) as admin:
            self.other = self.lab.broker("apache", ns, name="another")
            self.pair = Outage.of(self.lab, admin, ns, ("apache", "apache"), {})
            self.second = self.lab.broker("apache", ns, broker_id=2, role="SLAVE")
            self.other.start()
            self.second.start()
            master, slaves = self.pair.master, (self.pair.slave, self.second)
            for broker in (master, self.other):
                for group in (GROUP, RESET, LOWER):
                    await admin.create_group(broker.address, SubscriptionGroupConfig(group))
            await self._send(self.other, EARLY + 7)
            await self._send(master, EARLY)
            await asyncio.gather(*(self.pair.reaches(each, EARLY, end=True) for each in slaves))
            self._copy(master.store, self.early)
            await self._send(master, ALL - EARLY)
            await asyncio.gather(*(self.pair.reaches(each, ALL, end=True) for each in slaves))
            for group, offset in ((GROUP, OWN - 1), (RESET, 50), (LOWER, 30)):
                await self.pair.commit(master, offset, group)
            await self.pair.in_file(master, OWN - 1)
            for each in slaves:  # one of 5.x takes no commit of a group that it has not copied
                await self.pair.reaches(each, 30, group=LOWER)
            for group, offset in ((RESET, 5), (GROUP, OWN)):
                await self.pair.commit(master, offset, group)
            await self.pair.in_file(master, OWN)
            master.kill()
            for slave, offset in zip((*slaves, self.other), (FIRST, SECOND, 35), strict=True):
                for group, told in ((GROUP, offset), (RESET, 50), (LOWER, 8)):
                    await self.pair.commit(slave, told, group)

    async def _send(self, broker: Broker, count: int) -> None:
        async with RemotingClient() as client:
            for number in range(count):
                body = b"%s %d" % (broker.name.encode(), number)
                code = RequestCode.SEND_MESSAGE_V2
                request = RemotingCommand.request(code, send_header(topic=TOPIC), body)
                assert (await client.invoke(broker.address, request)).code == 0

    @staticmethod
    def _copy(store: Path, to: Path) -> None:
        shutil.copytree(store, to, ignore=shutil.ignore_patterns("index", "lock", "timer*"))


class Disk:
    """A copy of a store, and the command on it."""

    def __init__(self, stopped: Stopped, store: Path, of: Path) -> None:
        self.store = store
        self.file = store / "config" / "consumerOffset.json"
        self.words = ("--conf", stopped.pair.master.folder / "broker.conf", "--store", store)
        stopped._copy(of, store)

    def carry(self, *words: object) -> int:
        return main([*map(str, self.words), *map(str, words)])

    def report(self, *words: object) -> dict[str, Any]:
        path = self.store / "report.json"
        assert self.carry("--json", path, *words) == 0
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def at(self, group: str = GROUP) -> int:
        return read_document(self.file.read_bytes()).table[f"{TOPIC}@{group}"][0]


@pytest.fixture(
    scope="module", params=[SERVER_VERSION, pytest.param("5.3.3", marks=pytest.mark.soak)]
)
def stopped(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Stopped]:
    server_home(request.param)
    client_folders()
    lab = Lab(tmp_path_factory.mktemp("disks"), request.param)
    try:
        yield Stopped(lab)
    finally:
        lab.dispose()


@pytest.fixture
def disk(stopped: Stopped, tmp_path: Path) -> Disk:
    return Disk(stopped, tmp_path / "store", stopped.pair.master.store)


@pytest.fixture
def slaves(stopped: Stopped) -> list[str]:
    return ["--slave", stopped.pair.slave.address, "--slave", stopped.second.address]


def test_of_two_slaves_that_the_name_server_lists_the_larger_offset_is_taken(
    stopped: Stopped, disk: Disk
) -> None:
    found = disk.report()
    assert sorted(found["asked"]) == sorted((stopped.pair.slave.address, stopped.second.address))
    assert (disk.at(), found["silent"]) == (FIRST, {})
    assert disk.report()["raised"] == []


def test_an_empty_disk_gets_nothing(stopped: Stopped, tmp_path: Path, slaves: list[str]) -> None:
    (tmp_path / "none" / "config").mkdir(parents=True)
    disk = Disk(stopped, tmp_path / "store", tmp_path / "none")
    assert disk.carry(*slaves, "--strict") == 4
    assert not disk.file.exists()


def test_on_a_restored_disk_an_offset_is_cut_at_its_end(
    stopped: Stopped, tmp_path: Path, slaves: list[str]
) -> None:
    disk = Disk(stopped, tmp_path / "store", stopped.early)
    left = disk.report(*slaves)["left"]
    assert disk.at() == EARLY
    assert [(row["theirs"], row["wanted"]) for row in left["beyond"]] == [(50, EARLY), (40, EARLY)]


def test_a_slave_of_another_log_is_not_used(stopped: Stopped, disk: Disk) -> None:
    before = disk.file.read_bytes()
    assert disk.carry("--slave", stopped.other.address, "--strict") == 4
    assert disk.file.read_bytes() == before


def test_resets_on_both_sides(disk: Disk, slaves: list[str]) -> None:
    left = disk.report(*slaves)["left"]
    assert [(row["own"], row["theirs"]) for row in left["lowered"]] == [(5, 50)]
    assert [(row["own"], row["theirs"]) for row in left["lower"]] == [(30, 8)]
    assert (disk.at(RESET), disk.at(LOWER)) == (5, 30)
    disk.report(*slaves, "--accept-lower", LOWER)
    assert (disk.at(RESET), disk.at(LOWER)) == (5, 8)


@pytest.mark.few(1)
@pytest.mark.parametrize("steps", [range(1, 11), range(11, 21), range(21, 31)])
def test_a_kill_at_any_step_leaves_the_old_file_or_the_new_one(
    disk: Disk, slaves: list[str], steps: range
) -> None:
    before = disk.file.read_bytes()
    for step in steps:
        disk.file.write_bytes(before)
        carry_until(step, *disk.words, *slaves)
        assert disk.file.read_bytes() == before or (disk.at(), disk.at(LOWER)) == (FIRST, 30)
        assert disk.carry(*slaves) == 0
        assert disk.at() == FIRST


def test_the_store_of_a_running_broker_is_refused(
    stopped: Stopped, disk: Disk, slaves: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    running = [*map(str, disk.words[:2]), "--store", str(stopped.pair.slave.store)]
    assert main([*running, *slaves]) == 3
    assert f"is held by pid {stopped.pair.slave.process.pid} " in capsys.readouterr().err


def test_the_master_starts_with_the_carried_table(stopped: Stopped, slaves: list[str]) -> None:
    pair = stopped.pair
    assert main(["--conf", str(pair.master.folder / "broker.conf"), *slaves]) == 0
    pair.master.start()

    async def table() -> dict[str, int]:
        async with AdminClient() as admin:
            found = await admin.all_offsets(pair.master.address)
        return {group: found[f"{TOPIC}@{group}"][0] for group in (GROUP, RESET, LOWER)}

    assert asyncio.run(table()) == {GROUP: FIRST, RESET: 5, LOWER: 30}
