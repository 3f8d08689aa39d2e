"""broker.conf as containers mount it: a file that cannot be replaced, or cannot be written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.protocol.errors import BrokerError
from failback.protocol.properties import properties_of
from failback.protocol.route import TopicConfig
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
