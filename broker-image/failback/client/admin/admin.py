"""The admin client: questions and orders to one explicit address, or to the name server.

Used by the operator, the chaos probes, ``failback admin`` and tests, against our own brokers
and Apache's. Every call says whom it asks; nothing here quietly falls back to a slave, except
:meth:`AdminClient.consumer_progress`, which returns the address that answered.

Methods raise :class:`BrokerError` when the peer answers another code than success,
:class:`RemotingError` when it does not answer, and :class:`ProtocolError` when its answer
cannot be read. Reference: MQClientAPIImpl and DefaultMQAdminExtImpl, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from failback.client.remoting.connection import NameServers, RemotingClient, RemotingSettings
from failback.protocol import headers
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError
from failback.protocol.headers import from_ext
from failback.protocol.message import (
    RETRY_PREFIX,
    UNIQ_KEY,
    MessageExt,
    decode_record,
    decode_records,
)
from failback.protocol.route import (
    BrokerData,
    ClusterInfo,
    ConsumerConnection,
    ConsumerIdList,
    ConsumerOffsetTable,
    ConsumeStats,
    DelayOffsetTable,
    GroupList,
    KVTable,
    MessageQueue,
    ProducerConnection,
    ResetOffsetBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicList,
    TopicRouteData,
    TopicStatsTable,
)
from failback.protocol.stats import QueryConsumeQueueResponseBody

TEMPLATE_TOPIC: Final = "TBW102"
CONSUME_STATS_TIMEOUT_MS: Final = 15_000
FOREVER_MS: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class BrokerProgress:
    """A group's progress on one broker name, and which of its members said so."""

    broker_name: str
    broker_id: int
    addr: str
    stats: ConsumeStats


class AdminClient:
    """``async with AdminClient(["127.0.0.1:9876"]) as admin: ...``"""

    def __init__(
        self,
        namesrv: Sequence[str] = (),
        *,
        timeout_ms: float = 5000,
        client: RemotingClient | None = None,
        settings: RemotingSettings | None = None,
    ) -> None:
        """Make an admin client; connections are made on first use.

        Args:
            namesrv: Addresses of the name servers; one of them is asked.
            timeout_ms: For each call; consume statistics get three times as much.
            client: Connections to share; they are then not closed with this object.
            settings: For connections of its own.
        """
        self._owns_client = client is None
        self._client = client or RemotingClient(settings=settings or RemotingSettings())
        self._name_servers = NameServers(self._client, namesrv)
        self._timeout_ms = timeout_ms

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._owns_client:
            await self._client.close()

    # --- name server ---

    async def route(self, topic: str) -> TopicRouteData:
        """Where ``topic`` lives; :class:`BrokerError` 17 when nowhere."""
        header = headers.GetRouteInfoRequestHeader(topic, accept_standard_json_only=True)
        answer = await self._ask_name_server(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        return TopicRouteData.from_json(answer.body)

    async def cluster_info(self) -> ClusterInfo:
        answer = await self._ask_name_server(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.from_json(answer.body)

    async def topic_list(self) -> list[str]:
        """All topics of the name server, system and retry topics among them."""
        answer = await self._ask_name_server(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(TopicList.from_json(answer.body).topic_list)

    async def topics_at(self, addr: str) -> frozenset[str]:
        """All topics that the name server ``addr`` has, those without a live broker too."""
        answer = await self.ask(addr, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return frozenset(TopicList.from_json(answer.body).topic_list)

    async def delete_topic_in_namesrv(
        self, addr: str, topic: str, cluster: str | None = None
    ) -> None:
        """Forget ``topic`` at the name server ``addr``; each has to be told.

        Args:
            cluster: Only on the brokers of this cluster; ``None`` = everywhere.
        """
        header = headers.DeleteTopicRequestHeader(topic, cluster)
        await self.ask(addr, RequestCode.DELETE_TOPIC_IN_NAMESRV, header)

    async def wipe_write_perm(self, addr: str, broker_name: str) -> int:
        """Take the write permission of a broker's topics at one name server; how many."""
        header = headers.WritePermOfBrokerRequestHeader(broker_name)
        answer = await self.ask(addr, RequestCode.WIPE_WRITE_PERM_OF_BROKER, header)
        got = from_ext(headers.WipeWritePermOfBrokerResponseHeader, answer.ext_fields)
        return got.wipe_topic_count

    async def add_write_perm(self, addr: str, broker_name: str) -> int:
        """Undo :meth:`wipe_write_perm`; how many topics."""
        header = headers.WritePermOfBrokerRequestHeader(broker_name)
        answer = await self.ask(addr, RequestCode.ADD_WRITE_PERM_OF_BROKER, header)
        return from_ext(
            headers.AddWritePermOfBrokerResponseHeader, answer.ext_fields
        ).add_topic_count

    async def namesrv_config(self, addr: str) -> dict[str, str]:
        return parse_properties((await self.ask(addr, RequestCode.GET_NAMESRV_CONFIG)).body)

    async def kv_list(self, addr: str, namespace: str) -> dict[str, str]:
        header = headers.GetKVListByNamespaceRequestHeader(namespace)
        answer = await self.ask(addr, RequestCode.GET_KVLIST_BY_NAMESPACE, header)
        return KVTable.from_json(answer.body).table

    async def kv(self, addr: str, namespace: str, key: str) -> str | None:
        """One value at the name server ``addr``; ``None`` when there is none (22)."""
        header = headers.GetKVConfigRequestHeader(namespace, key)
        try:
            answer = await self.ask(addr, RequestCode.GET_KV_CONFIG, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return from_ext(headers.GetKVConfigResponseHeader, answer.ext_fields).value

    async def put_kv(self, addr: str, namespace: str, key: str, value: str) -> None:
        """Store a value at the name server ``addr``; they do not tell each other."""
        header = headers.PutKVConfigRequestHeader(namespace, key, value)
        await self.ask(addr, RequestCode.PUT_KV_CONFIG, header)

    async def delete_kv(self, addr: str, namespace: str, key: str) -> None:
        """Forget a value at the name server ``addr``; success too when there is none."""
        header = headers.DeleteKVConfigRequestHeader(namespace, key)
        await self.ask(addr, RequestCode.DELETE_KV_CONFIG, header)

    # --- topics and groups of one broker ---

    async def create_topic(self, addr: str, config: TopicConfig) -> None:
        """Create or replace a topic on the broker ``addr``."""
        header = headers.CreateTopicRequestHeader(
            config.topic_name,
            TEMPLATE_TOPIC,
            config.read_queue_nums,
            config.write_queue_nums,
            config.perm,
            config.topic_filter_type,
            config.topic_sys_flag,
            config.order,
        )
        await self.ask(addr, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def delete_topic(self, addr: str, topic: str) -> None:
        header = headers.DeleteTopicRequestHeader(topic)
        await self.ask(addr, RequestCode.DELETE_TOPIC_IN_BROKER, header)

    async def create_group(self, addr: str, config: SubscriptionGroupConfig) -> None:
        """Create or replace a consumer group on the broker ``addr``."""
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self.ask(addr, code, body=config.to_json())

    async def delete_group(self, addr: str, group: str, *, remove_offset: bool = False) -> None:
        header = headers.DeleteSubscriptionGroupRequestHeader(group, remove_offset, remove_offset)
        await self.ask(addr, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def all_topic_config(self, addr: str) -> TopicConfigSerializeWrapper:
        answer = await self.ask(addr, RequestCode.GET_ALL_TOPIC_CONFIG)
        return TopicConfigSerializeWrapper.from_json(answer.body)

    async def all_groups(self, addr: str) -> SubscriptionGroupWrapper:
        answer = await self.ask(addr, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        return SubscriptionGroupWrapper.from_json(answer.body)

    # --- a broker's state ---

    async def runtime_info(self, addr: str) -> dict[str, str]:
        """Statistics of a broker; ``bootTimestamp`` tells its incarnations apart."""
        answer = await self.ask(addr, RequestCode.GET_BROKER_RUNTIME_INFO)
        return KVTable.from_json(answer.body).table

    async def broker_config(self, addr: str) -> dict[str, str]:
        return parse_properties((await self.ask(addr, RequestCode.GET_BROKER_CONFIG)).body)

    async def update_broker_config(self, addr: str, settings: Mapping[str, str]) -> None:
        """Change live settings; the broker ignores names it does not know."""
        body = write_properties(settings)
        await self.ask(addr, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    async def topic_stats(self, addr: str, topic: str) -> TopicStatsTable:
        header = headers.GetTopicStatsInfoRequestHeader(topic)
        answer = await self.ask(addr, RequestCode.GET_TOPIC_STATS_INFO, header)
        return TopicStatsTable.from_json(answer.body)

    async def consume_stats(self, addr: str, group: str, topic: str | None = None) -> ConsumeStats:
        """Progress of a group as the broker ``addr`` knows it; slaves know old values."""
        header = headers.GetConsumeStatsRequestHeader(group, topic)
        timeout_ms = CONSUME_STATS_TIMEOUT_MS / 5000 * self._timeout_ms
        answer = await self.ask(addr, RequestCode.GET_CONSUME_STATS, header, timeout_ms=timeout_ms)
        return ConsumeStats.from_json(answer.body)

    async def consumer_progress(self, group: str, topic: str | None = None) -> list[BrokerProgress]:
        """Progress of a group on all brokers of its retry topic, or of the cluster.

        As mqadmin does, the master is asked, or some slave while no master is registered; so
        each entry names who answered.
        """
        try:
            brokers = (await self.route(RETRY_PREFIX + group)).broker_datas
        except BrokerError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            brokers = list((await self.cluster_info()).broker_addr_table.values())
        progress = []
        for broker in sorted(brokers, key=lambda data: data.broker_name):
            broker_id, addr = select_broker_addr(broker)
            stats = await self.consume_stats(addr, group, topic)
            progress.append(BrokerProgress(broker.broker_name, broker_id, addr, stats))
        return progress

    async def consumer_connection(self, addr: str, group: str) -> ConsumerConnection:
        """Members of a group at one broker; :class:`BrokerError` 206 when there is none."""
        header = headers.GetConsumerConnectionListRequestHeader(group)
        answer = await self.ask(addr, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        return ConsumerConnection.from_json(answer.body)

    async def producer_connection(self, addr: str, group: str) -> ProducerConnection:
        header = headers.GetProducerConnectionListRequestHeader(group)
        answer = await self.ask(addr, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        return ProducerConnection.from_json(answer.body)

    async def consumer_ids(self, addr: str, group: str) -> list[str]:
        """Client ids of a group at one broker; :class:`BrokerError` 1 when there is none."""
        header = headers.GetConsumerListByGroupRequestHeader(group)
        answer = await self.ask(addr, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
        return ConsumerIdList.from_json(answer.body).consumer_id_list

    async def groups_of_topic(self, addr: str, topic: str) -> list[str]:
        header = headers.QueryTopicConsumeByWhoRequestHeader(topic)
        answer = await self.ask(addr, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        return sorted(GroupList.from_json(answer.body).group_list)

    # --- offsets ---

    async def all_offsets(self, addr: str) -> dict[str, dict[int, int]]:
        """The whole offset table of a broker: ``topic@group`` to queue id to next offset."""
        answer = await self.ask(addr, RequestCode.GET_ALL_CONSUMER_OFFSET)
        return ConsumerOffsetTable.from_json(answer.body).offset_table

    async def delay_offsets(self, addr: str) -> dict[int, int]:
        """Delay level to next offset of its queue."""
        answer = await self.ask(addr, RequestCode.GET_ALL_DELAY_OFFSET)
        return DelayOffsetTable.from_json(answer.body).offset_table

    async def query_offset(self, addr: str, group: str, topic: str, queue_id: int) -> int | None:
        """The stored offset; ``None`` when there is none (22)."""
        header = headers.QueryConsumerOffsetRequestHeader(group, topic, queue_id)
        try:
            answer = await self.ask(addr, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except BrokerError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return from_ext(headers.QueryConsumerOffsetResponseHeader, answer.ext_fields).offset

    async def update_offset(
        self, addr: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Store an offset and wait for the answer; brokers take any value."""
        header = headers.UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
        await self.ask(addr, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def max_offset(self, addr: str, topic: str, queue_id: int) -> int:
        """The offset that the next message of the queue will get."""
        header = headers.GetMaxOffsetRequestHeader(topic, queue_id)
        answer = await self.ask(addr, RequestCode.GET_MAX_OFFSET, header)
        return from_ext(headers.GetMaxOffsetResponseHeader, answer.ext_fields).offset

    async def min_offset(self, addr: str, topic: str, queue_id: int) -> int:
        """The first offset still stored."""
        header = headers.GetMinOffsetRequestHeader(topic, queue_id)
        answer = await self.ask(addr, RequestCode.GET_MIN_OFFSET, header)
        return from_ext(headers.GetMinOffsetResponseHeader, answer.ext_fields).offset

    async def search_offset(self, addr: str, topic: str, queue_id: int, timestamp_ms: int) -> int:
        """The offset stored nearest to a time (4.9 rule)."""
        header = headers.SearchOffsetRequestHeader(topic, queue_id, timestamp_ms)
        answer = await self.ask(addr, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return from_ext(headers.SearchOffsetResponseHeader, answer.ext_fields).offset

    async def earliest_store_time(self, addr: str, topic: str, queue_id: int) -> int:
        """When the queue's first message was stored, ms; -1 when it is empty."""
        header = headers.GetEarliestMsgStoretimeRequestHeader(topic, queue_id)
        answer = await self.ask(addr, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        got = from_ext(headers.GetEarliestMsgStoretimeResponseHeader, answer.ext_fields)
        return got.timestamp

    async def reset_offset(
        self, addr: str, group: str, topic: str, timestamp_ms: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """Reset a group to a time (-1: the end) through its members; the offsets asked for."""
        header = headers.ResetOffsetRequestHeader(topic, group, timestamp_ms, force)
        answer = await self.ask(addr, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return ResetOffsetBody.from_json(answer.body).offset_table

    # --- messages ---

    async def view_message(self, addr: str, physical_offset: int) -> MessageExt:
        header = headers.ViewMessageRequestHeader(physical_offset)
        answer = await self.ask(addr, RequestCode.VIEW_MESSAGE_BY_ID, header)
        return decode_record(answer.body)[0]

    async def query_message(
        self,
        addr: str,
        topic: str,
        key: str,
        *,
        unique: bool = False,
        max_num: int = 64,
        begin_ms: int = 0,
        end_ms: int = FOREVER_MS,
    ) -> list[MessageExt]:
        """The newest messages of a topic that have ``key``, oldest first; none is no error.

        Args:
            unique: ``key`` is a UNIQ_KEY and not one of KEYS. The broker then decides how many
                it brings; 32 as it comes.
            begin_ms: Stored not before this time; brokers compare whole seconds.
            end_ms: Stored not after it.
        """
        header = headers.QueryMessageRequestHeader(topic, key, max_num, begin_ms, end_ms)
        ext = {headers.UNIQUE_KEY_QUERY: "true" if unique else "false"}
        request = RemotingCommand.request(RequestCode.QUERY_MESSAGE, header, ext=ext)
        answer = await self._client.invoke(addr, request, self._timeout_ms)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return []
        # Other keys may have the same hash.
        return [
            message
            for message in decode_records(_succeeded(answer, addr).body)
            if message.topic == topic and key in _keys_of(message, unique=unique)
        ]

    async def consume_queue(
        self, addr: str, topic: str, queue_id: int, index: int, count: int
    ) -> QueryConsumeQueueResponseBody:
        """Entries of a consume queue from ``index`` on; none when it is out of range."""
        header = headers.QueryConsumeQueueRequestHeader(topic, queue_id, index, count)
        answer = await self.ask(addr, RequestCode.QUERY_CONSUME_QUEUE, header)
        if not answer.body:
            return QueryConsumeQueueResponseBody()
        return QueryConsumeQueueResponseBody.from_json(answer.body)

    # --- the two ways to ask ---

    async def ask(
        self,
        addr: str,
        code: int,
        header: headers.Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: float | None = None,
    ) -> RemotingCommand:
        """Send any request to ``addr``; the answer is one of success."""
        request = RemotingCommand.request(code, header, body)
        answer = await self._client.invoke(addr, request, timeout_ms or self._timeout_ms)
        return _succeeded(answer, addr)

    async def _ask_name_server(
        self, code: int, header: headers.Header | None = None
    ) -> RemotingCommand:
        request = RemotingCommand.request(code, header)
        answer = await self._name_servers.invoke(request, self._timeout_ms)
        return _succeeded(answer, self._name_servers.chosen)


def _succeeded(answer: RemotingCommand, addr: str) -> RemotingCommand:
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark, addr)
    return answer


def _keys_of(message: MessageExt, *, unique: bool) -> list[str]:
    if unique:
        return [message.properties.get(UNIQ_KEY, "")]
    return (message.keys or "").split(" ")


def select_broker_addr(broker: BrokerData) -> tuple[int, str]:
    """Return id and address of the master, else of the slave with the least id."""
    broker_id = min(broker.broker_addrs)
    return broker_id, broker.broker_addrs[broker_id]


def parse_properties(body: bytes) -> dict[str, str]:
    """Read the answers to 26 and 319: ``name=value`` lines, nothing escaped (MixAll)."""
    table = {}
    for line in body.decode(errors="replace").split("\n"):
        name, equals, value = line.rstrip("\r").partition("=")
        if equals:
            table[name] = value
    return table


def write_properties(settings: Mapping[str, str]) -> bytes:
    """Write the bodies of 25 and 318, which java.util.Properties reads: escaped ASCII."""
    lines = [f"{_escape(name, ' :=#!')}={_escape(value, '')}\n" for name, value in settings.items()]
    return "".join(lines).encode("ascii")


def _escape(text: str, special: str) -> str:
    pieces = []
    for index, character in enumerate(text):
        if character in "\\\n\r\t\f":
            pieces.append(
                {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character, "\\f")
            )
        elif character in special or (character == " " and index == 0):
            pieces.append("\\" + character)
        elif character.isascii():
            pieces.append(character)
        else:
            units = character.encode("utf-16-be")
            pieces += [f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)]
    return "".join(pieces)
