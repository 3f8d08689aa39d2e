"""The guarded rules of one of our brokers, when its log and that of its Apache peer differ."""

from __future__ import annotations

import asyncio

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
    write_store,
)
from tests.support.java.apache import LOG_FILE_BYTES
from tests.support.java.java_lab import Lab
from tests.support.net.ports import free_port

COMMON, LOST = (range(10), b""), (range(10, 20), b" lost")
MORE = [b"sent to the master that is left, number %d" % number for number in range(60)]
GUARDED: dict[str, object] = {"failbackGuardReplication": "true"}


async def test_our_slave_finds_out_that_an_apache_master_has_lost_its_tail(lab: Lab) -> None:
    ns = lab.namesrv()
    master = lab.broker("apache", ns)
    settings = GUARDED | {"failbackTimeScale": 0.05, "failbackHttpPort": free_port()}
    slave = lab.broker("failback", ns, broker_id=1, role="SLAVE", settings=settings)
    common_end = write_store(master.store, COMMON)
    end = write_store(slave.store, COMMON, LOST)
    before = log_bytes(slave, 0, LOG_FILE_BYTES)
    master.start()
    slave.start()

    async def reason() -> str:
        return (await runtime(slave)).get("replicationStopped", "")

    where = f"(physical offset {common_end})"
    found = await eventually(reason, bool, "the slave to stop")
    assert found.startswith("SlaveAhead")
    assert found.endswith(where)
    assert (await asyncio.to_thread(http, slave, "/readyz"))[0] == 503

    assert await send(master, MORE) == [0] * len(MORE)
    assert await end_of(master) > end
    found = await eventually(reason, lambda text: text.startswith("Diverged"), "another look")
    assert found.endswith(where)
    assert await end_of(slave) == end
    assert log_bytes(slave, 0, LOG_FILE_BYTES) == before


@pytest.mark.soak
async def test_our_master_does_not_believe_an_apache_slave_that_is_ahead(lab: Lab) -> None:
    ns = lab.namesrv()
    settings = GUARDED | {"failbackHttpPort": free_port(), "slaveTimeout": 500}
    master = lab.broker("failback", ns, role="SYNC_MASTER", settings=settings)
    slave = lab.broker("apache", ns, broker_id=1, role="SLAVE")
    write_store(master.store, COMMON)
    end = write_store(slave.store, COMMON, LOST)
    before = log_bytes(slave, 0, end)
    master.start()
    slave.start()

    async def refused() -> float:
        return await asyncio.to_thread(metric, master, "failback_ha_refused_reports_total") or 0

    # It comes back again and again: nothing is spoilt on either side.
    await eventually(refused, lambda count: count >= 2, "the slave to be refused twice")
    assert set(await send(master, [b"one", b"two"])) <= {11, 12}, "nobody has them"
    assert await asyncio.to_thread(metric, master, "failback_ha_acknowledged_offset") == 0
    assert await end_of(slave) == end
    assert log_bytes(slave, 0, end) == before
    async with AdminClient() as admin:
        assert await admin.max_offset(slave.address, TOPIC, 0) == 20
