"""Offsets kept as an object come back after they were lost: what comes is what was previewed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Set
from typing import Any

from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom
from tests.kube.test_switch import ENOUGH, GROUP, SENT, TOPIC, Handled, Place, consume, send
from tests.support.common.polling import until
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.operator.kubectl_plugin import answer, plugin
from tests.support.operator.operator_process import condition_of, operator
from tests.support.operator.quick_pair import QUICK, QuickPair

KEY = f"{TOPIC}@{GROUP}"
QUIET_SECONDS = 3.0
"""So long nothing more may come."""


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

        lose_offsets(pair, node, namespace)
        await until_lost(pair)
        shown = restore(pair, name)
        (group,) = shown["groups"]
        assert (group["redelivered"], group["skipped"]) == (0, 0), "from nowhere"
        assert targets(shown) == dict(kept)
        code, said, problem = plugin(
            pair.namespace, "offsets", "restore", name, "--confirm", shown["id"]
        )
        assert code == 0, said + problem
        assert await pair.offsets(0, KEY) == kept
        assert condition_of(pair.api.get("OffsetSnapshot", name), "Restored")["status"] == "True"

        expected = {(queue, offset) for queue, offset in sent if offset >= kept.get(queue, 0)}
        assert len(expected) == group["ahead"] + unkept(sent, kept)
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


def unkept(sent: Set[Place], kept: Mapping[int, int]) -> int:
    """Return how many messages are in queues of which the snapshot has no offset."""
    return sum(queue not in kept for queue, _ in sent)


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


def lose_offsets(pair: QuickPair, node: NodeProcess, namespace: Namespace) -> None:
    """Take the offset tables of both members away, as a claim that was lost does."""
    for member in (0, 1):
        pair.kill_and_hold(member)
    for member in (0, 1):
        claim = pair.api.get("Pod", pair.pod(member))["spec"]["volumes"]
        names = [
            each["persistentVolumeClaim"]["claimName"]
            for each in claim
            if "persistentVolumeClaim" in each
        ]
        (claim_name,) = names
        files = [*node.claim_folder(namespace.name, claim_name).rglob("consumerOffset.json*")]
        assert files
        for file in files:
            file.unlink()
    for member in (0, 1):
        pair.release(member)


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
