"""``failback up --faults``: what a pod is told reaches its process, and nothing else is touched."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from failback.operator.local import disks, groups
from failback.operator.local.faults import PodFaults, prepare_faults
from failback.operator.local.podspec import ContainerSpec, PodSpec, Volume
from failback.operator.local.root import Root
from failback.operator.schema.decoding import decode
from failback.protocol.errors import ConfigError

PROGRAM = """
import json, os, sys, time
store = os.environ["FAILBACK_FAULTS_STORE"].rstrip("/")
home = os.path.dirname(store)
for _ in sys.stdin:
    seen = {"wall": time.time(), "mono": time.monotonic()}
    time.sleep(0.001)
    for name, act in (
        ("sync", lambda: os.fsync(folder)),
        ("open", lambda: os.close(os.open(f"{store}/new", os.O_CREAT | os.O_WRONLY))),
        ("outside", lambda: os.close(os.open(f"{home}/new", os.O_CREAT | os.O_WRONLY))),
        ("rename", lambda: os.replace(f"{store}/old", f"{store}/old")),
    ):
        folder = os.open(store, os.O_RDONLY)
        began = time.monotonic()
        try:
            act()
            seen[name] = 0
        except OSError as error:
            seen[name] = error.errno
        seen[f"{name}_took"] = time.monotonic() - began
        os.close(folder)
    print(json.dumps(seen), flush=True)
"""


def spec_of(root: Root, *volumes: Volume) -> PodSpec:
    home = root.home("demo-0-0-0")
    (home / "store").mkdir(parents=True)
    (home / "store/old").touch()
    container = ContainerSpec("broker", (), {})
    return PodSpec("demo-0-0-0", "demo-0-0", "127.0.0.1", str(home), 1, volumes, (), container)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_process_sees_what_its_pod_is_told(tmp_path: Path) -> None:
    root = Root(tmp_path)
    root.create()
    prepare_faults(("clock", "files"), (), root)
    pod = PodFaults(spec_of(root), root, ("clock", "files"))
    assert pod.possible == ["clock", "files"]
    environment = {"PATH": os.defpath, **pod.environment()}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def look() -> dict[str, Any]:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            mono, wall = time.monotonic(), time.time()
            seen: dict[str, Any] = json.loads(child.stdout.readline())
            seen["shift"] = round((seen["wall"] - seen["mono"]) - (wall - mono), 1) + 0.0
            return seen

        true = {"shift": 0.0, "sync": 0, "open": 0, "outside": 0, "rename": 0}

        def shown(seen: dict[str, Any]) -> dict[str, Any]:
            return {name: seen[name] for name in true}

        assert shown(look()) == true
        for told, differs in (
            ({"seconds": 120}, {"shift": 120.0}),
            ({"seconds": -1.5}, {"shift": -1.5}),
            ({"sync": "EIO"}, {"sync": errno.EIO}),
            ({"open": "ENOSPC"}, {"open": errno.ENOSPC}),
            ({"rename": "EROFS"}, {"rename": errno.EROFS}),
        ):
            pod.set("clock" if "seconds" in told else "files", told)
            assert shown(look()) == {**true, **differs}
            pod.end()
            pod.end()
            assert shown(look()) == true
        pod.set("files", {"sync_ms": 200})
        assert look()["sync_took"] >= 0.2
        pod.set("clock", {"drift": 1000.0})
        first, second = look(), look()
        assert second["shift"] > first["shift"] > 0
        pod.end()
        assert shown(look()) == true


def test_only_a_disk_of_its_own_is_filled_or_fails(tmp_path: Path) -> None:
    """The folder lies on the machine's disk: nothing may be written there."""
    with pytest.raises(disks.DiskError, match="is no disk of its own"):
        disks.fill(tmp_path, 0.99)
    with pytest.raises(disks.DiskError, match="is no disk of its own"):
        disks.fail(tmp_path)
    assert list(tmp_path.iterdir()) == []


HUNGRY = """
import sys
kept = [b"x" * (32 << 20)]
for _ in sys.stdin:
    kept.append(b"x" * (8 << 20))
    print(len(kept), flush=True)
"""


@pytest.mark.skipif(groups.MEMORY.top is None, reason="needs a memory controller")
def test_a_pod_that_needs_more_memory_than_its_limit_is_killed(tmp_path: Path) -> None:
    root = Root(tmp_path)
    pod = PodFaults(spec_of(root), root, ("memory",))
    assert pod.possible == ["memory"]
    try:
        for limited in (True, False):
            with subprocess.Popen(
                [sys.executable, "-c", HUNGRY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            ) as child:
                assert child.stdin is not None
                assert child.stdout is not None
                pod.enter(child.pid)
                child.stdin.write(b"\n")
                child.stdin.flush()
                assert child.stdout.readline() == b"2\n"
                if limited:
                    pod.set("memory", {"ratio": 0.5})
                child.communicate(b"\n" * 8)  # it passes over a pipe that broke
                assert child.returncode == (-signal.SIGKILL if limited else 0)
            pod.end()
            pod.end()
        assert groups.remove_groups(Root(tmp_path / "another")) == []
        assert len(groups_of(root)) == 1
    finally:
        assert groups.remove_groups(root) == []
    assert groups_of(root) == []


def groups_of(root: Root) -> list[Path]:
    digest = hashlib.sha256(os.fsencode(root.path)).hexdigest()[:8]
    return list(Path("/sys/fs/cgroup").glob(f"**/failback-{digest}-*"))


def test_the_second_version_of_cgroups_has_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No kernel with both is at hand: the names and words are those of cgroup-v2.rst."""
    monkeypatch.setattr(groups, "_TOP", tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu io memory\n")
    (tmp_path / "cgroup.subtree_control").touch()
    pod = groups.PodGroups(Root(tmp_path / "root"), "demo-0-0-0", (groups.MEMORY, groups.DISK))
    pod.enter(7)
    (group,) = tmp_path.glob("failback-*")
    assert (group / "cgroup.procs").read_text() == "7"
    (group / "memory.current").write_text("1000\n")
    pod.limit_memory(0.5)
    assert (group / "memory.max").read_text() == "500"
    pod.lift_memory()
    assert (group / "memory.max").read_text() == "max"
    device = tmp_path.stat().st_dev
    for writes, written in ((2, "2"), (0, "max")):
        pod.limit_writes(tmp_path, writes)
        wanted = f"{os.major(device)}:{os.minor(device)} wiops={written}"
        assert (group / "io.max").read_text() == wanted


def test_what_was_not_asked_for_can_not_be_set(tmp_path: Path) -> None:
    root = Root(tmp_path)
    pod = PodFaults(spec_of(root), root, ("disk",))
    assert (pod.possible, pod.environment(), pod.needs_repair) == ([], {}, False)
    with pytest.raises(ConfigError, match="cannot be set here, only nothing can"):
        pod.set("disk-full", {"ratio": 0.9})
    pod.end()


def cluster(storage: str) -> Any:
    return decode(
        {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "BrokerCluster",
            "metadata": {"name": "demo"},
            "spec": {"nameServerRef": {"name": "ns"}, "storage": {"type": storage}},
        }
    )


def test_what_is_missing_is_said_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(tmp_path)
    with pytest.raises(ConfigError, match='"disc" is none of clock, files, disk, memory'):
        prepare_faults(("disc",), (), root)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(ConfigError, match="apt-get install gcc"):
        prepare_faults(("clock",), (), root)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(ConfigError, match="apt-get install e2fsprogs mount"):
        prepare_faults(("disk",), (), root)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="needs root"):
        prepare_faults(("disk",), (), root)
    monkeypatch.setattr(groups, "_TOP", tmp_path)
    with pytest.raises(ConfigError, match="needs root and a memory controller"):
        prepare_faults(("memory",), (), root)
    monkeypatch.setattr(disks, "refuse_missing", lambda: None)
    with pytest.raises(ConfigError, match="has storage type Ephemeral"):
        prepare_faults(("disk",), (cluster("Ephemeral"),), root)


def test_files_that_a_mount_would_hide_are_refused(tmp_path: Path) -> None:
    root = Root(tmp_path)
    root.create()
    (root.claim_dir("data-demo-0-0-0")).mkdir(parents=True)
    (root.claim_dir("data-demo-0-0-0") / "commitlog").touch()
    with pytest.raises(ConfigError, match="take another --root"):
        disks.mount_claims(root, ["data-demo-0-0-0"])
    assert list((root.path / "disks").iterdir()) == []


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="a mount needs root"
)
def test_a_disk_is_repaired_while_another_mount_namespace_has_it(tmp_path: Path) -> None:
    """Checking a file system while it is mounted elsewhere damages it: a copy is checked."""
    root = Root(tmp_path)
    root.create()
    disks.mount_claims(root, ["data"])
    place = root.claim_dir("data")
    try:
        disks.fill(place, 0.9)
        assert os.statvfs(place).f_bavail < os.statvfs(place).f_blocks * 0.11
        disks.free_room(place)
        disks.free_room(place)
        (place / "kept").write_text("before")
        os.sync()
        disks.fail(place)
        with pytest.raises(OSError, match="Read-only"):
            (place / "new").write_text("after")
        with subprocess.Popen(
            ["unshare", "-m", "sh", "-c", "echo ready; read -r line"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other:
            assert other.stdout is not None
            other.stdout.readline()
            disks.repair(root, "data")
            assert not disks.has_failed(place)
            assert (place / "kept").read_text() == "before"
            (place / "new").write_text("after")
        disks.fail(place)
        disks.repair(root, "data")
        assert (place / "kept").read_text() == "before"
    finally:
        assert disks.unmount_all(root) == []
    assert not place.is_mount()
