"""A slave whose log is not the beginning of its master's: under compat, and under guard."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from tests.support.brokers.replica_lab import (
    TOPIC,
    end_of,
    eventually,
    http,
    log_bytes,
    metric,
    runtime,
    send,
    until_equal,
    write_store,
)
from tests.support.java.apache import LOG_FILE_BYTES, Broker
from tests.support.java.java_lab import Lab
from tests.support.net.ports import free_port

QUICK: dict[str, object] = {"failbackTimeScale": 0.05}
COMMON, LOST, OTHER = (range(10), b""), (range(10, 20), b" lost"), (range(10, 40), b" another")
MORE = [b"sent to the master that is left, number %d" % number for number in range(60)]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    found = Lab(tmp_path)
    try:
        yield found
    finally:
        found.dispose()


def pair(lab: Lab, rules: str) -> tuple[Broker, Broker]:
    """Return a master and a slave, neither started."""
    ns = lab.namesrv()
    master = lab.broker("failback", ns, settings=dict(QUICK))
    settings = QUICK | {"failbackRules": rules, "failbackHttpPort": free_port()}
    return master, lab.broker("failback", ns, broker_id=1, role="SLAVE", settings=settings)


async def stopped(slave: Broker, reason: str) -> str:
    """Wait until the slave says that it does not replicate, and why."""

    async def said() -> str:
        return (await runtime(slave)).get("replicationStopped", "")

    return await eventually(said, lambda text: reason in text, f"{reason} from the slave")


@pytest.mark.parametrize(
    ("theirs", "reason"), [((COMMON,), "SlaveAhead"), ((COMMON, OTHER), "Diverged")]
)
async def test_a_guarded_slave_keeps_its_log_and_says_where_it_differs(
    lab: Lab, theirs: tuple[tuple[range, bytes], ...], reason: str
) -> None:
    master, slave = pair(lab, "guarded")
    common_end = write_store(lab.folder / "measure", COMMON)
    write_store(master.store, *theirs)
    end = write_store(slave.store, COMMON, LOST)
    before = log_bytes(slave, 0, LOG_FILE_BYTES)
    master.start()
    slave.start()

    where = f"(physical offset {common_end})"
    assert where in await stopped(slave, reason)
    status, text = await asyncio.to_thread(http, slave, "/readyz")
    assert (status, where in text) == (503, True)
    assert await asyncio.to_thread(metric, slave, "failback_ha_stopped") == 1
    assert await asyncio.to_thread(metric, slave, "failback_ha_differs_at_offset") == common_end
    assert "HA: replication from" in slave.process.errors()

    # The master grows past the slave's end: now 4.9.8 would send it bytes from a record's middle.
    assert await send(master, MORE) == [0] * len(MORE)
    assert await end_of(master) > end
    assert where in await stopped(slave, "Diverged")
    assert await end_of(slave) == end
    assert log_bytes(slave, 0, LOG_FILE_BYTES) == before
    async with AdminClient() as admin:
        assert await admin.max_offset(slave.address, TOPIC, 0) == 20, "it goes on serving"

    slave.kill()
    shutil.rmtree(slave.store)
    slave.start()
    end = await until_equal(slave, master)
    assert log_bytes(slave, 0, end) == log_bytes(master, 0, end)
    assert (await asyncio.to_thread(http, slave, "/readyz"))[0] == 200
    assert "replicationStopped" not in await runtime(slave)


async def test_a_compat_slave_appends_another_log_to_its_own(lab: Lab) -> None:
    master, slave = pair(lab, "compat")
    write_store(master.store, COMMON)
    end = write_store(slave.store, COMMON, LOST)
    before = log_bytes(slave, 0, end)
    master.start()
    slave.start()

    async def is_closed_again() -> bool:
        return f"it reported offset {end}" in master.process.errors()

    await eventually(is_closed_again, bool, "the master to close the slave that is ahead")
    assert await send(master, MORE) == [0] * len(MORE)

    async def state() -> tuple[bool, int]:
        one, other = await runtime(slave), await runtime(master)
        same = one["commitLogMaxOffset"] == other["commitLogMaxOffset"]
        return same, int(one["dispatchBehindBytes"])

    await eventually(state, lambda found: found[0] and found[1] > 0, "a corrupt slave that acks")
    assert log_bytes(slave, 0, end) == before
    async with AdminClient() as admin:
        assert await admin.max_offset(slave.address, TOPIC, 0) == 20, "and stays there"
    assert "dispatch stops at physical_offset" in slave.process.errors()
    assert (await asyncio.to_thread(http, slave, "/readyz"))[0] == 200
