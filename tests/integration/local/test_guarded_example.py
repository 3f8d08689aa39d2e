"""examples/guarded.yaml: a guarded cluster on this machine, and the same one open again."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess
from failback.client.remoting.guarded.cluster import access_by
from failback.operator.local.control import call
from failback.operator.local.root import Root
from failback.protocol.errors import BrokerError, FailbackError
from tests.support.processes.child_process import failback_command, failback_environment

EXAMPLE = Path(__file__).parents[3] / "examples/guarded.yaml"
OFF = (("mode: Enforce ", 'mode: "Off" '), ("mode: Enforcing", "mode: Disabled"))


def failback(*words: str) -> str:
    done = subprocess.run(
        failback_command("cli", *words), capture_output=True, text=True, env=failback_environment()
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def topics(address: str, access: ClusterAccess | None) -> set[str]:
    async with AdminClient(settings=RemotingSettings(access=access)) as admin:
        return set((await admin.all_topic_config(address)).topic_config_table)


def test_it_comes_up_with_both_on_and_with_both_off(tmp_path: Path) -> None:
    root = Root(tmp_path / "root")
    off = tmp_path / "off.yaml"
    text = EXAMPLE.read_text()
    for before, after in OFF:
        assert text.count(before) == 1
        text = text.replace(before, after)
    off.write_text(text)
    try:
        for file, is_on in ((EXAMPLE, True), (off, False)):
            failback("up", str(file), "-d", "--root", str(root.path))
            (cluster,) = call(root, "view")["clusters"]
            master, slave = (each["address"] for each in cluster["pairs"][0]["members"])
            own = access_by(cluster["access"])
            assert own is not None
            assert "orders" in asyncio.run(topics(master, own))
            assert "guarded-0" in failback("admin", "clusterList", "--root", str(root.path))
            if is_on:
                with pytest.raises(FailbackError):
                    asyncio.run(topics(slave, None))
                files = {"tls_ca": cluster["access"]["tls_ca"]}
                with pytest.raises(BrokerError, match="access key"):
                    asyncio.run(create(master, access_by(files)))
            else:
                assert "orders" in asyncio.run(topics(master, None))
            kept = [each for each in root.secrets.glob("*/*") if each.stat().st_mode & 0o077]
            assert [each.name for each in kept if each.suffix not in (".crt",)] == []
            failback("down", "--root", str(root.path))
    finally:
        failback("down", "--root", str(root.path))


async def create(address: str, access: ClusterAccess | None) -> None:
    async with AdminClient(settings=RemotingSettings(access=access)) as admin:
        await admin.delete_topic(address, "orders")
