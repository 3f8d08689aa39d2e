"""One pod: init containers, probes, restarts with back-off, holds, stops, what is left behind."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from failback.operator.local.pod import BackOff, Pod
from failback.operator.local.podspec import ContainerSpec, PodSpec, Volume, beside, own_command
from failback.operator.local.process import Child, Identity, end_stranger
from failback.operator.local.root import Root
from failback.operator.render.broker import WHEN_CARRIED
from tests.integration.local.script_pods import (
    ENVIRONMENT,
    SERVE,
    Seen,
    http_probe,
    new_root,
    pod_spec,
    script,
    shell,
)
from tests.support.carry.stopped_master import AnsweringSlave, StoppedMaster, at
from tests.support.common.polling import until
from tests.support.net.ports import free_port


@asynccontextmanager
async def running(
    spec: PodSpec, root: Root, first_back_off_seconds: float = 0.01
) -> AsyncIterator[tuple[Pod, Seen]]:
    seen = Seen()
    pod = Pod(spec, root, seen, first_back_off_seconds=first_back_off_seconds)
    pod.start()
    try:
        yield pod, seen
    finally:
        await pod.stop(grace_seconds=0)


def log(root: Root) -> str:
    file = root.log_file("p")
    return file.read_text() if file.exists() else ""


async def test_init_containers_run_in_order_before_the_container(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    spec = pod_spec(
        root, shell("echo main; sleep 60"), inits=[shell("echo one"), shell("echo two")]
    )
    async with running(spec, root) as (pod, _):
        await until(lambda: pod.ready, "ready")
        await until(lambda: log(root).split() == ["one", "two", "main"], "all three ran")


async def test_a_failing_init_container_is_repeated_and_named(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    init = shell(
        f"echo x >> {tmp_path}/tries; echo too early; test $(wc -l < {tmp_path}/tries) -ge 3"
    )
    async with running(pod_spec(root, shell("sleep 60"), inits=[init]), root) as (pod, seen):
        await until(lambda: pod.state == "BackOff", "back-off")
        assert pod.reason.startswith("init container main: exit code 1 (too early)")
        await until(lambda: pod.ready, "ready")
        assert (tmp_path / "tries").read_text().split() == ["x"] * 3
        assert seen.deaths == []


async def test_a_master_is_given_what_its_slave_knows_at_each_start_behind_a_hold(
    tmp_path: Path,
) -> None:
    root = new_root(tmp_path)
    master = StoppedMaster(tmp_path / "master")
    master.has(at(10))
    with AnsweringSlave(master, at(20)) as slave:
        (tmp_path / "members").write_text(slave.address)
        run = root.run_dir("p")
        sidecar = [*own_command(), "tools", "carry-serve", "--conf", str(master.conf)]
        sidecar += ["--members", str(tmp_path / "members"), "--run-dir", str(run)]
        words = shell(f"tr -d ' \\n' <{master.file}; echo; exec sleep 60").argv
        gate = ["sh", "-c", WHEN_CARRIED, str(root.hold_file("p")), "-1"]
        broker = ContainerSpec("main", beside(sidecar, [*gate, *words]), ENVIRONMENT)
        pod_with = pod_spec(root, broker, volumes=[Volume(str(run))], has_carry=True)
        async with running(pod_with, root) as (pod, _):
            await until(lambda: log(root).count(":20}") == 1, "the first start")
            pod.hold("u1")
            assert pod.identity is not None
            os.kill(pod.identity.pid, signal.SIGKILL)
            await until(lambda: pod.state == "Held", "held")
            slave.offsets = at(30)
            assert master.loads == at(20)
            pod.release()
            await until(lambda: log(root).count(":30}") == 1, "the second start")
            assert pod.carried is not None
            assert (pod.carried["outcome"], pod.carried["messages"]) == ("Carried", 10)
    (tmp_path / "members").write_text(f"127.0.0.1:{free_port()}")
    async with running(pod_with, root) as (pod, _):
        await until(lambda: pod.ready, "a start that waits for no slave")


@pytest.mark.sample
async def test_a_death_leaves_its_wait_status_and_the_pod_restarts(
    tmp_path: Path,
) -> None:
    root = new_root(tmp_path)
    async with running(pod_spec(root, shell("sleep 60")), root) as (pod, seen):
        await until(lambda: pod.ready, "ready")
        first = pod.identity
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        await until(lambda: pod.ready and pod.identity != first, "restarted")
        assert [each.identity for each in seen.deaths] == [first]
        assert os.WTERMSIG(seen.deaths[0].wstatus) == signal.SIGKILL
        assert pod.restarts == 1
        assert seen.states == ["Starting", "Ready", "BackOff", "Starting", "Ready"]


def test_back_off_doubles_to_a_minute_and_forgets_after_calm() -> None:
    back_off = BackOff()
    assert [back_off.after(1) for _ in range(8)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert [back_off.after(600), back_off.after(599)] == [1, 2]


async def test_a_held_pod_stays_down_until_released(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    async with running(pod_spec(root, shell("sleep 60")), root, 3600) as (pod, _):
        await until(lambda: pod.ready, "ready")
        first = pod.identity
        assert first is not None
        pod.hold("undo-7")
        assert pod.ready
        os.kill(first.pid, signal.SIGKILL)
        await until(lambda: pod.state == "Held", "held")
        assert pod.identity is None
        assert "undo-7" in root.hold_file("p").read_text()
        pod.release()
        await until(lambda: pod.ready, "ready again, without a back-off")


async def test_a_hold_and_a_stop_end_by_themselves(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    async with running(pod_spec(root, shell("sleep 60")), root, 3600) as (pod, _):
        await until(lambda: pod.ready, "ready")
        first = pod.identity
        assert first is not None
        pod.limit(600)
        os.kill(first.pid, signal.SIGSTOP)
        await until(lambda: state_of(first) == "T", "stopped")
        pod.limit(0.2)
        await until(lambda: state_of(first) != "T", "running on")
        pod.hold("undo-7")
        os.kill(first.pid, signal.SIGKILL)
        await until(lambda: pod.state == "Held", "held")
        pod.limit(0.2)
        await until(lambda: pod.ready, "started again")


def state_of(process: Identity) -> str:
    """Return the kernel's letter for a process."""
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]


async def test_a_hold_file_removed_by_hand_releases_and_survives_a_new_pod(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    first = Pod(pod_spec(root, shell("sleep 60")), root, Seen())
    first.hold("x")
    async with running(pod_spec(root, shell("sleep 60")), root) as (pod, _):
        await until(lambda: pod.state == "Held", "held from the start")
        root.hold_file("p").unlink()
        await until(lambda: pod.ready, "ready")


async def test_stop_waits_for_the_grace_and_then_kills(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    stubborn = shell("trap 'echo deaf' TERM; echo up; while :; do sleep 0.05; done")
    async with running(pod_spec(root, stubborn, grace_seconds=0.3), root) as (pod, seen):
        await until(lambda: "up" in log(root), "up")
        await pod.stop()
        assert "deaf" in log(root)
        assert os.WTERMSIG(seen.deaths[0].wstatus) == signal.SIGKILL
        assert (pod.state, pod.identity, pod.restarts) == ("Stopped", None, 0)
        pod.start()
        await until(lambda: pod.ready, "started again")


async def test_a_stop_in_time_is_no_kill(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    obedient = shell("trap 'exit 3' TERM; echo up; while :; do sleep 0.02; done")
    async with running(pod_spec(root, obedient), root) as (pod, seen):
        await until(lambda: "up" in log(root), "up")
        await pod.stop()
        assert os.WEXITSTATUS(seen.deaths[0].wstatus) == 3


async def test_what_a_process_leaves_in_its_group_dies_with_it(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    parent = shell(f"sleep 61 & echo $! > {tmp_path}/child; wait")
    async with running(pod_spec(root, parent), root) as (pod, _):
        await until((tmp_path / "child").exists, "child")
        await until(lambda: (tmp_path / "child").read_text().strip(), "its pid")
        child = Identity.of(int((tmp_path / "child").read_text()))
        assert child is not None
        assert pod.identity is not None
        os.kill(pod.identity.pid, signal.SIGKILL)
        await until(lambda: not child.alive(), "the child is gone too")


async def test_probes_decide_about_startup_readiness_and_life(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    port = free_port()
    container = dataclasses.replace(
        script(SERVE, "127.0.0.1", str(port)),
        startup=http_probe(port, "/started", failures=1000),
        readiness=http_probe(port, "/ready", failures=1),
        liveness=http_probe(port, "/alive", failures=2),
    )
    async with running(pod_spec(root, container), root) as (pod, seen):
        home = root.home("p")
        await until(lambda: pod.reason == "HTTP 503 said so", "startup probe fails")
        assert pod.state == "Starting"
        (home / "alive").touch()
        (home / "started").touch()
        await until(lambda: pod.state == "Running", "started, not ready")
        (home / "ready").touch()
        await until(lambda: pod.ready, "ready")
        (home / "ready").unlink()
        await until(lambda: pod.state == "Running", "not ready any more")
        (home / "alive").unlink()
        await until(lambda: bool(seen.deaths), "ended by the liveness probe")
        assert os.WTERMSIG(seen.deaths[0].wstatus) == signal.SIGTERM


async def test_a_startup_probe_that_never_passes_ends_the_process(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    container = dataclasses.replace(
        shell("sleep 60"), startup=http_probe(free_port(), "/", period=0.1, failures=3)
    )
    async with running(pod_spec(root, container), root) as (pod, seen):
        await until(lambda: bool(seen.deaths), "ended")
        await until(lambda: pod.state == "BackOff", "back-off")


async def test_a_taken_port_is_waited_for_with_its_holder_named(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    port = free_port()
    taker = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", port)
    container = dataclasses.replace(
        script(SERVE, "127.0.0.1", str(port)), startup=http_probe(port, "/", failures=1000)
    )
    async with running(pod_spec(root, container), root) as (pod, _):
        await until(lambda: pod.state == "BackOff", "back-off")
        assert f"127.0.0.1:{port}, pid {os.getpid()} (" in pod.reason
        taker.close()
        await taker.wait_closed()
        await until(lambda: pod.identity is not None, "started once the port is free")


async def test_a_new_pod_has_fresh_folders_and_the_old_claim(tmp_path: Path) -> None:
    root = new_root(tmp_path)
    home = root.home("p")
    volumes = [
        Volume(f"{home}/desired", files={"broker.conf": "a=1\n"}),
        Volume(f"{home}/store", claim="data-p"),
        Volume(f"{home}/logs"),
    ]
    spec = pod_spec(root, shell("cat desired/broker.conf; sleep 60"), volumes=volumes)
    async with running(spec, root) as (pod, _):
        await until(lambda: log(root) == "a=1\n", "file of the ConfigMap")
        (home / "logs" / "x").touch()
        (home / "store" / "commitlog").write_text("data")
        await pod.stop()
        pod.start()
        await until(lambda: log(root) == "a=1\na=1\n", "started again")
        assert not (home / "logs" / "x").exists()
        assert (home / "store" / "commitlog").read_text() == "data"
        assert (root.claim_dir("data-p") / "commitlog").exists()


async def test_a_child_does_not_start_before_its_gate_opens(tmp_path: Path) -> None:
    # A runtime that dies before it wrote the child's identity down closes the gate for good.
    marker = tmp_path / "ran"
    child = Child.spawn(["touch", str(marker)], ENVIRONMENT, tmp_path, tmp_path / "log")
    assert child.identity.alive()
    assert child._process.stdin is not None
    child._process.stdin.close()
    death = await child.wait()
    assert os.WEXITSTATUS(death.wstatus) == 127
    assert not marker.exists()


async def test_only_the_very_process_is_ended(tmp_path: Path) -> None:
    child = Child.spawn(["sleep", "60"], ENVIRONMENT, tmp_path, tmp_path / "log")
    child.open_gate()
    namesake = Identity(child.identity.pid, child.identity.ticks - 1)
    assert end_stranger(namesake, 0) == "was gone already"
    assert child.identity.alive()
    waiting = asyncio.create_task(child.wait())
    assert await asyncio.to_thread(end_stranger, child.identity, 30) == "stopped"
    await waiting
