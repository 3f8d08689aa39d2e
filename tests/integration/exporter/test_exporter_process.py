"""``failback exporter`` as a process: what it refuses, and what it shows of the silent."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.model import Message
from failback.client.producer.producer import Producer
from failback.client.remoting.settings import ClientSettings
from failback.protocol.route import TopicConfig
from tests.support.common.polling import SCALE, wait_until
from tests.support.java.apache import Broker, NameServer
from tests.support.net.ports import free_port
from tests.support.processes.child_process import failback_command, failback_environment
from tests.support.processes.exporter_process import Exporter


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Exporter]:
    exporter = Exporter(tmp_path, f"127.0.0.1:{free_port()}")
    yield exporter
    exporter.process.dispose()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-n", "nowhere"], "--namesrv"),
        ([], "--namesrv"),
        (["-n", "127.0.0.1:9876", "--offset-file", "x"], "--offset-file"),
        (["-n", "127.0.0.1:9876", "--runs", "/no/such"], "--runs"),
    ],
)
def test_bad_input_is_one_line_and_code_2(arguments: list[str], said: str) -> None:
    done = subprocess.run(
        failback_command("cli", "exporter", *arguments),
        capture_output=True,
        text=True,
        timeout=60 * SCALE,
        env={**failback_environment(), "PATH": ""},
        check=False,
    )
    assert done.returncode == 2
    lines = (done.stdout + done.stderr).strip().splitlines()
    assert len(lines) == 1, lines
    assert said in lines[0]


def test_a_name_server_that_is_not_there_is_said_once(silent: Exporter) -> None:
    silent.wait("failback_exporter_namesrv_up", [0.0])
    first = silent.values("failback_exporter_survey_time_seconds")
    wait_until(
        lambda: silent.values("failback_exporter_survey_time_seconds")[0] > first[0] + 1,
        "more surveys",
        60,
    )
    said = [line for line in silent.process.errors().splitlines() if "does not answer" in line]
    assert len(said) == 1
    assert silent.process.stop() == 0


@pytest.mark.sample
def test_a_broker_is_up_until_it_is_killed(tmp_path: Path) -> None:
    namesrv = NameServer("failback", tmp_path / "namesrv")
    broker = Broker("failback", tmp_path / "broker", namesrv.address)
    processes = [namesrv.process]
    try:
        namesrv.start()
        broker.start()
        processes.append(broker.process)
        exporter = Exporter(tmp_path, namesrv.address)
        processes.append(exporter.process)
        exporter.wait("failback_exporter_up", [1.0])
        assert exporter.values("rocketmq_broker_start_time_seconds")[0] > 1e9
        broker.kill()
        exporter.wait("failback_exporter_up", [0.0])
        broker.start()
        processes.append(broker.process)
        exporter.wait("failback_exporter_up", [1.0])
    finally:
        for process in reversed(processes):
            process.dispose()


async def test_how_late_a_group_is_and_who_produces_is_shown(tmp_path: Path) -> None:
    namesrv = NameServer("failback", tmp_path / "namesrv")
    broker = Broker("failback", tmp_path / "broker", namesrv.address)
    processes = [namesrv.process]
    try:
        namesrv.start()
        broker.start()
        processes.append(broker.process)
        settings = ClientSettings(namesrv_addrs=(namesrv.address,), client_ip="127.0.0.1")
        async with AdminClient() as admin, Producer("shop", settings) as producer:
            await admin.create_topic(broker.address, TopicConfig("T", 1, 1))
            for _ in range(3):
                await producer.send(Message("T", b"x"))
            await admin.update_offset(broker.address, "late", "T", 0, 1)
            await admin.update_offset(broker.address, "done", "T", 0, 3)
            exporter = Exporter(tmp_path, namesrv.address)
            processes.append(exporter.process)
            shop = 'rocketmq_producer_count{broker="broker-a",cluster="bench",group="shop"}'
            await asyncio.to_thread(exporter.wait, shop, [1.0])
        latency = "rocketmq_group_get_latency_by_storetime"
        place = f'{latency}{{broker="broker-a",cluster="bench",group="%s",topic="T"}}'
        assert exporter.values(place % "done") == [0.0]
        first = exporter.values(place % "late")
        assert first[0] > 0
        wait_until(lambda: exporter.values(place % "late") > first, "it gets later", 60)
        assert exporter.values("rocketmq_brokeruntime_commitlogdir_capacity_total")[0] > 1e6
        assert len(exporter.values("rocketmq_brokeruntime_pmdt_0ms")) == 1
    finally:
        for process in reversed(processes):
            process.dispose()
