"""`failback up` and `down` with real name servers and brokers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.operator.local.control import CommandError, call
from failback.operator.local.process import Identity
from failback.operator.local.root import Root
from tests.support.common.polling import wait_until

FAILBACK = [sys.executable, "-m", "failback.cli"]
PAIR = """\
apiVersion: failback.dev/v1alpha1
kind: NameServer
metadata: {name: main}
spec: {replicas: 2, config: {failbackTimeScale: "0.1"}}
---
apiVersion: failback.dev/v1alpha1
kind: BrokerCluster
metadata: {name: demo}
spec:
  nameServerRef: {name: main}
  slaveReadEnable: true
  config: {failbackTimeScale: "0.1", mappedFileSizeCommitLog: "1048576"}
---
apiVersion: failback.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {clusterRef: {name: demo}, topicName: ORDERS, readQueueNums: 4, writeQueueNums: 4}
---
apiVersion: failback.dev/v1alpha1
kind: SubscriptionGroup
metadata: {name: billing}
spec: {clusterRef: {name: demo}, retryMaxTimes: 3}
"""


def failback(*words: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*FAILBACK, *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def processes_of(root: Path) -> list[str]:
    """Command lines that name the root: every process we start does."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if str(root) in command and entry.parent.name != str(os.getpid()):
            found.append(command)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "root"
    yield folder
    failback("down", "--root", str(folder))
    assert processes_of(folder) == []


def up(root: Path, text: str = PAIR) -> dict[str, Any]:
    file = root.parent / "cluster.yaml"
    file.write_text(text)
    done = failback("up", "-f", str(file), "--root", str(root), "--detach", "--json")
    assert done.returncode == 0, done.stderr
    view: dict[str, Any] = json.loads(done.stdout)
    return view


def members(view: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = view["clusters"][0]["pairs"][0]["members"]
    return found


def member(root: Path, ordinal: int) -> dict[str, Any]:
    return members(call(Root(root), "view"))[ordinal]


@pytest.mark.sample
def test_a_pair_comes_up_serves_its_topic_and_goes_without_a_trace(root: Path) -> None:
    view = up(root)
    master, slave = members(view)
    pods = [*view["nameserver_pods"], master, slave]
    assert [each["state"] for each in pods] == ["Ready"] * 4
    assert len({each["address"] for each in pods}) == 4
    listed = json.loads(failback("admin", "clusterList", "--root", str(root), "--json").stdout)
    assert [(each["id"], each["address"]) for each in listed] == [
        (0, master["address"]),
        (1, slave["address"]),
    ]
    route = failback("admin", "topicRoute", "-t", "ORDERS", "--root", str(root), "--json")
    assert [each["write"] for each in json.loads(route.stdout)] == [4]
    assert Path(master["store"], "abort").exists()
    for each in pods:
        resident_kib = _status_kib(each["pid"], "VmRSS")
        limit_mib = 80 if each["kind"] == "broker" else 50
        assert resident_kib < limit_mib * 1024, f"{each['pod']} takes {resident_kib} KiB"

    done = failback("down", "--root", str(root))
    assert sorted(done.stdout.split("\n")[:-1]) == sorted(
        f"{each['pod']}: stopped" for each in pods
    )
    assert processes_of(root) == []
    assert failback("down", "--root", str(root)).stdout == f"nothing runs at {root}\n"
    assert failback("ps", "--root", str(root)).returncode == 2


def _status_kib(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def test_hold_kill_release_as_the_chaos_harness_does(root: Path) -> None:
    master = members(up(root))[0]
    runtime = Root(root)
    before = len(call(runtime, "deaths", since=0)["deaths"])
    call(runtime, "hold", pod=master["pod"], undo="u1")
    os.kill(master["pid"], signal.SIGKILL)
    wait_until(lambda: member(root, 0)["state"] == "Held", "held")
    deaths = call(runtime, "deaths", since=before)["deaths"]
    assert [(each["pid"], each["ticks"]) for each in deaths] == [(master["pid"], master["ticks"])]
    assert os.WTERMSIG(deaths[0]["wstatus"]) == signal.SIGKILL
    assert Path(master["store"], "abort").exists()
    call(runtime, "release", pod=master["pod"])
    wait_until(lambda: member(root, 0)["state"] == "Ready", "ready again")
    again = member(root, 0)
    assert (again["address"], again["restarts"]) == (master["address"], 1)
    assert (again["pid"], again["ticks"]) != (master["pid"], master["ticks"])


@pytest.mark.soak
def test_stop_and_start_of_a_pod_are_graceful_and_keep_the_store(root: Path) -> None:
    slave = members(up(root))[1]
    runtime = Root(root)
    reply = call(runtime, "stop", pod=slave["pod"], grace_seconds=30, timeout=60)
    assert os.WIFEXITED(reply["death"]["wstatus"])
    assert member(root, 1)["state"] == "Stopped"
    assert not Path(slave["store"], "abort").exists()
    call(runtime, "start", pod=slave["pod"])
    wait_until(lambda: member(root, 1)["state"] == "Ready", "ready again")
    with pytest.raises(CommandError, match='there is no pod "demo-9"'):
        call(runtime, "stop", pod="demo-9")
    with pytest.raises(CommandError, match='unknown command "explode"'):
        call(runtime, "explode")


@pytest.mark.soak
def test_a_broker_killed_without_a_hold_restarts_by_itself(root: Path) -> None:
    slave = members(up(root))[1]
    os.kill(slave["pid"], signal.SIGKILL)
    wait_until(lambda: member(root, 1)["restarts"] == 1, "restarted")
    wait_until(lambda: member(root, 1)["state"] == "Ready", "ready again")


def kill_runtime(root: Path) -> None:
    control = json.loads((root / "control.json").read_text())
    identity = Identity(control["pid"], control["ticks"])
    os.kill(control["pid"], signal.SIGKILL)
    wait_until(lambda: not identity.alive(), "the runtime is gone")


def test_down_after_the_runtime_was_killed_leaves_no_process(root: Path) -> None:
    pods = members(up(root))
    kill_runtime(root)
    listed = failback("ps", "--root", str(root))
    assert listed.returncode == 5
    assert f"{pods[0]['pod']}: pid {pods[0]['pid']} still runs" in listed.stdout
    assert "was killed" in listed.stderr
    os.kill(pods[1]["pid"], signal.SIGSTOP)  # a frozen one must go too
    done = failback("down", "--root", str(root))
    for each in pods:
        told = f"{each['pod']}: stopped (left by a runtime that was killed)"
        assert told in done.stdout, Path(each["log"]).read_text()[-3000:]
    assert processes_of(root) == []
    assert not Path(pods[0]["store"], "abort").exists()


def test_up_after_the_runtime_was_killed_ends_its_children_first(root: Path) -> None:
    before = members(up(root))
    kill_runtime(root)
    after = members(up(root))
    assert {each["pid"] for each in before}.isdisjoint(each["pid"] for each in after)
    assert [each["address"] for each in before] == [each["address"] for each in after]
    assert not any(Identity(each["pid"], each["ticks"]).alive() for each in before)


def test_one_of_two_name_servers_comes_back_beside_the_other(root: Path) -> None:
    first, second = up(root)["nameserver_pods"]
    os.kill(second["pid"], signal.SIGKILL)

    def is_back() -> bool:
        pods = call(Root(root), "view")["nameserver_pods"]
        return pods[1]["pid"] not in (None, second["pid"]) and pods[1]["state"] == "Ready"

    wait_until(is_back, "the second name server", 60)
    assert call(Root(root), "view")["nameserver_pods"][0]["pid"] == first["pid"]


def test_a_runtime_killed_while_starting_leaves_nothing_that_down_misses(root: Path) -> None:
    file = root.parent / "cluster.yaml"
    file.write_text(PAIR)
    for delay in (0.25, 0.4, 0.6, 0.9):
        words = [*FAILBACK, "up", "-f", str(file), "--root", str(root), "--json"]
        runtime = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            runtime.wait(timeout=delay)
        except subprocess.TimeoutExpired:
            runtime.kill()
        runtime.wait()
        failback("down", "--root", str(root))
        assert processes_of(root) == []


def test_ctrl_c_in_the_foreground_stops_everything_in_order(root: Path) -> None:
    file = root.parent / "cluster.yaml"
    file.write_text(PAIR)
    runtime = subprocess.Popen(
        [*FAILBACK, "up", "-f", str(file), "--root", str(root)], stdout=subprocess.PIPE, text=True
    )
    assert runtime.stdout is not None
    lines = []
    for line in runtime.stdout:
        lines.append(line.rstrip())
        if line.startswith("ready"):
            runtime.send_signal(signal.SIGINT)
    assert runtime.wait(timeout=60) == 0
    runtime.stdout.close()
    stopping = [line for line in lines if line.startswith("stopping")]
    assert stopping == [
        "stopping demo-0-1-0",
        "stopping demo-0-0-0",
        "stopping main-ns-0, main-ns-1",
    ]
    assert processes_of(root) == []


@pytest.mark.soak
def test_a_root_has_one_runtime(root: Path) -> None:
    up(root)
    second = failback(
        "up", "-f", str(root.parent / "cluster.yaml"), "--root", str(root), "--detach"
    )
    assert second.returncode == 4
    assert f"{root} is in use by the runtime with pid" in second.stderr
    assert len(members(call(Root(root), "view"))) == 2


def test_a_taken_port_is_named_and_nothing_starts(root: Path) -> None:
    up(root)
    failback("down", "--root", str(root))
    port = json.loads((root / "ports.json").read_text())["demo-0-0"] + 2
    with socket.socket() as taker:
        taker.bind(("127.0.0.1", port))
        taker.listen()
        file = str(root.parent / "cluster.yaml")
        refused = failback("up", "-f", file, "--root", str(root), "--detach")
        assert refused.returncode == 2
        told = f"error: port {port}: is already taken: 127.0.0.1:{port}, pid {os.getpid()} ("
        assert told in refused.stderr
        assert processes_of(root) == []


def test_a_bad_file_is_one_line_and_starts_nothing(root: Path) -> None:
    file = root.parent / "cluster.yaml"
    file.write_text(PAIR.replace("slaveReadEnable", "slaveReadEnabled"))
    refused = failback("up", "-f", str(file), "--root", str(root))
    assert refused.returncode == 2
    assert refused.stderr == (
        f"error: {file}:11:3: BrokerCluster/demo: spec.slaveReadEnabled: unknown field,"
        ' did you mean "slaveReadEnable"?\n'
    )
    assert refused.stdout == ""
    assert not root.exists()
