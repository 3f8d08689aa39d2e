"""Calls that tools, clients and brokers make: what each asks, and how its answer is read. Pure.

A :class:`Call` is a value. Three executors send it, each over its own sockets and with its own
time limits: the asyncio client (``RemotingClient.call``), the chaos witness's blocking
``WireConnection.ask``, and the broker's ``BrokerOuterApi``.

A name that is not written out as a function takes the fields of its header, in their order.
Reference: MQClientAPIImpl and DefaultMQAdminExtImpl, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Generic, NamedTuple, ParamSpec, TypeVar

from failback.protocol import clients, headers, route, stats
from failback.protocol.body import Body, MessageQueue
from failback.protocol.codes import PULL_SUBSCRIPTION
from failback.protocol.codes import RequestCode as Code
from failback.protocol.codes import ResponseCode as Answer
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import BrokerError, ProtocolError, UnreadableAnswer
from failback.protocol.headers import Header, HeaderT, from_ext
from failback.protocol.message import UNIQ_KEY, MessageExt, decode_record, decode_records

TEMPLATE_TOPIC: Final = "TBW102"
FOREVER_MS: Final = 2**63 - 1
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""A system group of every broker: a pull with it needs no registration and commits nothing."""
PULL_CODES: Final = frozenset(
    {
        Answer.SUCCESS,
        Answer.PULL_NOT_FOUND,
        Answer.PULL_RETRY_IMMEDIATELY,
        Answer.PULL_OFFSET_MOVED,
    }
)

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")
BodyT = TypeVar("BodyT", bound=Body)
Decode = Callable[[RemotingCommand], T]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and what its answer means."""

    code: int
    decode: Decode[T]
    header: Header | None = None
    body: bytes = b""
    accepted: frozenset[int] = frozenset({Answer.SUCCESS})
    """Response codes that ``decode`` understands; every other is an error."""
    ext: Mapping[str, str] = field(default_factory=dict)
    """Fields that travel beside those of the header."""

    def request(self, *, oneway: bool = False) -> RemotingCommand:
        ext = self.ext or None
        return RemotingCommand.request(self.code, self.header, self.body, oneway=oneway, ext=ext)

    def result(self, answer: RemotingCommand, addr: str) -> T:
        """Return the result in the ``answer`` of ``addr``.

        Raises:
            BrokerError: Its code is not accepted.
            UnreadableAnswer: It cannot be read.
        """
        if answer.code not in self.accepted:
            raise BrokerError(answer.code, answer.remark, addr)
        try:
            return self.decode(answer)
        except ProtocolError as error:
            raise UnreadableAnswer(addr, str(error)) from error

    def otherwise(self, code: int, default: D) -> Call[T | D]:
        """Return the call for which an answer with ``code`` means ``default``."""

        def decode(answer: RemotingCommand) -> T | D:
            return default if answer.code == code else self.decode(answer)

        return Call(self.code, decode, self.header, self.body, self.accepted | {code}, self.ext)

    def with_ext(self, **ext: str) -> Call[T]:
        return replace(self, ext={**self.ext, **ext})


def any_request(
    code: int, header: Header | None = None, body: bytes = b""
) -> Call[RemotingCommand]:
    """A request of any code; its answer as it came."""
    return Call(code, lambda answer: answer, header, body)


# --- how answers are read -----------------------------------------------------------------


def nothing(answer: RemotingCommand) -> None:
    del answer


def _bytes(answer: RemotingCommand) -> bytes:
    return answer.body


def _in(cls: type[BodyT]) -> Decode[BodyT]:
    return lambda answer: cls.from_json(answer.body)


def _part(cls: type[BodyT], take: Callable[[BodyT], T]) -> Decode[T]:
    return lambda answer: take(cls.from_json(answer.body))


def _field(cls: type[HeaderT], take: Callable[[HeaderT], T]) -> Decode[T]:
    return lambda answer: take(from_ext(cls, answer.ext_fields))


_table = _part(stats.KVTable, lambda body: body.table)
_offset = _field(headers.GetMaxOffsetResponseHeader, lambda header: header.offset)
"""Of the four headers that answer with an offset and nothing else."""


def _asks(code: int, header: Callable[P, Header], decode: Decode[T]) -> Callable[P, Call[T]]:
    """Return the maker of calls whose arguments are the header's fields."""
    return lambda *args, **kwargs: Call(code, decode, header(*args, **kwargs))


def _asks_bare(code: int, decode: Decode[T]) -> Callable[[], Call[T]]:
    """Return the maker of a call without a header."""
    call = Call(code, decode)
    return lambda: call


def or_none(make: Callable[P, Call[T]]) -> Callable[P, Call[T | None]]:
    """Return the maker of calls for which "not found" (22) means ``None``."""
    return lambda *args, **kwargs: make(*args, **kwargs).otherwise(Answer.QUERY_NOT_FOUND, None)


# --- name server --------------------------------------------------------------------------


def topic_route(topic: str) -> Call[route.TopicRouteData]:
    """Where a topic lives; :class:`BrokerError` 17 when nowhere."""
    header = headers.GetRouteInfoRequestHeader(topic, accept_standard_json_only=True)
    return Call(Code.GET_ROUTEINFO_BY_TOPIC, _in(route.TopicRouteData), header)


cluster_info = _asks_bare(Code.GET_BROKER_CLUSTER_INFO, _in(route.ClusterInfo))
topic_list = _asks_bare(
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
    _part(stats.TopicList, lambda body: sorted(body.topic_list)),
)
"""All topics, sorted; system and retry topics and those without a live broker too."""
delete_topic_in_namesrv = _asks(
    Code.DELETE_TOPIC_IN_NAMESRV, headers.DeleteTopicRequestHeader, nothing
)
"""Forget a topic at one name server, of one cluster only if it is named. Each has to be asked."""
kv_list = _asks(Code.GET_KVLIST_BY_NAMESPACE, headers.GetKVListByNamespaceRequestHeader, _table)
get_kv = _asks(
    Code.GET_KV_CONFIG,
    headers.GetKVConfigRequestHeader,
    _field(headers.GetKVConfigResponseHeader, lambda header: header.value),
)
put_kv = _asks(Code.PUT_KV_CONFIG, headers.PutKVConfigRequestHeader, nothing)
"""Store a value at one name server. Name servers do not pass values on."""
delete_kv = _asks(Code.DELETE_KV_CONFIG, headers.DeleteKVConfigRequestHeader, nothing)
"""Forget a value at one name server; success too when there is none."""
wipe_write_perm = _asks(
    Code.WIPE_WRITE_PERM_OF_BROKER,
    headers.WritePermOfBrokerRequestHeader,
    _field(headers.WipeWritePermOfBrokerResponseHeader, lambda header: header.wipe_topic_count),
)
"""Take the write permission of a broker's topics at one name server; how many."""
add_write_perm = _asks(
    Code.ADD_WRITE_PERM_OF_BROKER,
    headers.WritePermOfBrokerRequestHeader,
    _field(headers.AddWritePermOfBrokerResponseHeader, lambda header: header.add_topic_count),
)


# --- topics and groups of one broker ------------------------------------------------------


def create_topic(config: route.TopicConfig) -> Call[None]:
    """Create or replace a topic."""
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
    return Call(Code.UPDATE_AND_CREATE_TOPIC, nothing, header)


def create_group(config: route.SubscriptionGroupConfig) -> Call[None]:
    """Create or replace a consumer group."""
    return Call(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, nothing, body=config.to_json())


def delete_group(group: str, *, remove_offset: bool = False) -> Call[None]:
    header = headers.DeleteSubscriptionGroupRequestHeader(group, remove_offset, remove_offset)
    return Call(Code.DELETE_SUBSCRIPTIONGROUP, nothing, header)


delete_topic = _asks(Code.DELETE_TOPIC_IN_BROKER, headers.DeleteTopicRequestHeader, nothing)
all_topic_config = _asks_bare(Code.GET_ALL_TOPIC_CONFIG, _in(route.TopicConfigSerializeWrapper))
all_groups = _asks_bare(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, _in(route.SubscriptionGroupWrapper))
groups_of_topic = _asks(
    Code.QUERY_TOPIC_CONSUME_BY_WHO,
    headers.QueryTopicConsumeByWhoRequestHeader,
    _part(stats.GroupList, lambda body: sorted(body.group_list)),
)

# --- a broker's state and its clients -----------------------------------------------------

runtime_info = _asks_bare(Code.GET_BROKER_RUNTIME_INFO, _table)
"""Statistics of a broker; ``bootTimestamp`` tells its incarnations apart."""
broker_config = _asks_bare(Code.GET_BROKER_CONFIG, lambda answer: parse_properties(answer.body))


def update_broker_config(settings: Mapping[str, str]) -> Call[None]:
    """Change live settings; the broker ignores names it does not know."""
    return Call(Code.UPDATE_BROKER_CONFIG, nothing, body=write_properties(settings))


topic_stats = _asks(
    Code.GET_TOPIC_STATS_INFO, headers.GetTopicStatsInfoRequestHeader, _in(stats.TopicStatsTable)
)
consume_stats = _asks(
    Code.GET_CONSUME_STATS, headers.GetConsumeStatsRequestHeader, _in(stats.ConsumeStats)
)
"""Progress of a group, on one topic only if it is named; slaves know old values."""
broker_stats = _asks(
    Code.VIEW_BROKER_STATS_DATA,
    headers.ViewBrokerStatsDataRequestHeader,
    _in(stats.BrokerStatsData),
)
consumer_connection = _asks(
    Code.GET_CONSUMER_CONNECTION_LIST,
    headers.GetConsumerConnectionListRequestHeader,
    _in(clients.ConsumerConnection),
)
"""Members of a group; :class:`BrokerError` 206 when there is none."""
consumer_running_info = _asks(
    Code.GET_CONSUMER_RUNNING_INFO,
    headers.GetConsumerRunningInfoRequestHeader,
    _in(stats.ConsumerRunningInfo),
)
"""What one member holds; the broker passes the question on."""
held_queues = _asks(
    Code.GET_CONSUMER_RUNNING_INFO,
    headers.GetConsumerRunningInfoRequestHeader,
    _part(stats.HeldQueues, lambda body: body.mq_table),
)
"""The same of its queues alone."""
consumer_ids = _asks(
    Code.GET_CONSUMER_LIST_BY_GROUP,
    headers.GetConsumerListByGroupRequestHeader,
    _part(clients.ConsumerIdList, lambda body: body.consumer_id_list),
)
"""Client ids of a group; :class:`BrokerError` 1 when there is none."""
producers = _asks_bare(Code.GET_ALL_PRODUCER_INFO, _in(clients.ProducerTableInfo))
unregister = _asks(Code.UNREGISTER_CLIENT, headers.UnregisterClientRequestHeader, nothing)


def heartbeat(data: clients.HeartbeatData) -> Call[int]:
    """Tell a broker a client's groups; returns the broker's version."""
    return Call(Code.HEART_BEAT, lambda answer: answer.version, body=data.to_json())


# --- offsets ------------------------------------------------------------------------------

all_offsets = _asks_bare(
    Code.GET_ALL_CONSUMER_OFFSET, _part(route.ConsumerOffsetTable, lambda body: body.offset_table)
)
"""The whole offset table of a broker: ``topic@group`` to queue id to next offset."""
offset_table = _asks_bare(Code.GET_ALL_CONSUMER_OFFSET, _in(route.ConsumerOffsetTable))
"""As :data:`all_offsets`, with what was deleted."""
delay_offsets = _asks_bare(
    Code.GET_ALL_DELAY_OFFSET,
    lambda answer: route.DelayOffsetTable.from_json(answer.body.strip() or b"{}").offset_table,
)
"""Delay level to next offset of its queue."""
delay_offset_file = _asks_bare(Code.GET_ALL_DELAY_OFFSET, _bytes)
"""The delay offsets as the broker wrote them."""
query_offset = _asks(Code.QUERY_CONSUMER_OFFSET, headers.QueryConsumerOffsetRequestHeader, _offset)
"""The stored offset of a group, topic and queue id; :class:`BrokerError` 22 when there is none."""
update_offset = _asks(
    Code.UPDATE_CONSUMER_OFFSET, headers.UpdateConsumerOffsetRequestHeader, nothing
)
"""Store the offset of a group, topic and queue id; brokers take any value."""
max_offset = _asks(Code.GET_MAX_OFFSET, headers.GetMaxOffsetRequestHeader, _offset)
"""The offset that the next message of the queue will get."""
min_offset = _asks(Code.GET_MIN_OFFSET, headers.GetMinOffsetRequestHeader, _offset)
"""The first offset still stored."""
search_offset = _asks(Code.SEARCH_OFFSET_BY_TIMESTAMP, headers.SearchOffsetRequestHeader, _offset)
"""The offset of a topic and queue id that is stored nearest to a time in ms (4.9 rule)."""
earliest_store_time = _asks(
    Code.GET_EARLIEST_MSG_STORETIME,
    headers.GetEarliestMsgStoretimeRequestHeader,
    _field(headers.GetEarliestMsgStoretimeResponseHeader, lambda header: header.timestamp),
)
"""When the queue's first message was stored, ms; -1 when it is empty."""


def reset_offset(
    group: str, topic: str, timestamp_ms: int, *, force: bool = True
) -> Call[dict[MessageQueue, int]]:
    """Reset a group to a time (-1: the end) through its members; the offsets asked for."""
    return Call(
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        _part(stats.ResetOffsetBody, lambda body: body.offset_table),
        headers.ResetOffsetRequestHeader(topic, group, timestamp_ms, force),
    )


# --- messages -----------------------------------------------------------------------------

view_record = _asks(Code.VIEW_MESSAGE_BY_ID, headers.ViewMessageRequestHeader, _bytes)
"""The stored record at a physical offset."""
view_message = _asks(
    Code.VIEW_MESSAGE_BY_ID,
    headers.ViewMessageRequestHeader,
    lambda answer: decode_record(answer.body)[0],
)
consume_queue = _asks(
    Code.QUERY_CONSUME_QUEUE,
    headers.QueryConsumeQueueRequestHeader,
    lambda answer: stats.QueryConsumeQueueResponseBody.from_json(answer.body or b"{}"),
)
"""Entries of a consume queue: topic, queue id, index, count; none when it is out of range."""


def query_message(
    topic: str,
    key: str,
    *,
    unique: bool = False,
    max_num: int = 64,
    begin_ms: int = 0,
    end_ms: int = FOREVER_MS,
) -> Call[list[MessageExt]]:
    """The newest messages of a topic that have ``key``, oldest first; none is no error.

    Args:
        unique: ``key`` is a UNIQ_KEY and not one of KEYS. The broker then decides how many
            it brings; 32 as it comes.
        begin_ms: Stored not before this time; brokers compare whole seconds.
        end_ms: Stored not after it.
    """

    def decode(answer: RemotingCommand) -> list[MessageExt]:
        # Other keys may have the same hash.
        return [
            message
            for message in decode_records(answer.body)
            if message.topic == topic and key in _keys_of(message, unique=unique)
        ]

    header = headers.QueryMessageRequestHeader(topic, key, max_num, begin_ms, end_ms)
    call = Call(Code.QUERY_MESSAGE, decode, header)
    unique_key = {headers.UNIQUE_KEY_QUERY: "true" if unique else "false"}
    return call.with_ext(**unique_key).otherwise(Answer.QUERY_NOT_FOUND, [])


def _keys_of(message: MessageExt, *, unique: bool) -> list[str]:
    if unique:
        return [message.properties.get(UNIQ_KEY, "")]
    return (message.keys or "").split(" ")


class Pulled(NamedTuple):
    """Answer to a pull of the tools' group."""

    code: int
    messages: list[MessageExt]
    next_offset: int
    min_offset: int
    max_offset: int


def pull_by_tools(
    topic: str, queue_id: int, offset: int, count: int = 32, *, decompress: bool = True
) -> Call[Pulled]:
    """Pull without being a member: own subscription in the header, no commit, no holding."""

    def decode(answer: RemotingCommand) -> Pulled:
        found = answer.code == Answer.SUCCESS
        at = from_ext(headers.PullMessageResponseHeader, answer.ext_fields)
        messages = decode_records(answer.body, decompress=decompress) if found else []
        return Pulled(answer.code, messages, at.next_begin_offset, at.min_offset, at.max_offset)

    header = headers.PullMessageRequestHeader(
        consumer_group=TOOLS_GROUP,
        topic=topic,
        queue_id=queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
        expression_type="TAG",
    )
    return Call(Code.PULL_MESSAGE, decode, header, accepted=PULL_CODES)


# --- properties -------------------------------------------------------------------------------


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
        elif character.isascii() and character.isprintable():
            pieces.append(character)
        else:
            units = character.encode("utf-16-be")
            pieces += [f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)]
    return "".join(pieces)
