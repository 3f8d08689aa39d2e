"""A slave whose log is not its master's stays out until a person has its volume wiped."""

from __future__ import annotations

import asyncio
import re
import struct
import zlib
from pathlib import Path

import pytest

from failback.client.model import Message
from failback.client.producer.producer import Producer
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import condition_of, operator
from tests.support.operator.quick_pair import QUICK, QuickPair

SLAVE, CLAIM, TOPIC = "orders-0-1-0", "data-orders-0-1-0", "PAID"
ASK = "failback.dev/force-resync-member"
LAST = b"the very last message"
MESSAGE_MAGIC = bytes.fromhex("daa320a7")
_TO_BODY = 88
"""Bytes of a record before its body; its size, magic and the body's checksum are the first."""


@pytest.mark.soak
async def test_a_diverged_slave_stays_out_and_is_wiped_once(
    namespace: Namespace, node: NodeProcess
) -> None:
    with operator(namespace, **QUICK):
        pair = QuickPair(namespace)
        pair.create()
        pair.create_topic(TOPIC)
        async with Producer("shop", pair.settings()) as producer:
            for number in range(20):
                await producer.send(Message(TOPIC, b"message %d" % number))
            await producer.send(Message(TOPIC, LAST))
        log = await replicated(node.claim_folder(namespace.name, CLAIM) / "commitlog")
        write_another(log)

        pair.api.delete("Pod", SLAVE)
        cluster = pair.api.wait("BrokerCluster", "orders", is_diverged, seconds=120)
        told = condition_of(cluster, "ReplicationHealthy")["message"]
        uid = pair.api.get("PersistentVolumeClaim", CLAIM)["metadata"]["uid"]
        advice = re.search(rf"; {ASK}=({uid}:(\d+)) wipes its volume and gives up \2 bytes", told)
        assert advice, told
        order = advice[1]
        assert told in pair.wait_event("SlaveDiverged", "orders")
        assert pair.verify_exit(1) == 3
        assert await pair.registered() == {0: pair.address(0)}, "it never attached"
        assert LAST not in log.read_bytes(), "its claim is kept as it is"

        pair.annotate(force_resync_member=uid)
        refused = pair.api.wait("BrokerCluster", "orders", is_refused, seconds=60)
        assert f"{ASK}={order} gives that up" in condition_of(refused, "Warning")["message"]
        pair.annotate(force_resync_member=order)
        pair.api.wait(
            "PersistentVolumeClaim", CLAIM, lambda item: item["metadata"]["uid"] != uid, seconds=120
        )
        again = pair.wait_settled()["status"]["pairs"][0]["members"][1]["claimUid"]
        assert again != uid
        await replicated(node.claim_folder(namespace.name, CLAIM) / "commitlog")

        pod = pair.api.get("Pod", SLAVE)["metadata"]["uid"]
        pair.annotate(force_resync_member=None)
        pair.annotate(force_resync_member=order)
        await asyncio.sleep(7)  # a pass of every resource lies within
        assert pair.api.get("Pod", SLAVE)["metadata"]["uid"] == pod
        assert pair.api.get("PersistentVolumeClaim", CLAIM)["metadata"]["uid"] == again


def is_diverged(item: Object) -> bool:
    return bool(condition_of(item, "ReplicationHealthy").get("reason") == "Diverged")


def is_refused(item: Object) -> bool:
    return "ResyncRefused" in str(condition_of(item, "Warning").get("message"))


async def replicated(folder: Path) -> Path:
    """Wait until the last message is in a slave's log; return the file it is in."""
    for _ in range(600):
        for file in sorted(folder.glob("0*")) if folder.is_dir() else ():
            if LAST in file.read_bytes():
                return file
        await asyncio.sleep(0.1)
    raise AssertionError(f"{LAST!r} is in no file of {folder}")


def write_another(log: Path) -> None:
    """Let the last message be another one of the same length, whole in itself."""
    content = log.read_bytes()
    at = content.rindex(LAST)
    record = at - _TO_BODY
    assert content[record + 4 : record + 8] == MESSAGE_MAGIC
    with log.open("r+b") as file:
        file.seek(record + 8)
        file.write(struct.pack(">I", zlib.crc32(LAST[::-1]) & 0x7FFFFFFF))
        file.seek(at)
        file.write(LAST[::-1])
