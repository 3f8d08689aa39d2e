"""What ``failback carry --online`` raises at a running master, and what it says without answers."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from tests.support.brokers.master_outage import BEFORE, GROUP, MEANWHILE, TOPIC, Outage
from tests.support.java.apache import Engine
from tests.support.java.java_lab import Lab
from tests.support.processes.child_process import failback_command, failback_environment


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    found = Lab(tmp_path)
    try:
        yield found
    finally:
        found.dispose()


async def carried(*words: str) -> tuple[int, str, str]:
    command = failback_command("carry", "--online", *words)
    done = await asyncio.to_thread(
        subprocess.run,
        command,
        env=failback_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


async def test_a_master_that_runs_is_given_what_its_slave_knew(lab: Lab, tmp_path: Path) -> None:
    ns = lab.namesrv()
    async with AdminClient([ns.address]) as admin:
        engines: tuple[Engine, Engine] = ("failback", "failback")
        outage = Outage.of(lab, admin, ns, engines, {"failbackRules": "compat"})
        await outage.die()
        await outage.in_file(outage.slave, MEANWHILE)
        kept = tmp_path / "slave.json"  # a slave is overwritten soon after its master is back
        shutil.copy(outage.slave.store / "config" / "consumerOffset.json", kept)
        outage.master.start()
        words = ["--master", outage.master.address, "--file", str(kept)]

        code, out, _ = await carried(*words, "--dry-run")
        assert (code, "would raise 1 offsets of 1 groups by 10 messages" in out) == (0, True)
        assert await outage.offset_at(outage.master) == BEFORE
        code, out, _ = await carried(*words)
        assert (code, "raised 1 offsets of 1 groups by 10 messages" in out) == (0, True)
        assert await outage.offset_at(outage.master) == MEANWHILE
        assert "raised 0 offsets" in (await carried(*words))[1]
        kept.write_text(f'{{"offsetTable":{{"{TOPIC}@{GROUP}":{{0:1}}}}}}')  # of a reset there
        assert "raised 0 offsets" in (await carried(*words))[1]
        code, out, _ = await carried(*words, "--accept-lower", GROUP)
        assert (code, "by 0 messages, lowered 1; left 0" in out) == (0, True)
        assert await outage.offset_at(outage.master) == 1

        outage.master.kill()
        code, out, errors = await carried(*words, "--wait", "0.5")
        assert (code, out) == (4, "carry: nothing was carried\n")
        assert outage.master.address in errors
