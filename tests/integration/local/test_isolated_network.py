"""`failback up --isolate-network`: what it makes in the kernel goes with it, however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.operator.local import network
from failback.operator.local.control import call
from failback.operator.local.network import missing, plan_network, remove
from failback.operator.local.root import Root, write_json
from failback.protocol.errors import ConfigError
from tests.integration.local.test_up_and_down import FAILBACK, failback

NAME_SERVER = """\
apiVersion: failback.dev/v1alpha1
kind: NameServer
metadata: {name: main}
spec: {replicas: 2, config: {failbackTimeScale: "0.1"}}
"""
root_only = pytest.mark.skipif(bool(missing()), reason=missing())


def made_for(root: Path) -> list[str]:
    """Interfaces and namespaces that bear the root's digest."""
    bridge = plan_network(Root(root), []).bridge
    folders = Path("/sys/class/net"), Path("/run/netns")
    return sorted(path.name for folder in folders for path in folder.glob(f"{bridge}*"))


@pytest.fixture
def roots(tmp_path: Path) -> Iterator[list[Path]]:
    (tmp_path / "cluster.yaml").write_text(NAME_SERVER)
    folders = [tmp_path / "one", tmp_path / "two"]
    yield folders
    for folder in folders:
        failback("down", "--root", str(folder))
        assert made_for(folder) == []


def up(root: Path) -> None:
    file = str(root.parent / "cluster.yaml")
    done = failback("up", "-f", file, "--root", str(root), "--detach", "--isolate-network")
    assert done.returncode == 0, done.stderr


@root_only
def test_two_roots_live_side_by_side_and_a_killed_one_leaves_nothing(roots: list[Path]) -> None:
    one, two = roots
    for root in roots:
        up(root)
    pods = [pod for root in roots for pod in call(Root(root), "view")["nameserver_pods"]]
    assert len({pod["address"].rpartition(":")[0] for pod in pods}) == 4
    kept = made_for(two)
    assert len(kept) == 5  # a bridge; for each pod a namespace and the host's end of its pair

    os.kill(json.loads((one / "control.json").read_text())["pid"], signal.SIGKILL)
    assert len(made_for(one)) == 5
    done = failback("down", "--root", str(one))
    assert "network of 2 pods removed" in done.stdout
    assert (made_for(one), made_for(two)) == ([], kept)
    assert [pod["state"] for pod in call(Root(two), "view")["nameserver_pods"]] == ["Ready"] * 2


@root_only
def test_a_runtime_killed_while_it_makes_its_network_leaves_nothing(roots: list[Path]) -> None:
    root = roots[0]
    for delay in (0.5, 0.7, 0.8, 0.9, 1.0):
        words = ["up", str(root.parent / "cluster.yaml"), "--root", str(root), "--isolate-network"]
        runtime = subprocess.Popen([*FAILBACK, *words], stdout=-3, stderr=-3)
        try:
            runtime.wait(timeout=delay)
        except subprocess.TimeoutExpired:
            runtime.kill()
        runtime.wait()
        failback("down", "--root", str(root))
        assert made_for(root) == []
        assert not (root / "network.json").exists()


@root_only
def test_what_is_recorded_and_was_not_made_is_no_failure(tmp_path: Path) -> None:
    root = Root(tmp_path)
    write_json(root.network_file, {"bridge": "fb00000000", "namespaces": ["fb00000000-0"]})
    assert list(remove(root)) == ["fb00000000: network of 1 pods removed"]
    assert list(remove(root)) == []


@root_only
def test_a_kernel_that_refuses_a_part_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(tmp_path)
    planned = plan_network(root, ["a-0", "b-0"])
    monkeypatch.setattr(network.Network, "prober", property(lambda self: "no address"))
    with pytest.raises(ConfigError, match="--isolate-network: "):
        network.make(planned, root)
    assert made_for(tmp_path) == []
    assert not root.network_file.exists()


def test_what_is_missing_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="only root may do: run the command as root"):
        plan_network(Root(tmp_path), ["a-0"])
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(network, "find_program", lambda name: None if name == "nft" else name)
    with pytest.raises(ConfigError, match="needs nft: apt-get install nftables"):
        plan_network(Root(tmp_path), ["a-0"])
