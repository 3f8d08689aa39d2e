"""What the guarded rules save when a master comes back that knows less than its slave."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess, KeyFile
from failback.protocol.errors import BrokerError
from tests.support.brokers.master_outage import BEFORE, MEANWHILE, Outage
from tests.support.java.apache import Engine
from tests.support.java.java_lab import Lab
from tests.support.net.ports import free_port

OURS: tuple[Engine, Engine] = ("failback", "failback")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    found = Lab(tmp_path)
    try:
        yield found
    finally:
        found.dispose()


@pytest.mark.parametrize(
    ("settings", "on_master", "on_slave"),
    [
        ({"failbackRules": "compat"}, BEFORE, BEFORE),
        ({"failbackRules": "guarded"}, MEANWHILE, MEANWHILE),
        ({"failbackGuardReturnedOffsets": "true"}, MEANWHILE, MEANWHILE),
        ({"failbackGuardSlaveOffsets": "true"}, BEFORE, MEANWHILE),
    ],
)
async def test_the_rules_decide_what_is_left_of_an_outage(
    lab: Lab, settings: dict[str, object], on_master: int, on_slave: int
) -> None:
    ns = lab.namesrv()
    async with AdminClient([ns.address]) as admin:
        outage = Outage.of(lab, admin, ns, OURS, settings)
        await outage.live()
        assert await outage.offset_at(outage.master) == on_master
        await outage.copied_again()
        assert await outage.offset_at(outage.slave) == on_slave

        # A group that is set back on purpose is set back on both, whatever the rules.
        await outage.commit(outage.master, 19)
        await outage.reaches(outage.slave, 19)
        await outage.commit(outage.master, 3)
        await outage.reaches(outage.slave, 3)


@pytest.mark.sample
async def test_a_pair_that_checks_requests_signs_its_own(lab: Lab, tmp_path: Path) -> None:
    """The slave copies offsets, and the master takes them back, by the key in tools.yml."""
    folder = tmp_path / "access"
    folder.mkdir()
    key = "accessKey: pair-key\nsecretKey: hush-of-the-pair\n"
    tools = folder / "tools.yml"
    tools.write_text(key)
    accounts = "accounts: [{accessKey: pair-key, secretKey: hush-of-the-pair, admin: true}]"
    (folder / "plain_acl.yml").write_text(accounts)
    access = ClusterAccess(KeyFile(tools))
    settings: dict[str, object] = {
        "aclEnable": "true",
        "failbackAccessFolder": folder,
        "failbackRules": "guarded",
    }
    ns = lab.namesrv()
    async with AdminClient([ns.address], settings=RemotingSettings(access=access)) as admin:
        outage = Outage.of(lab, admin, ns, OURS, settings, access)
        await outage.live()
        assert await outage.offset_at(outage.master) == MEANWHILE
        await outage.copied_again()
        assert await outage.offset_at(outage.slave) == MEANWHILE
    async with AdminClient([ns.address]) as stranger:
        with pytest.raises(BrokerError, match="access key"):
            await stranger.all_offsets(outage.slave.address)


@pytest.mark.sample
async def test_what_was_saved_is_counted(lab: Lab) -> None:
    ns = lab.namesrv()
    port = free_port()
    async with AdminClient([ns.address]) as admin:
        outage = Outage.of(lab, admin, ns, OURS, {"failbackRules": "guarded"})
        outage.master.settings["failbackHttpPort"] = port  # from its second start on
        await outage.live()
        assert guarded_offsets(port) == ["1.0"]
        assert "-> 15 (from " in outage.master.process.errors()


def guarded_offsets(port: int) -> list[str]:
    """Return the values of the counter that a broker's metrics show."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    found = [line for line in lines if line.startswith("failback_guarded_offsets_total")]
    return [line.rpartition(" ")[2] for line in found]
