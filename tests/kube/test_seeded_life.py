"""A life drawn from a seed: its spec changes, its members and its operator die, under traffic.

What a producer was told is stored on both members (SEND_OK of a SYNC_MASTER) is consumed at the
end, whatever happened; no sample shows two masters; and the cluster ends Ready.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from failback.client.consumer.consumer import PushConsumer
from failback.client.model import ConsumeFrom, ConsumeResult, Message, SendStatus
from failback.client.producer.producer import Producer
from failback.protocol.errors import FailbackError
from failback.protocol.message import MessageExt
from tests.support.common.background_thread import Beside
from tests.support.common.polling import SCALE, wait_until
from tests.support.kube_lab.api import ApiError
from tests.support.kube_lab.namespaces import Namespace
from tests.support.kube_lab.node_process import NodeProcess
from tests.support.kube_lab.proxy import MisbehavingProxy, Write
from tests.support.operator.masters_watch import MastersWatch
from tests.support.operator.operator_killer import witnessed_operator
from tests.support.operator.operator_process import OperatorProcess, operator_identity
from tests.support.operator.quick_pair import QUICK, WAIT_SCALE, QuickPair
from tests.support.operator.resources import resource

pytestmark = pytest.mark.long

TOPIC, BROKER = "PAID", "orders-0"
DEADLY_SHARE = 0.04
"""Of the operator's writes, those after which it dies."""
HELD_SECONDS = (2.0, 12.0)
GAP_SECONDS = (0.5, 8.0)


class Sent(Beside):
    """A producer that never stops, and what it was told is stored."""

    def __init__(self, pair: QuickPair) -> None:
        super().__init__("sent")
        self._pair = pair
        self.acknowledged: set[bytes] = set()

    def work(self) -> None:
        asyncio.run(self._send())

    async def _send(self) -> None:
        number = 0
        async with Producer("shop", self._pair.settings()) as producer:
            while not self.stopping.is_set():
                number += 1
                body = b"%d" % number
                try:
                    result = await producer.send(Message(TOPIC, body))
                except (FailbackError, OSError, TimeoutError):
                    await asyncio.sleep(0.1)
                else:
                    if result.status is SendStatus.SEND_OK:
                        self.acknowledged.add(body)
                await asyncio.sleep(0.05)


class MortalOperator:
    """An operator that dies after writes drawn from a seed, and is started again."""

    def __init__(self, namespace: Namespace, proxy: MisbehavingProxy, seed: int) -> None:
        self.deaths: list[str] = []
        self._rng = random.Random(f"{seed} operator")
        self._lock = threading.Lock()
        self._may_die = False
        identity = operator_identity(namespace, server=proxy.url)
        self._process: OperatorProcess = witnessed_operator(
            namespace, identity, WAIT_SCALE, 0, **QUICK
        )
        proxy.after_write = self._wrote

    def start(self) -> None:
        self._process.start()
        self._process.wait_until_ready()

    def make_mortal(self) -> None:
        """From now on it dies after some of its writes."""
        with self._lock:
            self._may_die = True

    def revive(self) -> None:
        """Start it again where it was killed."""
        with self._lock:
            if not self._process.process.alive:
                assert self.deaths, self._process.process.errors()[-4000:]
                self._process.start()

    def spare(self) -> None:
        """Let it live from now on."""
        with self._lock:
            self._may_die = False
        self.revive()

    def dispose(self) -> None:
        self._process.process.dispose()

    def _wrote(self, write: Write) -> None:
        with self._lock:
            fatal = self._rng.random() < DEADLY_SHARE
            if fatal and self._may_die and self._process.process.alive:
                self._process.process.kill()
                self.deaths.append(f"{write.verb} {write.resource}/{write.name}")


class SeededLife:
    """Changes drawn from a seed; held members come back by themselves."""

    def __init__(self, pair: QuickPair, operator: MortalOperator, seed: int) -> None:
        self.told: list[str] = []
        """What was done, in order."""
        self._pair, self._operator = pair, operator
        self._rng = random.Random(seed)
        self._held: dict[int, float] = {}
        """Member → when it is released."""
        self._spec = dict(pair.api.get("BrokerCluster", "orders")["spec"])
        """The user's own: nobody else may have to write into it."""
        self._slave_reads = False
        self._switches = 0

    def live(self, changes: int) -> None:
        """Do so many changes; then let everything come back."""
        kinds: list[Callable[[], str]] = [
            *(self._switch, self._switch, self._force, self._cold_key, self._live_key),
            *(self._kill, self._hold, self._delete_child, self._apply_again),
        ]
        self._operator.make_mortal()
        bag: list[Callable[[], str]] = []
        for _ in range(changes):
            if not bag:
                bag = list(kinds)
                self._rng.shuffle(bag)
            self.told.append(bag.pop()())
            self._pass(self._rng.uniform(*GAP_SECONDS))
        self._operator.spare()
        while self._held:
            self._pass(0.5)
        for item in self._pair.api.list("RoleSwitch"):
            self._pair.api.delete("RoleSwitch", item["metadata"]["name"])

    def _pass(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._operator.revive()
            for member, at in list(self._held.items()):
                if at <= time.monotonic():
                    self._release(member)
            time.sleep(0.2)

    def _release(self, member: int) -> None:
        done = self._init(member, "release")
        if done or not self._exists(member):
            del self._held[member]

    # --- changes ------------------------------------------------------------------------------

    def _switch(self) -> str:
        return self._ask_for_switch("Planned", self._rng.randrange(2))

    def _force(self) -> str:
        """Kill a member and keep it down, and order the other one to be master."""
        gone = self._rng.randrange(2)
        self._keep_down(gone)
        return f"member {gone} down; " + self._ask_for_switch("Forced", 1 - gone)

    def _ask_for_switch(self, mode: str, target: int) -> str:
        self._switches += 1
        name = f"switch-{self._switches}"
        spec = {
            "clusterRef": {"name": "orders"},
            "pair": "orders-0",
            "targetMember": target,
            "mode": mode,
        }
        self._pair.api.create(resource("RoleSwitch", name, **spec))
        return f"{mode} switch to member {target}"

    def _cold_key(self) -> str:
        value = str(self._rng.randrange(20, 60))
        self._patch({"config": {**self._spec["config"], "defaultQueryMaxNum": value}})
        return f"defaultQueryMaxNum {value}"

    def _live_key(self) -> str:
        self._slave_reads = not self._slave_reads
        self._patch({"slaveReadEnable": self._slave_reads})
        return f"slaveReadEnable {self._slave_reads}"

    def _kill(self) -> str:
        member = self._rng.randrange(2)
        self._init(member, "kill", "9")
        return f"kill -9 of member {member}"

    def _hold(self) -> str:
        member = self._rng.randrange(2)
        self._keep_down(member)
        return f"member {member} down"

    def _keep_down(self, member: int) -> None:
        if self._init(member, "kill", "9", "--hold"):
            self._held[member] = time.monotonic() + self._rng.uniform(*HELD_SECONDS)

    def _delete_child(self) -> str:
        kind = self._rng.choice(("StatefulSet", "ConfigMap", "Service"))
        name = f"{BROKER}-{self._rng.randrange(2)}"
        with suppress(ApiError, LookupError):
            self._pair.api.delete(kind, name)
        return f"{kind} {name} deleted"

    def _apply_again(self) -> str:
        """Delete the cluster and apply the user's own manifest over its kept claims."""
        with suppress(ApiError):
            self._pair.api.delete("BrokerCluster", "orders")
        deadline = time.monotonic() + 60 * SCALE
        while self._is_there() and time.monotonic() < deadline:
            self._pass(0.3)
        assert not self._is_there(), "a cluster that is deleted goes"
        self._held.clear()  # its pods went, too
        self._pair.api.create(resource("BrokerCluster", "orders", **self._spec))
        return "deleted and applied again"

    def _is_there(self) -> bool:
        return any(
            item["metadata"]["name"] == "orders" for item in self._pair.api.list("BrokerCluster")
        )

    def _patch(self, spec: dict[str, object]) -> None:
        self._spec.update(spec)
        self._pair.api.patch("BrokerCluster", "orders", {"spec": spec})

    def _init(self, member: int, *command: str) -> bool:
        words = ("exec", self._pair.pod(member), "--", "failback-init", *command)
        return bool(self._pair.namespace.kubectl(*words, check=False).code == 0)

    def _exists(self, member: int) -> bool:
        pods = self._pair.api.list("Pod")
        return any(item["metadata"]["name"] == self._pair.pod(member) for item in pods)


async def everything_arrives(pair: QuickPair, expected: set[bytes]) -> set[bytes]:
    """Consume from the first message on until all that is expected came; return what did not."""
    seen: set[bytes] = set()
    whole = asyncio.Event()

    async def handle(messages: list[MessageExt]) -> ConsumeResult:
        seen.update(message.body for message in messages)
        if expected <= seen:
            whole.set()
        return ConsumeResult.SUCCESS

    consumer = PushConsumer("audit", pair.settings(), handle, consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer.subscribe(TOPIC)
    await consumer.start()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(90 * SCALE):
                await whole.wait()
    finally:
        await consumer.shutdown()
    return expected - seen


def live(namespace: Namespace, proxy: MisbehavingProxy, seed: int, changes: int) -> None:
    """Live a life and look at its end."""
    print(f"seed {seed}")  # pytest shows it when the test fails
    operator = MortalOperator(namespace, proxy, seed)
    try:
        operator.start()
        pair = QuickPair(namespace)
        pair.create(masterRole="SYNC_MASTER", failover={"mode": "Manual"})
        pair.create_topic(TOPIC)
        life = SeededLife(pair, operator, seed)
        with MastersWatch(namespace.name, [BROKER]) as masters, Sent(pair) as sent:
            wait_until(lambda: len(sent.acknowledged) > 20, "the first messages are stored", 60)
            try:
                life.live(changes)
                pair.wait_settled()
                before = len(sent.acknowledged)
                wait_until(lambda: len(sent.acknowledged) > before + 20, "writes go on", 60)
            finally:
                print("\n".join([*life.told, "the operator died after:", *operator.deaths]))
        assert masters.doubles == []
        assert masters.rounds > 20
        assert asyncio.run(everything_arrives(pair, sent.acknowledged)) == set()
    finally:
        operator.dispose()


@pytest.mark.soak
def test_a_life_of_ten_changes_loses_nothing(
    namespace: Namespace, node: NodeProcess, proxy: MisbehavingProxy
) -> None:
    live(namespace, proxy, seed=11, changes=10)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_lives_of_thirty_changes_lose_nothing(
    namespace: Namespace, node: NodeProcess, proxy: MisbehavingProxy, seed: int
) -> None:
    live(namespace, proxy, seed, changes=30)
