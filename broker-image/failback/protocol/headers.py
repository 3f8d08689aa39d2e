"""Typed headers of requests and responses, and their flattening to ``extFields``.

One Struct per header of apache/rocketmq 4.9.8 (package common.protocol.header). Python names
here, Java's on the wire. Every value travels as a string; ``strict=False`` decoding turns it
back, so the broker's hot path can decode a whole JSON header in one step::

    decode = envelope_decoder(SendMessageRequestHeaderV2).decode
    envelope = decode(frame.header)      # .code .opaque .version .extFields.topic ...

A header that this fast way refuses (raw numbers, null values, odd booleans) must go through
``RemotingCommand.from_frame`` and :func:`from_ext`, which follow Java's reading rules.
"""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from failback.protocol.errors import ProtocolError

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class Header(msgspec.Struct, rename="camel", gc=False):
    """Base of all typed headers."""


HeaderT = TypeVar("HeaderT", bound=Header)


class Envelope(msgspec.Struct, Generic[HeaderT], gc=False):
    """A JSON command header with its extFields already typed."""

    code: Int32
    opaque: Int32
    extFields: HeaderT  # noqa: N815 - the wire's spelling
    flag: Int32 = 0
    version: Int32 = 0
    language: str = ""


@cache
def envelope_decoder(header: type[HeaderT]) -> msgspec.json.Decoder[Envelope[HeaderT]]:
    """Return the decoder of whole JSON headers whose extFields are a ``header``."""
    return msgspec.json.Decoder(Envelope[header], strict=False)  # type: ignore[valid-type]


# --- sending -----------------------------------------------------------------------------


class SendMessageRequestHeader(Header):
    """Codes 10 and 324."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False

    def to_v2(self) -> SendMessageRequestHeaderV2:
        return SendMessageRequestHeaderV2(*msgspec.structs.astuple(self))

    @classmethod
    def from_v2(cls, header: SendMessageRequestHeaderV2) -> SendMessageRequestHeader:
        return cls(*msgspec.structs.astuple(header))


_V2_LETTERS: Final = dict(
    zip(SendMessageRequestHeader.__struct_fields__, "abcdefghijklm", strict=True)
)


class SendMessageRequestHeaderV2(Header, rename=_V2_LETTERS):
    """Codes 310, 320 and 325: the fields of V1 in the same order, as one letter each."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None
    batch: bool = False


class SendMessageResponseHeader(Header):
    """Answers a send; ``msg_id`` is the offset id, comma-joined for a batch."""

    msg_id: str
    queue_id: Int32
    queue_offset: Int64
    transaction_id: str | None = None


class ConsumerSendMsgBackRequestHeader(Header):
    """Code 36; ``offset`` is the physical offset of the failed message."""

    offset: Int64
    group: str
    delay_level: Int32
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool = False
    max_reconsume_times: Int32 | None = None


class EndTransactionRequestHeader(Header):
    """Code 37; ``commit_or_rollback`` is 0, 8 or 12 as in sysFlag."""

    producer_group: str
    tran_state_table_offset: Int64
    commit_log_offset: Int64
    commit_or_rollback: Int32
    msg_id: str
    from_transaction_check: bool = False
    transaction_id: str | None = None


class CheckTransactionStateRequestHeader(Header):
    """Code 39, broker to producer."""

    tran_state_table_offset: Int64
    commit_log_offset: Int64
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None


class ResumeCheckHalfMessageRequestHeader(Header):
    """Code 323; ``msg_id`` is an offset id."""

    msg_id: str | None = None


class ReplyMessageRequestHeader(Header):
    """Code 326, broker to the client that asked; hosts are ``ip:port``."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int32
    queue_id: Int32
    sys_flag: Int32
    born_timestamp: Int64
    flag: Int32
    born_host: str
    store_host: str
    store_timestamp: Int64
    properties: str | None = None
    reconsume_times: Int32 | None = None
    unit_mode: bool = False


# --- pulling and offsets ------------------------------------------------------------------


class PullMessageRequestHeader(Header):
    """Codes 11 and 361; ``sys_flag`` is a sum of the PULL_ bits."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    sub_version: Int64
    subscription: str | None = None
    expression_type: str | None = None


class PullMessageResponseHeader(Header):
    """All four belong to every answer with code 0, 19, 20 or 21."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64


class QueryConsumerOffsetRequestHeader(Header):
    """Code 14."""

    consumer_group: str
    topic: str
    queue_id: Int32


class QueryConsumerOffsetResponseHeader(Header):
    offset: Int64


class UpdateConsumerOffsetRequestHeader(Header):
    """Code 15."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


class SearchOffsetRequestHeader(Header):
    """Code 29."""

    topic: str
    queue_id: Int32
    timestamp: Int64


class SearchOffsetResponseHeader(Header):
    offset: Int64


class GetMaxOffsetRequestHeader(Header):
    """Code 30."""

    topic: str
    queue_id: Int32


class GetMaxOffsetResponseHeader(Header):
    offset: Int64


class GetMinOffsetRequestHeader(Header):
    """Code 31."""

    topic: str
    queue_id: Int32


class GetMinOffsetResponseHeader(Header):
    offset: Int64


class GetEarliestMsgStoretimeRequestHeader(Header):
    """Code 32."""

    topic: str
    queue_id: Int32


class GetEarliestMsgStoretimeResponseHeader(Header):
    timestamp: Int64


class ViewMessageRequestHeader(Header):
    """Code 33; ``offset`` is physical."""

    offset: Int64


UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""An entry beside those of :class:`QueryMessageRequestHeader`: whether its key is a UNIQ_KEY."""


class QueryMessageRequestHeader(Header):
    """Code 12."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64


class QueryMessageResponseHeader(Header):
    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


class QueryConsumeQueueRequestHeader(Header):
    """Code 321."""

    topic: str
    queue_id: Int32
    index: Int64
    count: Int32
    consumer_group: str | None = None


# --- clients ------------------------------------------------------------------------------


class UnregisterClientRequestHeader(Header):
    """Code 35; ``client_id`` is spelt clientID on the wire."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(Header):
    """Code 38."""

    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(Header):
    """Code 40, broker to consumer."""

    consumer_group: str


class ResetOffsetRequestHeader(Header):
    """Codes 220 and 222; ``timestamp`` -1 means the queue's end."""

    topic: str
    group: str
    timestamp: Int64
    is_force: bool = False


class GetConsumerStatusRequestHeader(Header):
    """Codes 221 and 223; ``client_addr`` is a client id."""

    topic: str
    group: str
    client_addr: str | None = None


class GetConsumerRunningInfoRequestHeader(Header):
    """Code 307."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeMessageDirectlyResultRequestHeader(Header):
    """Code 309."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None


# --- administration of topics and groups --------------------------------------------------


class CreateTopicRequestHeader(Header):
    """Code 17."""

    topic: str
    default_topic: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_filter_type: str
    topic_sys_flag: Int32 | None = None
    order: bool = False


class DeleteTopicRequestHeader(Header):
    """Codes 215 and 216; ``cluster_name`` only with 216."""

    topic: str
    cluster_name: str | None = None


class DeleteSubscriptionGroupRequestHeader(Header):
    """Code 207; 5.x calls ``remove_offset`` cleanOffset, see :meth:`wants_offsets_removed`."""

    group_name: str
    remove_offset: bool = False
    clean_offset: bool = False

    def wants_offsets_removed(self) -> bool:
        return self.remove_offset or self.clean_offset


class GetTopicStatsInfoRequestHeader(Header):
    """Code 202."""

    topic: str


class GetConsumerConnectionListRequestHeader(Header):
    """Code 203."""

    consumer_group: str


class GetProducerConnectionListRequestHeader(Header):
    """Code 204."""

    producer_group: str


class GetConsumeStatsRequestHeader(Header):
    """Code 208; without topic: all topics with an offset of the group."""

    consumer_group: str
    topic: str | None = None


class QueryTopicConsumeByWhoRequestHeader(Header):
    """Code 300."""

    topic: str


class QueryConsumeTimeSpanRequestHeader(Header):
    """Code 303."""

    topic: str
    group: str


class QueryCorrectionOffsetHeader(Header):
    """Code 308; ``filter_groups`` is a comma list."""

    compare_group: str
    topic: str
    filter_groups: str | None = None


class CloneGroupOffsetRequestHeader(Header):
    """Code 314."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class ViewBrokerStatsDataRequestHeader(Header):
    """Code 315."""

    stats_name: str
    stats_key: str


class GetBrokerConsumeStatsRequestHeader(Header):
    """Code 317; the wire's key really is ``isOrder``."""

    is_order: bool = False


# --- name server --------------------------------------------------------------------------


class RegisterBrokerRequestHeader(Header):
    """Code 103; ``body_crc32`` 0 means unchecked."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Int64
    compressed: bool = False
    body_crc32: Int32 = msgspec.field(default=0, name="bodyCrc32")


class RegisterBrokerResponseHeader(Header):
    """Both are present for a slave whose master is registered, absent otherwise."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class UnregisterBrokerRequestHeader(Header):
    """Code 104."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionRequestHeader(Header):
    """Code 322."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Int64


class QueryDataVersionResponseHeader(Header):
    changed: bool


class GetRouteInfoRequestHeader(Header):
    """Code 105."""

    topic: str
    accept_standard_json_only: bool = False


class GetTopicsByClusterRequestHeader(Header):
    """Code 224."""

    cluster: str


class WritePermOfBrokerRequestHeader(Header):
    """Codes 205 and 327."""

    broker_name: str


class WipeWritePermOfBrokerResponseHeader(Header):
    wipe_topic_count: Int32


class AddWritePermOfBrokerResponseHeader(Header):
    add_topic_count: Int32


class PutKVConfigRequestHeader(Header):
    """Code 100."""

    namespace: str
    key: str
    value: str


class GetKVConfigRequestHeader(Header):
    """Code 101."""

    namespace: str
    key: str


class GetKVConfigResponseHeader(Header):
    value: str


class DeleteKVConfigRequestHeader(Header):
    """Code 102."""

    namespace: str
    key: str


class GetKVListByNamespaceRequestHeader(Header):
    """Code 219."""

    namespace: str


# --- flattening ---------------------------------------------------------------------------

_DECIMAL: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_BITS_BY_LIMIT: Final = {2**31 - 1: 32, 2**63 - 1: 64}

_SENT_WITHOUT: Final = {"producer_group": "", "default_topic": "", "default_topic_queue_nums": 0}
_DONE_WITHOUT: Final[Mapping[type[Header], Mapping[str, Any]]] = {
    SendMessageRequestHeader: _SENT_WITHOUT,
    SendMessageRequestHeaderV2: _SENT_WITHOUT,
    PullMessageRequestHeader: {"commit_offset": 0, "suspend_timeout_millis": 0, "sub_version": 0},
    CreateTopicRequestHeader: {"default_topic": ""},
    RegisterBrokerRequestHeader: {"ha_server_addr": ""},
}
"""What Java goes on with where a client left out a field that every client should send."""


class _Field(msgspec.Struct, frozen=True):
    """How one attribute is read from its string."""

    name: str
    wire_name: str
    required: bool
    default: Any
    read: Callable[[str, str], Any]


def to_ext(header: Header) -> dict[str, str]:
    """Flatten ``header`` to its wire form: absent values are left out, not sent as null."""
    fields = {}
    for wire_name, name in _names(type(header)):
        value = getattr(header, name)
        if value is None:
            continue
        if value is True:
            fields[wire_name] = "true"
        elif value is False:
            fields[wire_name] = "false"
        else:
            fields[wire_name] = str(value)
    return fields


def from_ext(cls: type[HeaderT], ext: Mapping[str, str] | None) -> HeaderT:
    """Read a typed header by Java's rules; entries that it does not know are ignored.

    Raises:
        ProtocolError: A required field is missing, or an integer is none: names the field.
    """
    ext = ext or {}
    values = {}
    for field in _fields(cls):
        text = ext.get(field.wire_name)
        if text is not None:
            values[field.name] = field.read(field.wire_name, text)
        elif field.required:
            raise ProtocolError(f"{cls.__name__}: required field {field.wire_name} is missing")
        else:
            values[field.name] = field.default
    return cls(**values)


@cache
def _names(cls: type[Header]) -> tuple[tuple[str, str], ...]:
    return tuple(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True))


@cache
def _fields(cls: type[Header]) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    done_without = _DONE_WITHOUT.get(cls, {})
    return tuple(
        _Field(
            field.name,
            field.encode_name,
            field.required and field.name not in done_without,
            done_without.get(field.name) if field.required else field.default,
            _reader(hints[field.name]),
        )
        for field in msgspec.structs.fields(cls)
    )


def _reader(hint: Any) -> Callable[[str, str], Any]:
    """Choose the reading rule for an annotation: str, bool, Int32, Int64, or one of them | None."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (hint,) = (arm for arm in typing.get_args(hint) if arm is not types.NoneType)
        return _reader(hint)
    if typing.get_origin(hint) is Annotated:
        base, meta, *_ = typing.get_args(hint)
        if base is not int:
            return _reader(base)
        return _read_int32 if _BITS_BY_LIMIT[meta.le] == 32 else _read_int64
    return _read_bool if hint is bool else _read_text


def _read_text(_wire_name: str, text: str) -> str:
    return text


def _read_bool(_wire_name: str, text: str) -> bool:
    return text.lower() == "true"  # Boolean.parseBoolean: anything else is false


def _read_int32(wire_name: str, text: str) -> int:
    return _read_integer(wire_name, text, 2**31)


def _read_int64(wire_name: str, text: str) -> int:
    return _read_integer(wire_name, text, 2**63)


def _read_integer(wire_name: str, text: str, limit: int) -> int:
    """Read as Integer.parseInt does: no blanks, a plus sign is fine."""
    if _DECIMAL.fullmatch(text):
        number = int(text)
        if -limit <= number < limit:
            return number
    raise ProtocolError(f'{wire_name}: "{text[:40]}" is no {limit.bit_length()}-bit integer')
