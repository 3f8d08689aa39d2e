"""What a broker is given that asks before it starts, and what its sidecar says of it."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from failback.carry.starts import Starts, read_last
from failback.client.remoting.connection import RemotingClient
from failback.operator.render.broker import WHEN_CARRIED
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.headers import RegisterBrokerRequestHeader
from failback.protocol.route import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
)
from tests.support.brokers.namesrv_process import NamesrvProcess
from tests.support.carry.stopped_master import (
    KEY,
    AnsweringSlave,
    RunningMaster,
    StoppedMaster,
    at,
)
from tests.support.common.polling import until, wait_until
from tests.support.net.ports import free_port_block
from tests.support.processes.child_process import failback_environment

MINE = "10.1.2.3:10911"
BODY = RegisterBrokerBody(TopicConfigSerializeWrapper({}, DataVersion(1000, 1)))


def options(master: StoppedMaster, members: str, *more: str) -> list[str]:
    (master.folder / "members").write_text(members)
    (master.folder / "run").mkdir(exist_ok=True)
    places = ("--members", str(master.folder / "members"), "--run-dir", str(master.folder / "run"))
    return ["--conf", str(master.conf), *places, *more]


def carried(master: StoppedMaster, members: str, *more: str) -> dict[str, Any]:
    return Starts.of(options(master, members, *more)).carry()


def test_a_start_says_in_figures_what_it_was_given(
    master: StoppedMaster, slave: AnsweringSlave
) -> None:
    slave.offsets = {KEY: {0: 50}, "orders@audit": {0: 99}, "%RETRY%audit@audit": {0: 0}}
    found = carried(master, f"{slave.address}\n")
    assert found.pop("at").endswith("Z")
    assert found.pop("line").startswith("raised 2 offsets of 2 groups by 100 messages; ")
    (cut,) = found.pop("warnings")
    assert "orders@audit queue 0" in cut
    assert found == {
        "outcome": "Carried",
        "offsets": 2,
        "groups": 2,
        "messages": 100,
        "cut": 1,
        "sources": [slave.address],
    }
    assert master.loads == {KEY: {0: 50}, "orders@audit": {0: 60}}
    assert carried(master, f"{slave.address}\n")["outcome"] == "NothingToCarry"


def test_a_report_writes_nothing(master: StoppedMaster, slave: AnsweringSlave) -> None:
    found = carried(master, slave.address, "--report")
    assert (found["outcome"], found["messages"], master.loads) == ("WouldCarry", 40, at(10))


@pytest.mark.parametrize(
    ("settings", "outcome"),
    [
        ({"brokerRole": "SLAVE"}, "Idle"),
        ({"enableDLegerCommitLog": "true"}, "Idle"),
        ({"storeType": "defaultRocksDB"}, "Unsupported"),
        ({}, "Carried"),
    ],
)
def test_what_cannot_be_carried_has_a_word_of_its_own(
    tmp_path: Path, settings: dict[str, object], outcome: str
) -> None:
    master = StoppedMaster(tmp_path / "another", 60, **settings)
    master.has(at(10))
    with AnsweringSlave(master, at(50)) as slave:
        assert carried(master, slave.address)["outcome"] == outcome


def test_a_start_without_an_answer_goes_on(master: StoppedMaster, tmp_path: Path) -> None:
    nobody = f"127.0.0.1:{free_port_block(1)}"
    assert carried(master, nobody)["outcome"] == "SlaveSilent"
    assert carried(master, "")["outcome"] == "NothingToCarry"
    other = StoppedMaster(tmp_path / "other", 0)
    other.add(*(b"%d" % (number + 5) for number in range(60)))
    with AnsweringSlave(other, at(50)) as slave:
        assert carried(master, f"{slave.address}\n{nobody}\n")["outcome"] == "OtherLog"
    master.conf.unlink()
    assert carried(master, nobody)["outcome"] == "Refused"
    assert master.loads == at(10)


def test_one_that_must_know_asks_until_a_slave_answers_or_no_broker_waits(
    master: StoppedMaster, slave: AnsweringSlave
) -> None:
    nobody = f"127.0.0.1:{free_port_block(1)}"
    members = master.folder / "members"
    starts = Starts.of(options(master, nobody, "--must-know"))
    looks = iter((True, False))
    assert starts.carry(lambda: next(looks))["outcome"] == "SlaveSilent"

    def is_wanted() -> bool:
        members.write_text(slave.address)
        return True

    assert starts.carry(is_wanted)["outcome"] == "Carried"


def test_a_disk_that_takes_nothing_is_no_carry(
    master: StoppedMaster, slave: AnsweringSlave, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(master.file))

    monkeypatch.setattr("failback.carry.offline.OffsetFile.replace", full)
    found = carried(master, slave.address)
    assert (found["outcome"], found["offsets"], master.loads) == ("DiskFailed", 0, at(10))
    assert "no space left" in found["warnings"][0]


@contextmanager
def sidecar(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "failback.cli", "tools", "carry-serve", *words]
    environment = {**failback_environment(), "POD_IP": "127.0.0.1"}
    with subprocess.Popen(command, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def got(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        return str(answer.read().decode())


def test_the_shell_and_the_sidecar_agree_also_when_the_sidecar_starts_anew(
    master: StoppedMaster, slave: AnsweringSlave
) -> None:
    port = free_port_block(2)
    own = ("--address", f"127.0.0.1:{port + 1}", "--top-up", "60")
    words = options(master, slave.address, "--port", str(port), *own)
    run = master.folder / "run"
    start = ["sh", "-c", WHEN_CARRIED, str(run / "hold"), "-1", "echo", "started"]
    with sidecar(*words) as process:
        done = subprocess.run(start, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
        assert (done.stdout, master.loads) == ("started\n", at(50))
        assert json.loads(got(port, "/carry")) == read_last(run)
        assert read_last(run)["outcome"] == "Carried"
        assert "\nfailback_carried_offsets_total 1\n" in got(port, "/metrics")
        assert got(port, "/readyz") == "ok\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    slave.offsets = at(55)
    with subprocess.Popen(start, stdout=subprocess.PIPE, text=True) as waiting:
        wait_until(lambda: (run / "asked").read_text() != (run / "carried").read_text(), "a word")
        with sidecar(*words):
            assert waiting.communicate(timeout=60)[0] == "started\n"
            slave.offsets = at(57)  # a member that commits until the master is there
            with RunningMaster(port + 1, at(55)) as running:
                wait_until(lambda: running.offsets == at(57), "what the slave was told meanwhile")
    assert master.loads == at(55)


async def test_a_pod_is_ready_while_a_name_server_lists_its_broker(tmp_path: Path) -> None:
    port = free_port_block(1)
    conf, members = tmp_path / "broker.conf", tmp_path / "members"
    members.touch()
    (tmp_path / "names").mkdir()

    async def registered(name: str, address: str) -> None:
        header = RegisterBrokerRequestHeader(name, address, "orders", address, 0)
        request = RemotingCommand.request(RequestCode.REGISTER_BROKER, header, BODY.to_json())
        assert (await client.invoke(names.addr, request)).code == 0

    async with RemotingClient() as client:
        with NamesrvProcess(tmp_path / "names") as names:
            conf.write_text(
                f"brokerClusterName=orders\nbrokerName=orders-0\nbrokerId=0\nbrokerRole=MASTER\n"
                f"brokerIP1=10.1.2.3\nlistenPort=10911\nnamesrvAddr={names.addr}\n"
            )
            files = ("--conf", str(conf), "--members", str(members), "--run-dir", str(tmp_path))
            with sidecar(*files, "--port", str(port)):
                wait_until(lambda: answers(port), "the sidecar", 30)
                for name, address in (("orders-1", MINE), ("orders-0", "10.1.2.4:10911")):
                    await registered(name, address)
                await asyncio.sleep(3)
                assert not is_ready(port)
                await registered("orders-0", MINE)
                await until(lambda: is_ready(port), "ready")
                names.kill()
                await asyncio.sleep(3)
                assert is_ready(port)


def answers(port: int) -> bool:
    try:
        return got(port, "/carry") != ""
    except OSError:
        return False


def is_ready(port: int) -> bool:
    try:
        return got(port, "/readyz") == "ok\n"
    except urllib.error.HTTPError as error:
        return (error.code, error.read()) != (503, b"no name server lists this broker\n")
