"""What ``failback observe`` can't observe: a sentence that names it, and what was seen is kept."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from tests.integration.observe.test_observing import commit, looks, prepared
from tests.support.analytics.run_builder import RunBuilder
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.common.polling import SCALE
from tests.support.net.remoting_peer import Answer, RemotingPeer
from tests.support.processes.child_process import failback_command, failback_environment

NOBODY = "127.0.0.1:1"


def observe(name_servers: str, out: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        failback_command(
            "cli", "observe", "-n", name_servers, "--out", str(out), "--every", "500ms",
            "--for", "2s", *words,
        ),
        capture_output=True, text=True, env=failback_environment(),
        timeout=120 * SCALE, check=False,
    )  # fmt: skip


def observation_in(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "report" / "report.json").read_text())["observation"]
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(tmp_path_factory.mktemp("cluster")) as cluster:
        asyncio.run(prepared(cluster))
        asyncio.run(commit(cluster, 5))
        yield cluster


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--group", "biling"), 2, '--group: no broker knows "biling", did you mean "billing"?'),
        (("--topic", "ordres"), 2, '--topic: no broker knows "ordres", did you mean "orders"?'),
        (("--group", "zzz"), 2, '--group: no broker knows "zzz"'),
        (("--group", "billing", "--topic", "orders"), 0, ""),
        (
            ("--group", "billing", "--for", "1"),
            2,
            '--for: must be a time such as 1s or 30m, got "1"',
        ),
    ],
)
def test_what_nobody_knows_is_named_and_leaves_no_folder(
    words: tuple[str, ...], code: int, said: str, cluster: ClusterProcesses, tmp_path: Path
) -> None:
    done = observe(cluster.namesrv_addr, tmp_path / "run", *words)
    assert done.returncode == code, done.stderr
    assert done.stderr == (f"error: {said}\n" if said else "")
    assert (tmp_path / "run").exists() is (code == 0)


def test_of_two_name_servers_the_one_that_is_silent_is_named(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    done = observe(f"{NOBODY};{cluster.namesrv_addr}", tmp_path / "run")
    assert done.returncode == 0
    assert (
        f"name server {NOBODY} does not answer: those that others list are observed" in done.stdout
    )
    assert done.stdout.count("does not answer") == 1


def run_of_an_experiment(path: Path) -> Path:
    path.mkdir()
    (path / "run.json").write_text(json.dumps(RunBuilder("r").run))
    return path


def test_a_folder_of_something_else_is_left_as_it_is(
    cluster: ClusterProcesses, tmp_path: Path
) -> None:
    made = run_of_an_experiment(tmp_path / "made")
    torn = run_of_an_experiment(tmp_path / "torn")
    (torn / "run.json").write_text('{"schema": ')
    files = tmp_path / "files"
    files.mkdir()
    (files / "notes.txt").write_text("mine")
    for folder, said in (
        (made, "is a run that was not observed: name a new folder"),
        (torn, "run.json: "),
        (files, "has files that are no run: name a new folder"),
    ):
        before = {each: each.read_bytes() for each in folder.iterdir()}
        done = observe(cluster.namesrv_addr, folder)
        (line,) = done.stderr.splitlines()
        assert (done.returncode, line.startswith(f"error: --out: {folder}")) == (2, True), line
        assert said in line
        assert {each: each.read_bytes() for each in folder.iterdir()} == before


# --- peers that answer, and not as brokers do -----------------------------------------------------

LISTED = {
    "brokerAddrTable": {
        "broker-x": {"cluster": "c", "brokerName": "broker-x", "brokerAddrs": {"0": "ADDRESS"}}
    },
    "clusterAddrTable": {"c": ["broker-x"]},
}


class Strange:
    """A name server that lists itself as the only broker, which answers in one strange way."""

    def __init__(self, way: str) -> None:
        self.way = way
        self.peer = RemotingPeer(self.answer)

    def answer(self, request: RemotingCommand) -> Answer:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            text = json.dumps({} if self.way == "empty" else LISTED)
            return request.response(0, body=text.replace("ADDRESS", self.peer.addr).encode())
        if self.way == "cut":
            whole = request.response(0, body=b'{"offsetTable":{}}').encode()
            self.peer.connections[-1].transport.write(whole[:-4])
            self.peer.connections[-1].close()
            return None
        if self.way == "no frame":
            return b"HTTP/1.1 400 Bad Request\r\n\r\n"
        if self.way == "unreadable":
            return request.response(0, body=b"\x00\xff no JSON")
        if self.way == "no rights":
            return request.response(ResponseCode.NO_PERMISSION, remark="no right to ask")
        if self.way == "other version":
            return request.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="not known")
        return None


@pytest.fixture
async def strange(request: pytest.FixtureRequest) -> AsyncIterator[Strange]:
    made = Strange(request.param)
    async with made.peer:
        yield made


@pytest.mark.few(2, 2)
@pytest.mark.parametrize(
    ("strange", "said"),
    [
        ("cut", "broker-x-0 is not seen: "),
        ("no frame", "broker-x-0 is not seen: "),
        ("unreadable", "answered what cannot be read"),
        ("no rights", "answered code 16: no right to ask"),
        ("other version", "answered code 3: not known"),
        ("silent", "broker-x-0 is not seen: "),
        ("empty", "lists no broker: those that register are observed from then on"),
    ],
    indirect=["strange"],
)
async def test_a_broker_that_answers_strangely_is_named_and_is_a_gap(
    strange: Strange, said: str, tmp_path: Path
) -> None:
    done = await asyncio.to_thread(observe, strange.peer.addr, tmp_path / "run", "--for", "4s")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    told = [line for line in done.stdout.splitlines() if said in line]
    assert len(told) == 1, done.stdout
    assert strange.peer.addr in told[0]
    assert looks(tmp_path / "run")
    what = (
        "no name server listed a broker" if strange.way == "empty" else "broker-x-0 did not answer"
    )
    assert [each["what"] for each in observation_in(tmp_path / "run")["gaps"]] == [what]
