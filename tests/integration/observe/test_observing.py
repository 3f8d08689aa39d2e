"""``failback observe`` on a broker of its own processes: it sees a kill, and writes nothing."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path

from failback.analytics.observe.asking import Asker
from failback.analytics.observe.folder import seconds
from failback.analytics.observe.looks import ANSWERED, REFUSED, SILENT, BrokerLook
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import RemotingTimeout
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.common.polling import SCALE, wait_until
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

TOPIC, GROUP = "orders", "billing"


async def prepared(cluster: ClusterProcesses) -> None:
    async with AdminClient([cluster.namesrv_addr]) as admin:
        await admin.create_topic(cluster.broker_addr, TopicConfig(TOPIC, 2, 2))
        await admin.create_group(cluster.broker_addr, SubscriptionGroupConfig(GROUP))


async def commit(cluster: ClusterProcesses, offset: int) -> None:
    async with AdminClient([cluster.namesrv_addr]) as admin:
        for queue in (0, 1):
            await admin.update_offset(cluster.broker_addr, GROUP, TOPIC, queue, offset)


def tables(cluster: ClusterProcesses) -> dict[str, str]:
    """Every table on the broker's disk, without versions and times."""
    config = cluster.broker_root / "config"
    return {
        path.name: re.sub(r'"dataVersion":\{[^}]*\}', "", path.read_text())
        for path in config.glob("*.json")
    }


def observer(cluster: ClusterProcesses, out: Path, *more: str) -> TestProcess:
    command = failback_command(
        "cli", "observe", "-n", cluster.namesrv_addr, "--out", str(out), "--every", "500ms", *more
    )
    return TestProcess("observer", command, out.parent, environment=failback_environment())


async def test_a_kill_and_a_return_are_seen_and_nothing_is_written(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        await prepared(cluster)
        await commit(cluster, 100)
        file = cluster.broker_root / "config" / "consumerOffset.json"
        wait_until(lambda: file.exists() and "billing" in file.read_text(), "offsets on the disk")
        before = tables(cluster)
        watching = observer(cluster, tmp_path / "run")
        try:
            watching.start()
            watching.wait_for("observing broker-a-0")
            wait_until(lambda: tables(cluster) == before, "the same tables")
            cluster.broker.kill()
            watching.wait_for("MasterGone")
            cluster.start_broker()
            watching.wait_for("MasterBack")
            wait_until(lambda: len(looks(tmp_path / "run")) > 10, "some looks")
            assert watching.stop() == 0
        finally:
            watching.dispose()
        said = "\n".join(watching.lines())
        assert "broker-a was down for" in said
        assert "Group billing: none." in said
        assert watching.lines()[-1].endswith("run/report/report.html")
        after = tables(cluster)
        assert after["subscriptionGroup.json"] == before["subscriptionGroup.json"]
        assert after["topics.json"] == before["topics.json"]
        assert after["consumerOffset.json"] == before["consumerOffset.json"]
    assert watching.errors() == ""


async def test_a_broker_that_is_back_ends_the_wait_for_the_next_look(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        await prepared(cluster)
        async with RemotingClient() as client:
            asker = Asker([cluster.namesrv_addr], client, zero=seconds())
            (broker,) = (await asker.look(closely=False)).brokers
            assert broker.state == ANSWERED
            cluster.broker.kill()
            (broker,) = (await asker.look(closely=False)).brokers
            assert broker.state == REFUSED
            cluster.start_broker()
            await asyncio.wait_for(asker.wait(3600), 60 * SCALE)
            (broker,) = (await asker.look(closely=False)).brokers
            assert broker.state == ANSWERED


class SlowLink(RemotingClient):
    """Answers of one address take their time."""

    def __init__(self, address: str, seconds: float) -> None:
        super().__init__()
        self.address = address
        self.seconds = seconds
        self.asked = 0

    async def invoke(
        self, addr: str, request: RemotingCommand, timeout_ms: float = 3000
    ) -> RemotingCommand:
        if addr == self.address:
            self.asked += 1
            await asyncio.sleep(min(self.seconds, timeout_ms / 1000))
            if timeout_ms / 1000 <= self.seconds:
                raise RemotingTimeout(addr, timeout_ms)
        return await super().invoke(addr, request, timeout_ms)


async def test_an_answer_that_takes_longer_than_a_period_is_waited_for(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        await prepared(cluster)
        await commit(cluster, 100)
        client = SlowLink(cluster.broker_addr, 1.2)
        async with client:
            asker = Asker([cluster.namesrv_addr], client, zero=seconds(), every=0.2)
            found: list[BrokerLook] = []
            while len(found) < 20 and (not found or found[-1].state != ANSWERED):
                (broker,) = (await asker.look(closely=False)).brokers
                found.append(broker)
            first = found[0]
            assert first.state == SILENT
            assert not first.is_unreachable, "it may have answered others"
            assert "no answer from" in (first.problem or "")
            last = found[-1]
            assert last.state == ANSWERED
            assert last.offsets == {f"{TOPIC}@{GROUP}": {0: 100, 1: 100}}
            assert last.asked <= first.until < last.until
            asked = client.asked
            await asker.look(closely=False)
            assert client.asked > asked, "it is asked again once it has answered"
            await asker.close()


def looks(run: Path) -> list[bytes]:
    return (run / "looks.jsonl").read_bytes().splitlines()


async def test_it_ends_by_itself_and_goes_on_in_the_same_folder(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path / "cluster") as cluster:
        await prepared(cluster)
        await commit(cluster, 5)
        for turn in (1, 2):
            watching = observer(cluster, tmp_path / "run", "--for", "2s", "--json")
            watching.start()
            try:
                watching.wait_for("observation", 30)
                assert watching.end_input() == 0
            finally:
                watching.dispose()
            (line,) = watching.lines()
            assert json.loads(line)["observation"]["returns"] == [], turn
        assert 6 <= len(looks(tmp_path / "run")) <= 10


def test_nobody_answers(tmp_path: Path) -> None:
    done = subprocess.run(
        [*failback_command("cli", "observe", "-n", "127.0.0.1:1", "--out", str(tmp_path / "run"))],
        capture_output=True,
        text=True,
        env=failback_environment(),
        timeout=60 * SCALE,
        check=False,
    )
    assert done.returncode == 3
    assert "no name server answers at 127.0.0.1:1: name one that does in --namesrv" in done.stderr
