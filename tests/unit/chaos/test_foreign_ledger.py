"""A run folder that somebody else made: healing it follows no path out of it."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.view import Member
from failback.chaos.errors import TargetError
from failback.chaos.faults.catalogue import UNDO
from failback.chaos.faults.replace_offset_file import RESTORE_FILES
from failback.chaos.faults.undo import undo_open
from failback.chaos.run_folder.undo_ledger import STOP_WORKLOAD, UndoLedger
from failback.chaos.targets.local import ControlSocket, LocalTarget
from failback.chaos.workload.process import command_of, stop_orphan
from tests.support.chaos.fake_target import FakeTarget
from tests.support.common.crossing import every_value

pytestmark = pytest.mark.foreign


ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"pod": [5]},
    {"files": ["a"]},
    {"files": {"a": 5}},
    {"sockets": 5},
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    found = tmp_path / "runs" / "r1"
    found.mkdir(parents=True)
    (found / "out").symlink_to("/etc")
    return found


@pytest.mark.parametrize(
    "path", ["/etc/hostname", "{run}/../../secret", "{run}/out/hostname", "secret", "{run}-2/x"]
)
def test_no_file_from_elsewhere_is_put_into_a_store(run_dir: Path, path: str) -> None:
    ledger = UndoLedger(run_dir)
    saved = path.replace("{run}", str(run_dir))
    files = {"config/consumerOffset.json": saved}
    ledger.add(RESTORE_FILES, {"pod": "p", "files": files}, "f1")
    target = FakeTarget()
    result = undo_open(ledger, target, seconds=0)
    assert result["undone"] == []
    assert "is not in the run folder" in result["still_open"][0]
    assert [call for call in target.calls if call[0] == "write"] == []


def test_what_is_no_socket_is_not_removed(run_dir: Path) -> None:
    kept = run_dir.parent / "kept"
    kept.write_text("mine")
    ledger = UndoLedger(run_dir)
    plan = str(run_dir / "plans" / "001-p.json")
    ledger.add(STOP_WORKLOAD, {"plan": plan, "socket": str(kept)})
    result = undo_open(ledger, FakeTarget(), seconds=0)
    assert "is no socket of this run's workload" in result["still_open"][0]
    assert kept.read_text() == "mine"


@pytest.mark.parametrize("call", [STOP_WORKLOAD, "subscribe", "reset-handlers"])
def test_a_socket_of_another_process_is_told_nothing(
    run_dir: Path, tmp_path: Path, call: str
) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(5)
        ledger, plan = UndoLedger(run_dir), str(run_dir / "plans" / "001-p.json")
        sockets = [listener.getsockname()]
        args = {"plan": plan, "socket": sockets[0], "sockets": sockets, "knobs": {}}
        ledger.add(call, args, "f1")
        result = undo_open(ledger, FakeTarget(), seconds=0)
        assert "is no socket of this run's workload" in result["still_open"][0]
        peer, _ = listener.accept()
        with peer:
            assert peer.recv(100) == b""


@pytest.mark.parametrize(
    ("call", "args"), every_value([*UNDO, STOP_WORKLOAD, "__import__"], ARGUMENTS)
)
def test_what_no_release_wrote_stays_open_and_is_named(
    run_dir: Path, call: str, args: dict[str, Any]
) -> None:
    ledger = UndoLedger(run_dir)
    ledger.add(call, args, "f1")
    result = undo_open(ledger, FakeTarget(), seconds=0)
    assert len(result["undone"]) + len(result["still_open"]) == 1


def test_a_plan_outside_is_not_followed(run_dir: Path) -> None:
    ledger = UndoLedger(run_dir)
    socket = str(run_dir / "1.sock")
    ledger.add(STOP_WORKLOAD, {"plan": "/proc/self/x.json", "socket": socket})
    assert undo_open(ledger, FakeTarget(), seconds=0)["undone"] == []


@pytest.fixture
def sleeper(run_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has the plan among its words and is none of a workload."""
    words = ["-c", "import time; time.sleep(60)", "run", str(run_dir / "001-p.json")]
    process = subprocess.Popen([sys.executable, *words])
    yield process
    process.kill()
    process.wait()


def test_no_process_is_ended_that_does_not_work_on_the_plan(
    run_dir: Path, sleeper: subprocess.Popen[bytes]
) -> None:
    plan = run_dir / "001-p.json"
    assert str(plan) in command_of(sleeper.pid)
    assert stop_orphan(plan, timeout=1)
    time.sleep(0.1)
    assert sleeper.poll() is None


@pytest.mark.parametrize("path", ["../outside", "/etc/hostname", "config/../../x", "link/hostname"])
def test_no_file_outside_a_store_is_read_or_written(tmp_path: Path, path: str) -> None:
    store = tmp_path / "store"
    store.mkdir()
    (store / "link").symlink_to("/etc")
    target = LocalTarget(ControlSocket(tmp_path / "none.sock"), "c")
    member = Member("pair-0", 0, "p", "b", 0, "master", "a:1", False, None, str(store))
    for act in (target.read_store, target.stat_store):
        with pytest.raises(TargetError, match="it is not in the store"):
            act(member, path)
