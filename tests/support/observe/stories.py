"""Looks at a pair as they would be made while a story of it is told, a second after another."""

from __future__ import annotations

from dataclasses import dataclass, field

from failback.analytics.observe.looks import (
    ANSWERED,
    REFUSED,
    SILENT,
    BrokerLook,
    ClientLook,
    HeldQueue,
    Look,
)
from failback.analytics.observe.observation import Observation

PAIR = "bench/broker-a"
MASTER, SLAVE = 0, 1
KEY = "orders@billing"


@dataclass
class Told:
    """What one broker holds, and whether it says so."""

    boot_ms: int | None
    state: str = ANSWERED
    is_unreachable: bool = False
    offsets: dict[str, dict[int, int]] = field(default_factory=dict)
    config: dict[str, str] | None = None


@dataclass
class Story:
    """A pair of which each :meth:`wait` is observed, with two queues of ``orders``."""

    observation: Observation = field(default_factory=Observation)
    every: float = 1.0
    now: float = 0.0
    listed: set[int] = field(default_factory=lambda: {MASTER, SLAVE})
    members: dict[str, set[str]] = field(default_factory=lambda: {"billing": {"a", "b"}})
    ends: dict[int, int] = field(default_factory=lambda: {0: 0, 1: 0})
    looks: list[Look] = field(default_factory=list)
    name_servers: int = 1
    tells_members: bool = True
    listed_by_master: dict[str, set[str]] | None = None
    """What the master lists of members, where it is not what the slave lists."""
    languages: dict[str, str] | None = None
    told: tuple[ClientLook, ...] = ()
    late: float = 0.0
    """For so long brokers' answers of the next looks have been waited for."""

    def __post_init__(self) -> None:
        self.brokers = {MASTER: Told(1000), SLAVE: Told(2000)}

    def commit(self, offset: int, *, key: str = KEY, at: tuple[int, ...] = (MASTER, SLAVE)) -> None:
        """Both queues of a group stand at ``offset``, on brokers ``at``."""
        for number in at:
            self.brokers[number].offsets[key] = {0: offset, 1: offset}

    def tell(self, held: HeldQueue) -> None:
        """In the next look a member says that it holds this of both queues."""
        queues = {"orders": {0: held, 1: held}}
        self.told = (ClientLook("bench", "billing", "a", self.now, {"broker-a": queues}),)

    def store(self, end: int) -> None:
        self.ends = {0: end, 1: end}

    def wait(self, seconds: int = 1) -> None:
        for _ in range(seconds):
            look = self._look()
            self.looks.append(look)
            self.observation.look(look)
            self.now += self.every

    def sleep(self, seconds: float) -> None:
        """Nobody looks."""
        self.now += seconds

    def kill(self, number: int = MASTER) -> None:
        self.brokers[number].state = REFUSED
        self.listed.discard(number)

    def freeze(self, number: int = MASTER, *, is_unreachable: bool = False) -> None:
        """A broker says nothing: its process takes connections, or nothing does."""
        self.brokers[number].state = SILENT
        self.brokers[number].is_unreachable = is_unreachable

    def thaw(self, number: int = MASTER) -> None:
        self.brokers[number].state = ANSWERED

    def start(self, offset: int, number: int = MASTER, *, key: str = KEY) -> None:
        """Another process answers, with a table that was on its disk."""
        self.brokers[number] = Told(
            int(10_000 + self.now * 1000), offsets={key: {0: offset, 1: offset}}
        )
        self.listed.add(number)

    def _look(self) -> Look:
        began = self.now
        listing = {PAIR: {number: f"10.0.0.1:{number}" for number in sorted(self.listed)}}
        brokers = tuple(self._broker(number, each) for number, each in self.brokers.items())
        listings = {f"ns{number}": listing for number in range(self.name_servers)}
        told, self.told = self.told, ()
        return Look(began, began + 0.1, self.every, dict(listings), brokers, told)

    def _broker(self, number: int, told: Told) -> BrokerLook:
        if told.state != ANSWERED:
            return BrokerLook(
                PAIR,
                number,
                f"10.0.0.1:{number}",
                self.now,
                self.now + 0.1,
                told.state,
                is_unreachable=told.is_unreachable,
            )
        return BrokerLook(
            PAIR,
            number,
            f"10.0.0.1:{number}",
            self.now - self.late,
            self.now + 0.1,
            ANSWERED,
            boot_ms=told.boot_ms,
            config=told.config,
            offsets={key: dict(queues) for key, queues in told.offsets.items()},
            spans={"orders": {queue: (0, end) for queue, end in self.ends.items()}},
            members={
                group: dict.fromkeys(them, "")
                for group, them in (
                    self.members
                    if number != MASTER or self.listed_by_master is None
                    else self.listed_by_master
                ).items()
            }
            if self.tells_members
            else None,
            languages=self.languages,
        )
