"""The route tables. Pure: the clock is an argument, a connection is any hashable value.

Five tables, all in memory: topic to broker name to its queues, broker name to its addresses
by id, cluster to broker names, broker address to live information, broker address to filter
servers. Rules of RouteInfoManager, apache/rocketmq 4.9.8; the ones that matter most:

* a registration never removes a topic or a queue; only a master's topics count, and only
  when its DataVersion differs from the remembered one or the address is new for its id;
* a broker is dropped when its connection goes, and after 120 s of silence;
* its queues leave the routes with the *last* address of its broker name: while a slave is
  left, consumers keep all queues and only id 0 is missing.

One caller at a time: the name server's event loop plays the part of Java's write lock.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from failback.protocol.codes import PERM_READ, PERM_WRITE
from failback.protocol.names import check_room, is_topic
from failback.protocol.route import (
    MASTER_ID,
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)

logger = logging.getLogger(__name__)

BROKER_EXPIRY_MS: Final = 120_000
MOST_BROKERS: Final = 10_000
MOST_TOPICS: Final = 200_000
MOST_BROKER_BYTES: Final = 16 * 1024**2
MOST_BYTES: Final = 64 * 1024**2
"""Of the queues of one broker name, and of all: a pair of topic and broker counts with its name."""
_PAIR_BYTES: Final = 128
UNIT_FLAG: Final = 1  # TopicSysFlag
UNIT_SUB_FLAG: Final = 2


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker's registration; ``channel`` is the connection that carried it."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str
    topics: TopicConfigSerializeWrapper
    filter_servers: tuple[str, ...]
    channel: Hashable


@dataclass(frozen=True, slots=True)
class LiveInfo:
    """What keeps a broker address in the tables."""

    last_update_ms: int
    data_version: DataVersion
    channel: Hashable
    ha_server_addr: str


@dataclass(frozen=True, slots=True)
class RegisterResult:
    """Answered to a slave whose master is registered and live; empty otherwise."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


class RouteInfoManager:
    """Which brokers serve which topics. Returned bodies are copies, no parts of a table."""

    def __init__(
        self,
        expiry_ms: float = BROKER_EXPIRY_MS,
        *,
        most_brokers: int = MOST_BROKERS,
        most_topics: int = MOST_TOPICS,
    ) -> None:
        self._expiry_ms = expiry_ms
        self.most_brokers = most_brokers
        self.most_topics = most_topics
        self._topics: dict[str, dict[str, QueueData]] = {}
        self._brokers: dict[str, BrokerData] = {}
        self._clusters: dict[str, set[str]] = {}
        self._live: dict[str, LiveInfo] = {}
        self._filter_servers: dict[str, tuple[str, ...]] = {}
        self._bytes: Counter[str] = Counter()
        """Of the queues, by broker name."""
        self._all_bytes = 0
        self._cluster_answer: bytes | None = None
        """Until a broker comes or goes."""

    # --- brokers come ---

    def register_broker(self, registration: Registration, now_ms: int) -> RegisterResult:
        """Take a registration in; see the module's essay for what it changes.

        A topic whose name nothing may have is left out, and so is one for which there is no room:
        the broker's other topics are served.

        Raises:
            TableFull: There is no room for another broker; nothing changes.
        """
        name, addr = registration.broker_name, registration.broker_addr
        broker = self._brokers.get(name)
        if addr not in self._live:
            check_room("brokers", len(self._live), self.most_brokers)
        if broker is None or registration.broker_id not in broker.broker_addrs:
            ids = sum(len(each.broker_addrs) for each in self._brokers.values())
            check_room("ids of brokers", ids, self.most_brokers)
        if registration.cluster not in self._clusters:
            check_room("clusters", len(self._clusters), self.most_brokers)
        names = self._clusters.setdefault(registration.cluster, set())
        if name not in names:
            names.add(name)
            self._cluster_answer = None
        if broker is None:
            broker = self._brokers[name] = BrokerData(registration.cluster, name, {})
        is_first = self._put_address(broker, registration.broker_id, addr)
        if registration.broker_id == MASTER_ID:
            version = registration.topics.data_version
            if is_first or self._remembered_version(addr) != version:
                self._put_topics(registration)
        self._live[addr] = LiveInfo(
            now_ms,
            registration.topics.data_version,
            registration.channel,
            registration.ha_server_addr,
        )
        if registration.filter_servers:
            self._filter_servers[addr] = registration.filter_servers
        else:
            self._filter_servers.pop(addr, None)
        return self._master_of(broker) if registration.broker_id != MASTER_ID else RegisterResult()

    def _put_topics(self, registration: Registration) -> None:
        left_out = 0
        for config in registration.topics.topic_config_table.values():
            if not self._put_queues(registration.broker_name, config):
                left_out += 1
        if left_out:
            logger.warning(
                "%d topics of broker %s are left out: no room beyond %d, or no topic's name",
                left_out,
                registration.broker_name,
                self.most_topics,
            )

    def _put_address(self, broker: BrokerData, broker_id: int, addr: str) -> bool:
        """Put an address; return whether the id had none before.

        The same address under another id is a broker that changed its role.
        """
        addrs = broker.broker_addrs
        for other in [key for key, value in addrs.items() if value == addr and key != broker_id]:
            del addrs[other]
        is_first = broker_id not in addrs
        if addrs.get(broker_id) != addr:
            self._cluster_answer = None
        addrs[broker_id] = addr
        return is_first

    def _put_queues(self, broker_name: str, config: TopicConfig) -> bool:
        """Put the queues of a topic on a broker; false if there is no room, or no such topic."""
        topic, size = config.topic_name, _PAIR_BYTES + len(config.topic_name)
        queues = self._topics.get(topic)
        if queues is None and (len(self._topics) >= self.most_topics or not is_topic(topic)):
            return False
        if queues is None or broker_name not in queues:
            is_much = self._bytes[broker_name] + size > MOST_BROKER_BYTES
            if is_much or self._all_bytes + size > MOST_BYTES:
                return False
            self._bytes[broker_name] += size
            self._all_bytes += size
        self._topics.setdefault(topic, {})[broker_name] = QueueData(
            broker_name,
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm,
            config.topic_sys_flag,
        )
        return True

    def _remembered_version(self, addr: str) -> DataVersion | None:
        live = self._live.get(addr)
        return live.data_version if live else None

    def _master_of(self, broker: BrokerData) -> RegisterResult:
        master_addr = broker.broker_addrs.get(MASTER_ID, "")
        live = self._live.get(master_addr)
        return RegisterResult(master_addr, live.ha_server_addr) if live else RegisterResult()

    def query_data_version(
        self, broker_addr: str, version: DataVersion, now_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """Return whether ``version`` differs from the remembered one, and that one.

        One that does not differ counts as a sign of life.
        """
        live = self._live.get(broker_addr)
        if live is None:
            return True, None
        if live.data_version != version:
            return True, live.data_version
        self._live[broker_addr] = LiveInfo(now_ms, version, live.channel, live.ha_server_addr)
        return False, version

    # --- brokers go ---

    def unregister_broker(
        self, cluster: str, broker_name: str, broker_id: int, broker_addr: str
    ) -> None:
        """Remove one id of a broker name where it is at this address; another's place stays.

        4.9.8 removes the id at any address, so a broker that moved goes by its old goodbye.
        """
        broker = self._brokers.get(broker_name)
        if broker is None or broker_name not in self._clusters.get(cluster, ()):
            return
        if broker.broker_addrs.get(broker_id) == broker_addr:
            del broker.broker_addrs[broker_id]
            self._drop_if_empty(broker)
        elif any(broker_addr in each.broker_addrs.values() for each in self._brokers.values()):
            return
        self._live.pop(broker_addr, None)
        self._filter_servers.pop(broker_addr, None)

    def channel_lost(self, channel: Hashable) -> list[str]:
        """Remove every broker that registered last on ``channel``; return their addresses."""
        lost = [addr for addr, live in self._live.items() if live.channel == channel]
        for addr in lost:
            self._remove_address(addr)
        return lost

    def expire(self, now_ms: int) -> list[tuple[str, Hashable]]:
        """Remove brokers silent for too long; return addresses and channels to close."""
        silent = [
            (addr, live.channel)
            for addr, live in self._live.items()
            if live.last_update_ms + self._expiry_ms < now_ms
        ]
        for addr, _ in silent:
            self._remove_address(addr)
        return silent

    def _remove_address(self, addr: str) -> None:
        self._live.pop(addr, None)
        self._filter_servers.pop(addr, None)
        for broker in list(self._brokers.values()):
            for broker_id in [key for key, value in broker.broker_addrs.items() if value == addr]:
                del broker.broker_addrs[broker_id]
                self._drop_if_empty(broker)

    def _drop_if_empty(self, broker: BrokerData) -> None:
        """Forget a broker name without addresses, and its queues; keep both otherwise."""
        self._cluster_answer = None
        if broker.broker_addrs:
            return
        name = broker.broker_name
        del self._brokers[name]
        for cluster in [each for each, names in self._clusters.items() if name in names]:
            self._clusters[cluster].discard(name)
            if not self._clusters[cluster]:
                del self._clusters[cluster]
        self._remove_queues(self._topics, (name,))

    def _remove_queues(self, topics: Iterable[str], broker_names: Iterable[str]) -> None:
        for topic in list(topics):
            queues = self._topics.get(topic, {})
            for name in [name for name in broker_names if name in queues]:
                self._forget_pair(topic, name)
                del queues[name]
            if not queues:
                self._topics.pop(topic, None)

    def _forget_pair(self, topic: str, broker_name: str) -> None:
        size = _PAIR_BYTES + len(topic)
        self._all_bytes -= size
        self._bytes[broker_name] -= size
        if not self._bytes[broker_name]:
            del self._bytes[broker_name]

    # --- questions ---

    def route(self, topic: str) -> TopicRouteData | None:
        """Return a topic's queues and the brokers that have them; ``None`` without either."""
        queues = self._topics.get(topic, {})
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        addrs = [addr for broker in brokers for addr in broker.broker_addrs.values()]
        return TopicRouteData(
            [_copy_queues(queue) for queue in queues.values()],
            [_copy_broker(broker) for broker in brokers],
            {
                addr: list(self._filter_servers[addr])
                for addr in addrs
                if addr in self._filter_servers
            },
        )

    def cluster_info(self) -> ClusterInfo:
        return ClusterInfo(
            {name: _copy_broker(broker) for name, broker in self._brokers.items()},
            {cluster: sorted(names) for cluster, names in self._clusters.items()},
        )

    def cluster_answer(self) -> bytes:
        """Return :meth:`cluster_info` as an answer carries it."""
        if self._cluster_answer is None:
            self._cluster_answer = self.cluster_info().to_json()
        return self._cluster_answer

    def all_topics(self) -> list[str]:
        return sorted(self._topics)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        names = self._clusters.get(cluster, set())
        return sorted(topic for topic, queues in self._topics.items() if names & queues.keys())

    def system_topics(self) -> tuple[list[str], str | None]:
        """Return the topics named after clusters and brokers, and some broker's address."""
        topics = sorted({*self._clusters, *(n for names in self._clusters.values() for n in names)})
        for _, broker in sorted(self._brokers.items()):
            if broker.broker_addrs:
                return topics, broker.broker_addrs[min(broker.broker_addrs)]
        return topics, None

    def topics_by_sys_flag(self, accept: Callable[[int], bool]) -> list[str]:
        """Return topics whose first queue data's sysFlag is accepted (unit topics)."""
        return sorted(
            topic
            for topic, queues in self._topics.items()
            if accept(next(iter(queues.values())).topic_sys_flag)
        )

    def live_brokers(self) -> dict[str, LiveInfo]:
        """Broker addresses and what is known of their lives."""
        return dict(self._live)

    # --- orders ---

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic's queues, or only those of one cluster's brokers."""
        if cluster is None:
            self._remove_queues((topic,), list(self._topics.get(topic, ())))
        else:
            self._remove_queues((topic,), self._clusters.get(cluster, ()))

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take the write permission of all topics of a broker; return how many."""
        return self._change_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Make all topics of a broker exactly readable and writable; return how many."""
        return self._change_perm(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def _change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        found = [table[broker_name] for table in self._topics.values() if broker_name in table]
        for queue in found:
            queue.perm = change(queue.perm)
        return len(found)


def _copy_broker(broker: BrokerData) -> BrokerData:
    return BrokerData(broker.cluster, broker.broker_name, dict(broker.broker_addrs))


def _copy_queues(queue: QueueData) -> QueueData:
    return QueueData(
        queue.broker_name,
        queue.read_queue_nums,
        queue.write_queue_nums,
        queue.perm,
        queue.topic_sys_flag,
    )
