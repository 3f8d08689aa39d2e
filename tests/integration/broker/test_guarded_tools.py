"""The tools of a pod ask a cluster that takes TLS and signed requests alone, as its broker does."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from failback.broker.store.config import StoreConfig
from failback.broker.store.message_store import MessageStore
from failback.carry.sidecar import Sidecar
from failback.carry.starts import Starts, read_last
from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess, KeyFile
from failback.client.remoting.guarded.tls import Tls, TlsFiles
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.message import pack_host
from tests.support.brokers.broker_lab import send_header
from tests.support.brokers.master_outage import BEFORE, MEANWHILE, TOPIC, Outage
from tests.support.common.polling import until
from tests.support.java.apache import LOG_FILE_BYTES, Broker, Engine
from tests.support.java.java_lab import Lab
from tests.support.net.certificates import Authority
from tests.support.net.ports import free_port
from tests.support.net.tls_files import TlsFolder
from tests.support.processes.child_process import failback_environment
from tests.unit.carry.test_starts import answers, is_ready, sidecar

OURS: tuple[Engine, Engine] = ("failback", "failback")
KEY = "accessKey: pair-key\nsecretKey: hush-of-the-pair\n"
ACCOUNT = "accounts: [{accessKey: pair-key, secretKey: hush-of-the-pair, admin: true}]"


@dataclass
class World:
    """A lab, the folder of its guarded pair, and an access to it."""

    lab: Lab
    folder: Path
    access: ClusterAccess

    @property
    def settings(self) -> dict[str, object]:
        return {
            "aclEnable": "true",
            "failbackAccessFolder": self.folder,
            "failbackTlsMode": "enforcing",
            "useTLS": "true",
        }


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    authority = Authority(tmp_path / "authority")
    certificate, folder = authority.issue("server"), tmp_path / "access"
    TlsFolder(tmp_path / "ns0", authority, certificate, server_mode="enforcing")
    TlsFolder(folder, authority, certificate)
    (folder / "tools.yml").write_text(KEY)
    (folder / "plain_acl.yml").write_text(ACCOUNT)
    access = ClusterAccess(KeyFile(folder / "tools.yml"), Tls(TlsFiles(authority.file)))
    found = World(Lab(tmp_path), folder, access)
    try:
        yield found
    finally:
        found.lab.dispose()


def verified(slave: Broker, **settings: object) -> tuple[int, dict[str, Any]]:
    """Run the check of a slave that is stopped; return its exit code and its verdict."""
    conf = slave.folder / "verified.conf"
    conf.write_text(replace(slave, settings=slave.settings | settings).conf())
    command = [sys.executable, "-m", "failback.cli", "tools", "verify-prefix", "--conf", str(conf)]
    message = str(slave.folder / "termination-log")
    done = subprocess.run(
        [*command, "--seconds", "0.5"],
        env={**failback_environment(), "FAILBACK_TERMINATION_LOG": message},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def add_another(root: Path) -> None:
    """Append a record that no master has."""
    config = StoreConfig(
        root=root, store_host=pack_host("127.0.0.1", 1), mapped_file_bytes=LOG_FILE_BYTES
    )
    store = MessageStore(config)
    store.load()
    store.append(
        topic=TOPIC.encode(),
        queue_id=0,
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=pack_host("127.0.0.1", 1),
        reconsume_times=0,
        body=b"another",
        properties=b"",
        tags_code=0,
    )
    store.commit_pending()
    store.close()


async def test_the_tools_of_a_guarded_pair_sign_and_speak_tls(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    lab, remoting = world.lab, RemotingSettings(access=world.access)
    ns = lab.namesrv()
    async with AdminClient([ns.address], settings=remoting) as admin:
        outage = Outage.of(lab, admin, ns, OURS, world.settings, world.access)
        await outage.die()
        master, slave = outage.master, outage.slave

        run, members, port = master.folder / "run", master.folder / "members", free_port()
        run.mkdir()
        members.write_text(f"{slave.address}\n")
        places = ("--conf", master.folder / "broker.conf", "--members", members, "--run-dir", run)
        starts = Starts.of([*map(str, places), "--address", slave.address])
        keeping = asyncio.create_task(Sidecar(starts)._keep())
        await until(lambda: "keeping the offsets of slave" in caplog.text, "the slave's settings")
        keeping.cancel()

        own = ("--address", master.address, "--port", port, "--top-up", 60)
        with sidecar(*map(str, (*places, *own))):
            await until(lambda: answers(port), "the sidecar", 30)
            (run / "asked").write_text("now\n")
            await until(lambda: (run / "carried").exists(), "an answer", 30)
            found = read_last(run)
            assert (found["outcome"], found["messages"]) == ("Carried", MEANWHILE - BEFORE)
            await outage.commit(slave, MEANWHILE + 1)  # a member that goes on until it is there
            master.start()
            await outage.reaches(master, MEANWHILE + 1)
            await until(lambda: is_ready(port), "a name server tells it", 30)

        slave.kill()
        assert verified(slave)[0] == 0
        assert verified(slave)[1]["prefix"] == "Verified"
        assert verified(slave, useTLS="false")[1]["prefix"] == "Unverified"
        add_another(slave.store)
        async with RemotingClient(settings=remoting) as client:
            for _ in range(3):
                header = send_header(topic=TOPIC)
                request = RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header, b"hello")
                assert (await client.invoke(master.address, request)).code == 0
        code, verdict = verified(slave)
        assert (code, verdict["prefix"]) == (3, "Diverged")
