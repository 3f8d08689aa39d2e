"""Short histories, drawn from a seed, of messages that can and that can't be delivered.

Topics and groups are deleted and made again, queues become fewer and more, members are killed and
change roles. A model says what was acknowledged and not deleted since: all of that is delivered,
once for each time that it was sent or sent back.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.faults.store.delivery_pair import DeliveryPair
from tests.support.brokers.replica_lab import eventually
from tests.support.java.apache import Broker

TOPICS: Final = ("orders", "paid")
GROUP: Final = "billing"
LONG_GROUP: Final = "g" * 121
"""Its retry topic has a name that is too long."""
RETRY: Final = f"%RETRY%{GROUP}"
STEPS: Final = 14
MOST_QUEUES: Final = 3


@dataclass
class Life:
    """A topic from its creation to its deletion.

    Attributes:
        must: What was acknowledged, by queue; delayed ones by ``None``: any queue will do.
        may: What may be there besides: it was not acknowledged, or was on its way.
    """

    queues: int
    must: dict[bytes, int | None] = field(default_factory=dict)
    may: set[bytes] = field(default_factory=set)


class History:
    """One history of a pair."""

    def __init__(self, pair: DeliveryPair, seed: int) -> None:
        self.pair = pair
        self.random = Random(seed)
        self.lives: dict[str, Life] = {}
        self.gone: set[bytes] = set()
        self.waiting: dict[str, set[bytes]] = {topic: set() for topic in TOPICS}
        """What may still come from an earlier life of a topic: it was delayed, or not answered."""
        self.ids: list[tuple[bytes, str]] = []
        """Bodies and offset message ids of what can be sent back."""
        self.handled = Counter[bytes]()
        self.may_handle = Counter[bytes]()
        self.group_life = 1
        self.is_replayed = False
        """A kill makes what was delivered late since the last persist are re-consumed (mode 19)."""
        self.told: list[str] = []
        self._numbers = itertools.count()

    # --- what is done ---------------------------------------------------------------------------

    async def run(self) -> None:
        await self.pair.start_both()
        for topic in TOPICS:
            await self.create(topic, 2)
        await self.retry_queues()
        ordinary = (self.send, self.send, self.delay, self.send_back, self.commit, self.transaction)
        odd = (self.shrink, self.orphan, self.large, self.long_group, self.retry_queues)
        ends = (self.delete, self.delete, self.delete_group)
        faults = (self.kill_master, self.kill_both, self.kill_slave, self.swap, self.swap_by_kill)
        due = sorted(self.random.sample(range(3, STEPS), 2))
        for step in range(STEPS):
            kinds = self.random.choices((ordinary, odd, ends), (5, 3, 2))[0]
            await self.do(self.random.choice(faults if step in due else kinds))
        await self.check()

    async def do(self, step: Callable[[], Awaitable[None]]) -> None:
        self.told.append(step.__name__)
        await step()

    def body(self, what: str) -> bytes:
        return f"{what}-{next(self._numbers)}".encode()

    async def create(self, topic: str, queues: int) -> None:
        await self.pair.admin.create_topic(
            self.pair.master.address, TopicConfig(topic, queues, queues)
        )
        life = self.lives.setdefault(topic, Life(queues))
        life.queues = queues
        life.may |= self.waiting[topic]

    async def life(self) -> tuple[str, Life]:
        """Return a topic, made again if it is deleted."""
        topic = self.random.choice(TOPICS)
        if topic not in self.lives:
            await self.create(topic, self.random.randint(1, MOST_QUEUES))
        return topic, self.lives[topic]

    async def send(self) -> None:
        topic, life = await self.life()
        for _ in range(self.random.randint(1, 6)):
            body, queue_id = self.body("plain"), self.random.randrange(life.queues)
            found = await self.pair.send(topic, queue_id, body)
            if found:
                life.must[body] = queue_id
                self.ids.append((body, found))
            else:
                life.may.add(body)

    async def delay(self) -> None:
        topic, life = await self.life()
        await self._delay(topic, life, self.random.randrange(life.queues), b"")

    async def _delay(self, topic: str, life: Life, queue_id: int, more: bytes) -> None:
        body = self.body("late") + more
        if await self.pair.send(topic, queue_id, body, "DELAY\x012"):
            life.must[body] = None
        else:
            life.may.add(body)

    async def transaction(self) -> None:
        topic, life = await self.life()
        body = self.body("transaction")
        if await self.pair.send_transaction(topic, body):
            life.must[body] = 0
        else:
            life.may.add(body)

    async def send_back(self) -> None:
        if not self.ids:
            return
        body, message_id = self.random.choice(self.ids)
        if await self.pair.send_back(GROUP, message_id):
            self.handled[body] += 1
        else:
            self.may_handle[body] += 1

    async def commit(self) -> None:
        topic, _ = await self.life()
        offset = 1000 * self.group_life + self.random.randint(1, 99)
        await self.pair.admin.update_offset(self.pair.master.address, GROUP, topic, 0, offset)

    # --- what can't be delivered ----------------------------------------------------------------

    async def shrink(self) -> None:
        """Leave a message that waits for a queue that is no more."""
        topic, life = await self.life()
        await self._delay(topic, life, life.queues - 1, b"")
        await self.create(topic, self.random.randint(1, MOST_QUEUES))

    async def orphan(self) -> None:
        """Delete the topic for which a message waits."""
        await self.delay()
        await self.delete()

    async def large(self) -> None:
        """Lower the limit below a message that waits."""
        topic, life = await self.life()
        await self._delay(topic, life, 0, b"." * 5000)
        admin, address = self.pair.admin, self.pair.master.address
        await admin.update_broker_config(address, {"maxMessageSize": "1000"})
        await self.delay()
        await asyncio.sleep(0.15)
        await admin.update_broker_config(address, {"maxMessageSize": "4194304"})

    async def long_group(self) -> None:
        if self.ids:
            await self.pair.send_back(LONG_GROUP, self.ids[-1][1])

    async def retry_queues(self) -> None:
        group = SubscriptionGroupConfig(GROUP, retry_queue_nums=self.random.randint(1, 4))
        await self.pair.admin.create_group(self.pair.master.address, group)

    # --- deletions and faults -------------------------------------------------------------------

    async def delete(self) -> None:
        if not self.lives:
            return
        topic = self.random.choice(sorted(self.lives))
        await self.pair.admin.delete_topic(self.pair.master.address, topic)
        life = self.lives.pop(topic)
        waiting = {body for body, queue_id in life.must.items() if queue_id is None} | life.may
        self.gone |= life.must.keys() - waiting
        self.waiting[topic] |= waiting
        if self.random.random() < 0.7:
            await self.create(topic, self.random.randint(1, MOST_QUEUES))

    async def delete_group(self) -> None:
        await self.pair.admin.delete_group(self.pair.master.address, GROUP, remove_offset=True)
        self.group_life += 1
        await self.retry_queues()

    async def kill_master(self) -> None:
        self.is_replayed = True
        await self.pair.kill(self.pair.master)

    async def kill_slave(self) -> None:
        await self.pair.kill(self.pair.slave)

    async def kill_both(self) -> None:
        self.is_replayed = True
        await self.pair.kill(self.pair.master, self.pair.slave)

    async def swap(self) -> None:
        """Swap when what was delivered late is known to both: else it would be re-consumed."""
        await self.pair.until_delivered()
        await self.pair.swap(by_kill=False)

    async def swap_by_kill(self) -> None:
        self.is_replayed = True
        await self.pair.swap(by_kill=True)

    # --- what has to be -------------------------------------------------------------------------

    async def check(self) -> None:
        """Compare what both members hold with the model, all queues there ever were."""
        for topic, life in self.lives.items():
            await self.create(topic, MOST_QUEUES)
            await self._delivered(self.pair.master, topic, Counter(life.must.keys()))
        await self._delivered(self.pair.master, RETRY, self.handled)
        await self.pair.until_equal()
        for member in self.pair.members:
            for topic in TOPICS:
                await self._check_topic(member, topic)
            await self._check_retries(member)
            for topic in TOPICS:
                offset = await self.pair.offset(member, GROUP, topic)
                assert offset == 0 or offset // 1000 == self.group_life, (member.address, offset)

    async def _delivered(self, member: Broker, topic: str, wanted: Counter[bytes]) -> None:
        if wanted:
            missing = Counter[bytes]()

            async def look() -> Counter[bytes]:
                return wanted - sum(await self.pair.stored(member, topic), Counter())

            missing = await eventually(look, lambda left: not left, f"all of {topic}", 20)
            assert not missing

    async def _check_topic(self, member: Broker, topic: str) -> None:
        queues = await self.pair.stored(member, topic)
        life = self.lives.get(topic)
        if life is None:
            assert not queues, f"{topic} is back"
            return
        found = sum(queues, Counter[bytes]())
        assert not self.gone & found.keys(), "deleted messages are back"
        for body, queue_id in life.must.items():
            if queue_id is None:
                is_there = found[body] == 1 or (self.is_replayed and found[body] > 1)
                assert is_there, (member.address, body, found[body])
            else:
                assert queues[queue_id][body] == found[body] == 1, (member.address, body)
        assert found.keys() <= life.must.keys() | life.may, "nobody sent that here"

    async def _check_retries(self, member: Broker) -> None:
        found = sum(await self.pair.stored(member, RETRY), Counter[bytes]())
        for body in found.keys() | self.handled.keys():
            most = self.handled[body] + self.may_handle[body]
            place = (member.address, body, found[body], most)
            assert found[body] >= self.handled[body], place
            assert self.is_replayed or found[body] <= most, place
