"""One pair of a cluster as a dashboard saw it: a master and a slave, their tables and a file."""

from __future__ import annotations

from failback.analytics.dashboard.sources.brokers import BrokerSeen
from failback.analytics.dashboard.sources.clusters import ClusterRef, MemberRef, PairRef
from failback.analytics.live.facts import GroupTopic, OffsetFile, Queues

KEY = GroupTopic("billing", "orders")
MASTER = MemberRef("demo-0-0-0", "demo-0", "127.0.0.2:10911", 0, "Ready")
SLAVE = MemberRef("demo-0-1-0", "demo-0", "127.0.0.3:10911", 1, "Ready")
CLUSTER = ClusterRef(
    "demo.demo", "demo", "local", "/root", "failback", ("127.0.0.1:9876",),
    (PairRef("demo-0", (MASTER, SLAVE)),),
)  # fmt: skip
NOW = 1_800_000_000.0


def seen(
    member: MemberRef, offset: int, *, file: int | None = None, up: float = 1000.0,
    problem: str = "", **config: str,
) -> BrokerSeen:  # fmt: skip
    def table(value: int) -> dict[GroupTopic, Queues]:
        return {KEY: {0: value}, GroupTopic("billing", "%RETRY%billing"): {0: 9}}

    return BrokerSeen(
        member.address, member.broker_id, not problem, round((NOW - up) * 1000), config,
        file=None if file is None else OffsetFile("file", table(file), 2.0), persist_age=2.0,
        sync_age=3.0, member=member, at=NOW, problem=problem, offsets=table(offset), log_end=5000,
        ends={"orders": {0: 400}},
    )  # fmt: skip


def world(master: BrokerSeen, slave: BrokerSeen) -> dict[str, BrokerSeen]:
    return {each.member.address: each for each in (master, slave)}
