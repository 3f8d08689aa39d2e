"""The admin client: questions and orders to one explicit address, or to all name servers.

Used by the operator, the chaos probes, ``failback admin`` and tests, against our own brokers
and Apache's. Every call says whom it asks; nothing here quietly falls back to a slave, except
:meth:`AdminClient.consumer_progress`, which returns the address that answered.

Methods raise :class:`BrokerError` when the peer answers another code than success,
:class:`RemotingError` when it does not answer, and :class:`ProtocolError` when its answer
cannot be read. Reference: MQClientAPIImpl and DefaultMQAdminExtImpl, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from failback.client.admin import name_servers as together
from failback.client.remoting.connection import RemotingClient, RemotingSettings
from failback.protocol import calls
from failback.protocol.calls import Call, or_none
from failback.protocol.codes import ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError
from failback.protocol.headers import Header
from failback.protocol.message import RETRY_PREFIX
from failback.protocol.route import ClusterInfo, TopicRouteData
from failback.protocol.stats import ConsumeStats

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class BrokerProgress:
    """A group's progress on one broker name, and the broker that answered."""

    broker_name: str
    broker_id: int
    addr: str
    stats: ConsumeStats


def _asks(
    make: Callable[P, Call[T]],
) -> Callable[Concatenate[AdminClient, str, P], Coroutine[Any, Any, T]]:
    """Return a method that makes a call of its arguments and asks the address before them."""

    async def method(self: AdminClient, addr: str, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(addr, make(*args, **kwargs))

    return method


class AdminClient:
    """``async with AdminClient(["127.0.0.1:9876"]) as admin: ...``

    A method that is not written out takes an address, and then what the call of the same name
    in :mod:`failback.protocol.calls` takes.
    """

    def __init__(
        self,
        namesrv: Sequence[str] = (),
        *,
        timeout_ms: float = 5000,
        client: RemotingClient | None = None,
        settings: RemotingSettings | None = None,
        say: Callable[[str], None] = together.logger.warning,
    ) -> None:
        """Make an admin client; connections are made on first use.

        Args:
            namesrv: Addresses of the name servers; all are asked, and their answers joined.
            timeout_ms: For each call; consume statistics get three times as much.
            client: Connections to share; they are then not closed with this object.
            settings: For connections of its own.
            say: Takes a sentence about each name server that does not help.
        """
        self._owns_client = client is None
        self._client = client or RemotingClient(settings=settings or RemotingSettings())
        self._name_servers = together.AllNameServers(self._client, namesrv, say)
        self._timeout_ms = timeout_ms

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        if self._owns_client:
            await self._client.close()

    async def call(self, addr: str, call: Call[T], timeout_ms: float | None = None) -> T:
        """Ask ``addr``."""
        return await self._client.call(addr, call, timeout_ms or self._timeout_ms)

    async def ask(
        self, addr: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Send any request to ``addr``; the answer is one of success."""
        return await self.call(addr, calls.any_request(code, header, body))

    # --- all name servers ---

    async def name_servers(self) -> list[str]:
        """Return all addresses that the name servers have now."""
        return await self._name_servers.every()

    async def route(self, topic: str) -> TopicRouteData:
        """Where ``topic`` lives; :class:`BrokerError` 17 when nowhere."""
        call = calls.topic_route(topic)
        parts, join = together.brokers_of_route, together.join_routes
        return await self._name_servers.ask(call, self._timeout_ms, parts, join)

    async def cluster_info(self) -> ClusterInfo:
        parts, join = together.brokers_of_cluster, together.join_clusters
        return await self._name_servers.ask(calls.cluster_info(), self._timeout_ms, parts, join)

    async def topic_list(self) -> list[str]:
        """All topics of the name servers, system and retry topics among them."""
        call, join = calls.topic_list(), together.join_topics
        return await self._name_servers.ask(call, self._timeout_ms, dict.fromkeys, join)

    # --- one name server ---

    cluster_info_at = _asks(calls.cluster_info)
    topics_at = _asks(calls.topic_list)
    delete_topic_in_namesrv = _asks(calls.delete_topic_in_namesrv)
    wipe_write_perm = _asks(calls.wipe_write_perm)
    add_write_perm = _asks(calls.add_write_perm)
    kv_list = _asks(calls.kv_list)
    kv = _asks(or_none(calls.get_kv))
    put_kv = _asks(calls.put_kv)
    delete_kv = _asks(calls.delete_kv)

    # --- one broker ---

    create_topic = _asks(calls.create_topic)
    delete_topic = _asks(calls.delete_topic)
    create_group = _asks(calls.create_group)
    delete_group = _asks(calls.delete_group)
    all_topic_config = _asks(calls.all_topic_config)
    all_groups = _asks(calls.all_groups)
    runtime_info = _asks(calls.runtime_info)
    broker_config = _asks(calls.broker_config)
    update_broker_config = _asks(calls.update_broker_config)
    topic_stats = _asks(calls.topic_stats)
    broker_stats = _asks(calls.broker_stats)
    consumer_connection = _asks(calls.consumer_connection)
    consumer_running_info = _asks(calls.consumer_running_info)
    held_queues = _asks(calls.held_queues)
    producers = _asks(calls.producers)
    consumer_ids = _asks(calls.consumer_ids)
    groups_of_topic = _asks(calls.groups_of_topic)
    all_offsets = _asks(calls.all_offsets)
    delay_offsets = _asks(calls.delay_offsets)

    update_offset = _asks(calls.update_offset)
    query_offset = _asks(or_none(calls.query_offset))
    max_offset = _asks(calls.max_offset)
    min_offset = _asks(calls.min_offset)
    search_offset = _asks(calls.search_offset)
    earliest_store_time = _asks(calls.earliest_store_time)
    reset_offset = _asks(calls.reset_offset)
    view_record = _asks(calls.view_record)
    view_message = _asks(calls.view_message)
    query_message = _asks(calls.query_message)
    consume_queue = _asks(calls.consume_queue)

    async def consume_stats(self, addr: str, group: str, topic: str | None = None) -> ConsumeStats:
        """Progress of a group as the broker ``addr`` knows it; slaves know old values."""
        call = calls.consume_stats(group, topic)
        return await self.call(addr, call, timeout_ms=3 * self._timeout_ms)

    async def consumer_progress(self, group: str, topic: str | None = None) -> list[BrokerProgress]:
        """Progress of a group on all brokers of its retry topic, or of the cluster.

        As mqadmin does, the master is asked, or some slave while no master is registered; so
        each entry names the broker that answered.
        """
        try:
            brokers = (await self.route(RETRY_PREFIX + group)).broker_datas
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            brokers = list((await self.cluster_info()).broker_addr_table.values())
        progress = []
        for broker in sorted(brokers, key=lambda data: data.broker_name):
            broker_id, addr = min(broker.broker_addrs.items())
            stats = await self.consume_stats(addr, group, topic)
            progress.append(BrokerProgress(broker.broker_name, broker_id, addr, stats))
        return progress
