"""A broker of 5.3 that authenticates (ACL 2.0), at our guarded name server; ``observe`` beside it.

It and everybody who asks it sign as in 4.9.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.analytics.lake.lake import open_lake
from failback.client.admin.admin import AdminClient
from failback.client.model import Message
from failback.client.producer.producer import Producer
from failback.client.remoting.connection import RemotingSettings
from failback.client.remoting.guarded.access import ClusterAccess, KeyFile
from failback.client.remoting.settings import ClientSettings
from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.support.common.polling import SCALE, wait_until
from tests.support.java.apache import Broker, NameServer, server_home
from tests.support.processes.child_process import failback_command, failback_environment

VERSION = "5.3.3"
KEY, SECRET, OTHER_SECRET = "rocketmq", "hush-of-the-admin", "hush-of-nobody"
_PACKAGE = "org.apache.rocketmq.auth.authentication.provider"
AUTHENTICATED: dict[str, object] = {
    "authenticationEnabled": "true",
    "authenticationProvider": f"{_PACKAGE}.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_PACKAGE}.LocalAuthenticationMetadataProvider",
    "initAuthenticationUser": f'{{"username":"{KEY}","password":"{SECRET}"}}',
    "innerClientAuthenticationCredentials": f'{{"accessKey":"{KEY}","secretKey":"{SECRET}"}}',
}
MESSAGES, COMMITTED = 8, 3


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[NameServer, Broker]]:
    server_home(VERSION)
    namesrv = NameServer("failback", tmp_path / "ns")
    with (namesrv.folder / "namesrv.conf").open("a") as conf:
        conf.write("aclEnable=true\n")
    account = f"{{accessKey: {KEY}, secretKey: {SECRET}, admin: true}}"
    (namesrv.folder / "plain_acl.yml").write_text(f"accounts: [{account}]\n")
    broker = Broker(
        "apache", tmp_path / "broker", namesrv.address, version=VERSION, settings=AUTHENTICATED
    )
    try:
        namesrv.start()
        broker.start()
        yield namesrv, broker
    finally:
        broker.process.dispose()
        namesrv.process.dispose()


async def fill(namesrv: str, broker: str, access: ClusterAccess) -> None:
    async with AdminClient([namesrv], settings=RemotingSettings(access=access)) as admin:
        await admin.create_topic(broker, TopicConfig("orders", 1, 1))
        await admin.create_group(broker, SubscriptionGroupConfig("billing"))
        await admin.update_offset(broker, "billing", "orders", 0, COMMITTED)
    settings = ClientSettings(namesrv_addrs=(namesrv,), access=access)
    async with Producer("tests", settings) as producer:
        for number in range(MESSAGES):
            await producer.send(Message("orders", b"%d" % number))


async def listed(namesrv: str) -> set[str]:
    async with AdminClient([namesrv]) as admin:
        return {member.addr for member in (await admin.cluster_info()).members()}


def test_observe_signs_and_says_what_is_wrong_with_a_key(
    nodes: tuple[NameServer, Broker], tmp_path: Path
) -> None:
    namesrv, broker = (node.address for node in nodes)
    wait_until(lambda: broker in asyncio.run(listed(namesrv)), "it is registered", 60)
    files = {}
    for name, key, secret in (
        ("right", KEY, SECRET),
        ("wrong", KEY, OTHER_SECRET),
        ("unknown", "nobody-key", OTHER_SECRET),
    ):
        files[name] = tmp_path / f"{name}.yml"
        files[name].write_text(f"accessKey: {key}\nsecretKey: {secret}\n")
    asyncio.run(fill(namesrv, broker, ClusterAccess(KeyFile(files["right"]))))
    expected = {
        "right": "",
        "wrong": f"the secret key given with the access key {KEY} is not the one it knows",
        "unknown": "it does not know the access key nobody-key",
        "none": "it asks for an access key: give its file by --access-key-file",
    }
    running = {}
    for name in expected:
        words = ["observe", "--out", name, "--for", f"{3 * SCALE:g}s", "-n", namesrv]
        words += ["--access-key-file", str(files[name])] if name in files else []
        running[name] = subprocess.Popen(
            failback_command("cli", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **failback_environment()},
        )
    for name, process in running.items():
        said, _ = process.communicate(timeout=120 * SCALE)
        lines = [line for line in said.splitlines() if broker in line]
        assert len(lines) == (1 if expected[name] else 0), said
        assert expected[name] in said, said
        assert "hush-" not in said
    lake = open_lake(tmp_path / "right" / "lake", "right")
    offsets = lake.records("broker_offset_sample")
    found = {(row["grp"], row["ptopic"], row["qid"], row["off"]) for row in offsets}
    assert ("billing", "orders", 0, COMMITTED) in found
    ends = lake.records("broker_queue_sample")
    assert {row["max"] for row in ends if row["ptopic"] == "orders"} == {MESSAGES}
