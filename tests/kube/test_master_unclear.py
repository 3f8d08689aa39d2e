"""A pair whose master cannot be told: what it says of its copies is read, a slave serves meanwhile.

The tests go on from each other with one pair. Each begins and ends with a whole one.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.broker.store.log.tail import read_tail
from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message
from failback.client.producer.producer import Producer
from failback.protocol.message import MessageExt
from tests.kube.test_master_remembered import delete
from tests.support.common.polling import SCALE as PATIENCE
from tests.support.common.polling import wait_until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.control_plane import ControlPlane
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.operator_process import condition_of
from tests.support.operator.quick_pair import SCALE, QuickPair, hasty_operator
from tests.support.operator.resources import resource

pytestmark = pytest.mark.long

TOPIC = "PAID"
LOG_END = "failback.dev/log-end"
CLUSTER: Object = resource(
    "BrokerCluster",
    "orders",
    nameServerRef={"name": "main"},
    pairs=1,
    slavesPerPair=1,
    config={"failbackTimeScale": str(SCALE), "mappedFileSizeCommitLog": str(4 * 1024 * 1024)},
    updateStrategy={"minReadySeconds": 1},
)


@pytest.fixture(scope="module")
def pair(control_plane: ControlPlane) -> Iterator[QuickPair]:
    namespace = Namespace(control_plane)
    try:
        with hasty_operator(namespace):
            found = QuickPair(namespace)
            scale = {"failbackTimeScale": str(SCALE)}
            found.api.create(resource("NameServer", "main", replicas=1, config=scale))
            apply(found)
            found.create_topic(TOPIC)
            yield found
    finally:
        namespace.clean_up()


def apply(pair: QuickPair) -> None:
    pair.namespace.kubectl("apply", "-f", "-", stdin=json.dumps(CLUSTER))


def claim(pair: QuickPair, member: int) -> str:
    return f"data-{pair.pod(member)}"


def lose_claim(pair: QuickPair, member: int) -> None:
    pair.api.delete("PersistentVolumeClaim", claim(pair, member))
    pair.api.wait_gone("PersistentVolumeClaim", claim(pair, member), seconds=60)


def on_disk(pair: QuickPair, node: NodeProcess, member: int) -> int:
    """Return where the log on a member's volume ends."""
    folder = node.claim_folder(pair.namespace.name, claim(pair, member))
    return read_tail(folder / "commitlog", 1).end


def mark(pair: QuickPair, member: int) -> int:
    found = pair.api.get("PersistentVolumeClaim", claim(pair, member))
    return int(found["metadata"]["annotations"][LOG_END])


async def fill(pair: QuickPair, count: int) -> int:
    """Send messages; return where the log ends once both members have them."""
    async with Producer("shop", pair.settings()) as producer:
        for number in range(count):
            await producer.send(Message(TOPIC, b"%d" % number), timeout_ms=30_000)
    async with asyncio.timeout(60 * PATIENCE):
        while True:
            end = await pair.end_of(0)
            if end == await pair.end_of(1):
                return end
            await asyncio.sleep(0.1)


async def read_all(pair: QuickPair, group: str, count: int) -> None:
    """Consume from the beginning with a new group until so many messages have come."""
    seen: set[str] = set()

    async def handle(messages: list[MessageExt]) -> ConsumeResult:
        seen.update(each.msg_id for each in messages)
        return ConsumeResult.SUCCESS

    consumer = PushConsumer(group, pair.settings(), handle, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    async with consumer, asyncio.timeout(60 * PATIENCE):
        while True:
            if len(seen) >= count:
                break
            await asyncio.sleep(0.1)


async def unclear(pair: QuickPair, *words: str) -> str:
    """Wait until the pair has no known master and the message has these words; return it."""

    def says_so(item: Object) -> bool:
        found = condition_of(item, "Ready")
        told = all(word in found.get("message", "") for word in words)
        return found.get("reason") == "MasterUnclear" and told

    found = await asyncio.to_thread(pair.api.wait, "BrokerCluster", "orders", says_so, seconds=90)
    return str(condition_of(found, "Ready")["message"])


async def opened(pair: QuickPair, member: int, message: str, end: int) -> None:
    """Order what the message says of a member; wait until the pair is whole, with all of that."""
    found = re.search(rf"(\S+@\d+) is {claim(pair, member)}", message)
    assert found is not None, message
    pair.annotate(open_member=found[1])
    cluster = await asyncio.to_thread(pair.wait_settled)
    assert cluster["status"]["pairs"][0]["masterMember"] == member
    assert await pair.registered() == {0: pair.address(member), 1: pair.address(1 - member)}
    assert await pair.end_of(member) >= end
    await fill(pair, 1)


async def test_a_slave_serves_reads_while_nobody_knows_the_master(
    pair: QuickPair, node: NodeProcess
) -> None:
    await asyncio.to_thread(pair.wait_settled)
    end = await fill(pair, 400)
    slave = pair.api.get("Pod", pair.pod(1))["metadata"]["uid"]
    for kind in (f"pvc/{claim(pair, 0)}", f"pod/{pair.pod(0)}"):
        pair.namespace.kubectl("delete", kind, "--wait=false")
    ends = f"{claim(pair, 1)} (slave of 1, serves reads, its log ends at {end})"
    message = await unclear(pair, ends)
    assert end == on_disk(pair, node, 1)
    await read_all(pair, "auditing", 400)
    assert pair.api.get("Pod", pair.pod(1))["metadata"]["uid"] == slave
    message = await unclear(pair, ends)
    await opened(pair, 1, message, end)
    await read_all(pair, "billing", 401)


async def test_an_old_snapshot_with_newer_marks_opens_nothing(
    pair: QuickPair, node: NodeProcess, tmp_path: Path
) -> None:
    """The master's volume is set back in place, so that its claim is the same one."""
    old = await fill(pair, 1)
    volume = node.claim_folder(pair.namespace.name, claim(pair, 1))
    shutil.copytree(volume, tmp_path / "old")
    end = await fill(pair, 100)
    await asyncio.sleep(3)  # the operator looks
    await asyncio.to_thread(delete, pair)
    wait_until(lambda: mark(pair, 1) == end, "the mark that a deletion leaves", 30)
    shutil.rmtree(volume)
    shutil.copytree(tmp_path / "old", volume)
    apply(pair)
    ends = (f"its log ends at {old}", f"its log ends at {end}")
    message = await unclear(pair, f"{claim(pair, 0)} has more than {claim(pair, 1)}", *ends)
    assert (old, end) == (on_disk(pair, node, 1), on_disk(pair, node, 0))
    await opened(pair, 0, message, end)


@pytest.mark.soak
async def test_without_its_masters_claim_a_cluster_made_again_says_what_the_disk_has(
    pair: QuickPair, node: NodeProcess
) -> None:
    end = await fill(pair, 100)
    await asyncio.to_thread(delete, pair)
    await asyncio.to_thread(lose_claim, pair, 0)
    stale = {"metadata": {"annotations": {LOG_END: "0"}}}
    pair.api.patch("PersistentVolumeClaim", claim(pair, 1), stale)
    apply(pair)
    message = await unclear(pair, f"its log ends at {end}, its last message is of 20")
    assert end == on_disk(pair, node, 1)
    running = pair.api.get("Pod", pair.pod(1))["status"].get("containerStatuses", ())
    assert not any("running" in each["state"] for each in running), "the step before it reads"
    await opened(pair, 1, message, end)
