"""The guarded rules of one of our brokers beside an Apache peer that knows nothing of them."""

from __future__ import annotations

import pytest

from failback.client.admin.admin import AdminClient
from tests.support.brokers.master_outage import MEANWHILE, Outage
from tests.support.java.apache import Engine
from tests.support.java.java_lab import Lab


@pytest.mark.few(1, 1)
@pytest.mark.parametrize("engines", [("failback", "apache"), ("apache", "failback")])
async def test_our_side_keeps_what_was_consumed_from_the_slave(
    lab: Lab, engines: tuple[Engine, Engine]
) -> None:
    ns = lab.namesrv()
    async with AdminClient([ns.address]) as admin:
        outage = Outage.of(lab, admin, ns, engines, {"failbackRules": "guarded"})
        await outage.live()
        if engines[0] == "failback":
            assert await outage.offset_at(outage.master) == MEANWHILE
        await outage.copied_again()
        assert await outage.offset_at(outage.slave) == MEANWHILE
