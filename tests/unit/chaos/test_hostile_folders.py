"""A run folder that somebody sends is only data: it chooses no command, cluster, socket or file."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.target import FileStat
from failback.chaos.cluster.view import Member
from failback.chaos.errors import ExitCode, GuardRefused
from failback.chaos.faults.replace_offset_file import RESTORE_FILES
from failback.chaos.run import abort_and_heal
from failback.chaos.run.abort_and_heal import heal, runs_to_heal
from failback.chaos.run_folder import own_notes
from failback.chaos.run_folder.run_folder import ClusterLease
from failback.chaos.run_folder.undo_ledger import UndoLedger
from failback.chaos.targets.location import Location
from failback.cli.experiment import running
from failback.common.files import digest_of
from failback.protocol.errors import ConfigError
from tests.support.chaos.fake_target import FakeTarget
from tests.support.chaos.hostile import kubeconfig

pytestmark = pytest.mark.foreign
RELEASE = {"id": "u0001", "call": "release", "args": {"pod": "x"}, "fid": "f1", "t": [1, 1]}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "failback" / "runs"


def folder_of(path: Path, note: dict[str, Any], entry: dict[str, Any] = RELEASE) -> Path:
    (path / "logs").mkdir(parents=True)
    (path / "experiment.json").write_text("{}")
    (path / "target.json").write_text(json.dumps({"cluster": "orders", **note}))
    (path / "undo.jsonl").write_text(json.dumps(entry) + "\n")
    return path


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    """A Unix socket that notices a connection."""
    with socket.socket(socket.AF_UNIX) as found:
        found.bind(str(tmp_path / "s"))
        found.listen()
        found.setblocking(False)
        yield found


@pytest.mark.parametrize("where", ["kubeconfig", "link", "control_socket", "root"])
def test_the_folder_does_not_say_where_to_act(
    where: str, tmp_path: Path, listener: socket.socket
) -> None:
    proof = tmp_path / "ran"
    run = folder_of(tmp_path / "runs" / "r", {})
    config = kubeconfig(run / "logs" / "kubeconfig", proof)
    (run / "logs" / "link").symlink_to(config)
    (run / "control.json").write_text(json.dumps({"socket": listener.getsockname()}))
    note = {
        "kubeconfig": {"kind": "kube", "namespace": "shop", "kubeconfig": str(config)},
        "link": {"kind": "kube", "namespace": "shop", "kubeconfig": str(run / "logs" / "link")},
        "control_socket": {"kind": "local", "control_socket": listener.getsockname()},
        "root": {"kind": "local", "root": str(run)},
    }[where]
    (run / "target.json").write_text(json.dumps({"cluster": "orders", **note}))
    with pytest.raises(ConfigError, match=r"no note of where the cluster of .* is\. Give --root"):
        heal(run, seconds=0)
    assert not proof.exists()
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_a_note_that_another_account_could_write_is_none(tmp_path: Path, state: Path) -> None:
    run = folder_of(tmp_path / "r", {})
    own_notes.remember(run, {"cluster": "orders", "root": str(tmp_path)})
    assert own_notes.recall(run)["root"] == str(tmp_path)
    state.chmod(0o777)
    assert own_notes.recall(run) == {}


class WritingTarget(FakeTarget):
    """One that writes store files, and notes it."""

    def read_store(self, member: Member, path: str) -> bytes:
        raise FileNotFoundError(path)

    def write_store(self, member: Member, path: str, data: bytes | None) -> None:
        self.calls.append(("write", path))

    def stat_store(self, member: Member, path: str) -> FileStat:
        raise FileNotFoundError(path)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[WritingTarget, ClusterLease]:
    """A cluster that heal reaches when it is told where."""
    target, lease = WritingTarget(), ClusterLease(tmp_path, "orders")
    target.replace_member(0, running=False, identity=None)
    target.hold(target.members[0], "u1")
    monkeypatch.setattr(Location, "connect", lambda *_: (target, lease))
    monkeypatch.setattr(Location, "is_gone", lambda _: False)
    monkeypatch.setattr(abort_and_heal, "_close_aborted", lambda *_: None)
    return target, lease


def test_a_lease_that_names_another_run_lets_nothing_be_undone(
    tmp_path: Path, cluster: tuple[WritingTarget, ClusterLease]
) -> None:
    target, lease = cluster
    run = folder_of(tmp_path / "r", {})
    for named in ("", str(tmp_path / "other")):
        if named:
            lease.take(Path(named), healing=True)
            lease.give_back(healed=False)
        before = list(target.calls)
        with pytest.raises(GuardRefused, match=f"names {named or 'no run'}, not {run}"):
            heal(run, location=Location(root="x"), seconds=0)
        assert target.calls == before


def test_saved_files_are_written_only_as_the_run_saved_them(
    tmp_path: Path, cluster: tuple[WritingTarget, ClusterLease]
) -> None:
    target, lease = cluster
    run = folder_of(tmp_path / "r", {})
    saved = run / "snap" / "saved.json"
    saved.parent.mkdir()
    saved.write_bytes(b"true")
    files = {"config/consumerOffset.json": str(saved)}
    (run / "undo.jsonl").unlink()
    UndoLedger(run).add(RESTORE_FILES, {"pod": target.members[0].pod, "files": files}, "f1")
    lease.take(run)
    lease.vouch([digest_of(b"true")])
    lease.give_back(healed=False)
    saved.write_bytes(b"false")
    said: list[str] = []
    code = heal(run, location=Location(root="x"), seconds=0, progress=said.append)
    assert (code, [call for call in target.calls if call[0] == "write"]) == (
        ExitCode.NOT_HEALED,
        [],
    )
    assert "not those that the run vouched for" in said[-1]
    saved.write_bytes(b"true")
    heal(run, location=Location(root="x"), seconds=0)
    assert [call for call in target.calls if call[0] == "write"]


def test_a_folder_that_cannot_be_healed_keeps_none_of_the_others_from_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b", "c"):
        folder_of(tmp_path / "runs" / name, {})
    (tmp_path / "runs" / "a" / "undo.jsonl").write_text("[]\n")
    code = running.heal(tmp_path / "runs", None, if_there=False, insists=False)
    said = capsys.readouterr().err.splitlines()
    assert code == ExitCode.BAD_INPUT
    assert "a/undo.jsonl: line 1 is no entry of an undo ledger" in said[0]
    assert [f"runs/{name}: " in line for name, line in zip("abc", said, strict=True)] == [True] * 3
    assert all("no note of where the cluster" in line for line in said[1:])


def test_folders_are_found_at_the_depth_of_runs_only(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    near = folder_of(runs / "handover" / "base-000", {})
    folder_of(runs / "a" / "b" / "c" / "d", {})
    (runs / "linked").symlink_to(folder_of(tmp_path / "elsewhere", {}))
    assert runs_to_heal(runs) == [near]
