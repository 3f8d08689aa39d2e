"""Offsets kept as an object come back after they were lost: what comes is what was previewed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Set
from typing import Any

import pytest

from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom
from tests.kube.test_switch import ENOUGH, GROUP, SENT, TOPIC, Handled, Place, consume, send
from tests.support.common.polling import until
from tests.support.kube_lab.api import Object
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.kubectl_plugin import answer, plugin
from tests.support.operator.operator_process import condition_of, operator
from tests.support.operator.quick_pair import QUICK, QuickPair

KEY = f"{TOPIC}@{GROUP}"
QUIET_SECONDS = 3.0
"""So long nothing more may come."""


@pytest.mark.soak
async def test_lost_offsets_come_back_and_the_preview_is_what_comes(
    namespace: Namespace, node: NodeProcess
) -> None:
    with operator(namespace, **QUICK):
        pair = QuickPair(namespace)
        pair.create()
        pair.create_topic(TOPIC, GROUP)
        sent = await send(pair, SENT)
        await consume(pair, lambda seen: len(seen) >= ENOUGH)
        kept = await pair.offsets(0, KEY)
        name = str(answer(pair.namespace, "offsets", "take", "orders")["metadata"]["name"])
        await consume(pair, lambda seen: len(seen) == SENT - sum(kept.values()))
        done = await pair.offsets(0, KEY)

        # Nothing is lost yet: the preview says what a restore would repeat.
        shown = restore(pair, name)
        assert shown["redelivered"] == sum(done.values()) - sum(kept.values()) > 0
        assert targets(shown) == {
            queue: kept[queue] for queue in kept if kept[queue] != done[queue]
        }
        await refused_while_a_member_runs(pair, name, shown)

        lose_offsets(pair, node)
        await until_lost(pair)
        (group,) = await restored(pair, name, kept, master=0)
        assert (group["redelivered"], group["skipped"]) == (0, 0), "from nowhere"
        expected = {(queue, offset) for queue, offset in sent if offset >= kept[queue]}
        assert len(expected) == group["ahead"]
        assert await everything_that_comes(pair, expected) == expected

        lose_claim_of_the_master(pair)
        (group,) = await restored(pair, name, kept, master=1)
        assert group["redelivered"] == group["ahead"] == len(expected), "all were consumed"
        assert await everything_that_comes(pair, expected) == expected

        pair.api.delete("BrokerCluster", "orders")
        pair.api.wait_gone("BrokerCluster", "orders", seconds=120)
        (entry,) = pair.api.get("OffsetSnapshot", name)["status"]["snapshots"]
        assert pair.api.get("ConfigMap", entry["configMap"])["binaryData"]
        pair.api.delete("OffsetSnapshot", name)
        pair.api.wait_gone("ConfigMap", entry["configMap"], seconds=120)


def restore(pair: QuickPair, name: str) -> dict[str, Any]:
    """Ask for a preview; return it."""
    found: dict[str, Any] = answer(pair.namespace, "offsets", "restore", name)["restore"]
    plugin(pair.namespace, "offsets", "show", name)
    assert found["phase"] == "Preview"
    return found


def targets(shown: Mapping[str, Any]) -> dict[int, int]:
    return {each["queue"]: each["toOffset"] for each in shown["queues"]}


async def restored(
    pair: QuickPair, name: str, kept: Mapping[int, int], *, master: int
) -> list[Mapping[str, Any]]:
    """Preview a restore, confirm it, and see that it is done; return its groups."""
    shown = restore(pair, name)
    assert targets(shown).items() <= kept.items()
    words = ("offsets", "restore", name, "--confirm", str(shown["id"]))
    code, said, problem = plugin(pair.namespace, *words)
    assert code == 0, said + problem
    assert await pair.offsets(master, KEY) == kept
    found = pair.api.get("OffsetSnapshot", name)
    assert condition_of(found, "Restored")["status"] == "True"
    groups: list[Mapping[str, Any]] = found["status"]["restore"]["groups"]
    assert groups == shown["groups"]
    return groups


async def refused_while_a_member_runs(pair: QuickPair, name: str, shown: Mapping[str, Any]) -> None:
    """A restore that is confirmed while a member runs writes nothing."""
    consumer = PushConsumer(GROUP, pair.settings(), Handled())
    consumer.subscribe(TOPIC)
    async with consumer:
        await asyncio.sleep(1)
        before = await pair.offsets(0, KEY)
        words = ("offsets", "restore", name, "--confirm", str(shown["id"]))
        code, said, _ = await asyncio.to_thread(plugin, pair.namespace, *words)
        assert code == 4
        assert "GroupOnline: members of billing run" in said
        after = await pair.offsets(0, KEY)
        assert all(after[queue] >= before[queue] for queue in before)


def lose_offsets(pair: QuickPair, node: NodeProcess) -> None:
    """Take the offset tables of both members away."""
    for member in (0, 1):
        pair.kill_and_hold(member)
    for member in (0, 1):
        claim = node.claim_folder(pair.namespace.name, f"data-orders-0-{member}-0")
        files = [*claim.rglob("consumerOffset.json*")]
        assert files
        for file in files:
            file.unlink()
    for member in (0, 1):
        pair.release(member)


def lose_claim_of_the_master(pair: QuickPair) -> None:
    """Delete the master's claim, and open the slave's as the operator then asks for."""
    pair.wait_settled()
    for kind in ("pvc/data-orders-0-0-0", "pod/orders-0-0-0"):
        pair.namespace.kubectl("delete", kind, "--wait=false")

    def is_unclear(item: Object) -> bool:
        return condition_of(item, "Ready").get("reason") == "MasterUnclear"

    found = pair.api.wait("BrokerCluster", "orders", is_unclear, seconds=120)
    message = condition_of(found, "Ready")["message"]
    slave = re.search(r"(\S+@\d+) is data-orders-0-1-0", message)
    assert slave is not None, message
    pair.annotate(open_member=slave[1])
    pair.api.wait("BrokerCluster", "orders", lambda item: not is_unclear(item), seconds=120)
    assert pair.wait_settled()["status"]["pairs"][0]["masterMember"] == 1


async def until_lost(pair: QuickPair) -> None:
    """Wait until the master answers again, and has no offset of the group."""
    await pair.end_of(0)
    assert await pair.offsets(0, KEY) == {}


async def everything_that_comes(pair: QuickPair, expected: Set[Place]) -> set[Place]:
    """Consume until everything expected has come, and a while longer."""
    handled = Handled()
    consumer = PushConsumer(GROUP, pair.settings(), handled, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    async with consumer:
        await until(lambda: handled.seen >= expected, "everything that was previewed", 90)
        await asyncio.sleep(QUIET_SECONDS)
    return handled.seen
