"""Files as containers mount them: one that cannot be replaced, or cannot be written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.protocol.errors import BrokerError
from failback.protocol.properties import properties_of
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.java.apache import Broker, NameServer
from tests.support.processes.child_process import failback_command

pytestmark = [
    pytest.mark.foreign,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("unshare") is None, reason="a mount needs root"
    ),
]

ALONE = 'mount --bind "$0" "$0"'
READ_ONLY = f'{ALONE} && mount -o remount,bind,ro "$0"'


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[NameServer]:
    node = NameServer("failback", tmp_path / "ns")
    node.start()
    yield node
    node.process.dispose()


@pytest.fixture(params=[ALONE, READ_ONLY], ids=["alone", "read-only"])
def broker(
    request: pytest.FixtureRequest, tmp_path: Path, name_server: NameServer
) -> Iterator[Broker]:
    file = tmp_path / "broker" / "broker.conf"
    script = f'{request.param} && exec "$@"'
    launcher = ["unshare", "--mount", "sh", "-c", script, str(file), *failback_command("broker")]
    node = Broker("failback", file.parent, name_server.address, launcher=launcher)
    yield node
    node.process.dispose()


async def test_a_change_holds_as_a_whole_or_not_at_all(
    request: pytest.FixtureRequest, broker: Broker, name_server: NameServer
) -> None:
    is_writable = request.node.callspec.id == "alone"
    broker.start()
    async with AdminClient([name_server.address]) as admin:
        await admin.create_topic(broker.address, TopicConfig("Orders", 2, 2))
        refusal = ""
        try:
            await admin.update_broker_config(broker.address, {"brokerPermission": "4"})
        except BrokerError as error:
            refusal = error.remark
        problem = f"{broker.folder}/broker.conf can't be written: the file system is read-only"
        assert refusal == ("" if is_writable else f"{problem}; nothing was changed")
        wanted = "4" if is_writable else "6"
        assert (await admin.broker_config(broker.address))["brokerPermission"] == wanted
        assert (await admin.route("Orders")).queue_datas[0].perm == int(wanted)
        stored = properties_of((broker.folder / "broker.conf").read_bytes()).values
        assert stored.get("brokerPermission", "6") == wanted
        assert not (broker.folder / "broker.conf.tmp").exists()


TABLES = ("topics", "subscriptionGroup", "consumerOffset", "delayOffset")


async def fill(admin: AdminClient, address: str, name: str) -> None:
    """Change each of the tables; a group has the offset 7 on the topic of its name."""
    await admin.create_topic(address, TopicConfig(name, 1, 1))
    await admin.create_group(address, SubscriptionGroupConfig(name))
    await admin.update_offset(address, name, name, 0, 7)


@pytest.mark.parametrize("rules", ["compat", "guarded"])
async def test_tables_that_are_mounted_alone_are_written_all_the_same(
    tmp_path: Path, name_server: NameServer, rules: str
) -> None:
    settings: dict[str, object] = {"failbackRules": rules}
    node = Broker("failback", tmp_path / "broker", name_server.address, settings=settings)
    own = node.launcher
    mounts = [
        f'mount --bind "{file}" "{file}"'
        for file in (node.store / "config" / f"{table}.json" for table in TABLES)
    ]
    script = " && ".join([*mounts, 'exec "$@"'])
    names = ("before", "mounted", "after")
    try:
        for name in names:
            node.launcher = own
            if name == "mounted":
                node.launcher = ["unshare", "--mount", "sh", "-c", script, "sh", *own]
            node.start()
            async with AdminClient([]) as admin:
                await fill(admin, node.address, name)
            assert node.stop() == 0
            assert " ERROR " not in node.process.errors()
        node.start()
        async with AdminClient([]) as admin:
            topics = (await admin.all_topic_config(node.address)).topic_config_table
            groups = (await admin.all_groups(node.address)).subscription_group_table
            assert set(names) <= topics.keys() & groups.keys()
            offsets = [await admin.query_offset(node.address, name, name, 0) for name in names]
        assert offsets == [7, 7, 7]
        assert not list((node.store / "config").glob("*.tmp"))
    finally:
        node.process.dispose()
