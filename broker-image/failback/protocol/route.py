"""Routes, topics, groups and their registration: bodies of the name server and the broker.

Source: packages common.protocol.route, common.protocol.body, common.subscription and classes
TopicConfig and DataVersion of apache/rocketmq 4.9.8. The bodies of clients and statistics are
in :mod:`failback.protocol.clients` and :mod:`failback.protocol.stats`.
"""

# ruff: noqa: RUF012 - msgspec gives every instance its own copy of an empty list or dict
from __future__ import annotations

import re
import struct
import zlib
from typing import Final, Literal, NamedTuple

import msgspec

from failback.protocol import fastjson
from failback.protocol.body import Body
from failback.protocol.errors import ProtocolError
from failback.protocol.headers import Int32, Int64
from failback.protocol.message import inflate

MASTER_ID: Final = 0
TopicFilterType = Literal["SINGLE_TAG", "MULTI_TAG"]


def filter_type_of(name: str) -> TopicFilterType:
    """Return a filter type by its name.

    Raises:
        ProtocolError: There is none of this name.
    """
    if name == "SINGLE_TAG":
        return "SINGLE_TAG"
    if name == "MULTI_TAG":
        return "MULTI_TAG"
    raise ProtocolError(f'topicFilterType: "{name[:40]}" is neither SINGLE_TAG nor MULTI_TAG')


class QueueData(Body):
    """The queues of one topic on one broker; ``perm`` is a sum of the PERM_ bits."""

    broker_name: str
    read_queue_nums: Int32
    write_queue_nums: Int32
    perm: Int32
    topic_sys_flag: Int32 = 0


class BrokerData(Body):
    """The addresses of one broker name by broker id; 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[Int64, str]


class TopicRouteData(Body):
    """Answers 105."""

    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None


class ClusterInfo(Body):
    """Answers 106."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}

    def members(self) -> list[RegisteredBroker]:
        """Return every registered broker, sorted by cluster, name and id."""
        return sorted(
            RegisteredBroker(cluster, name, number, address)
            for cluster, names in self.cluster_addr_table.items()
            for name in names
            if name in self.broker_addr_table
            for number, address in self.broker_addr_table[name].broker_addrs.items()
        )


class RegisteredBroker(NamedTuple):
    """One broker process as a name server lists it; id 0 is the master."""

    cluster: str
    broker_name: str
    broker_id: int
    addr: str


class DataVersion(Body, frozen=True):  # type: ignore[misc] # msgspec allows it
    """Version of a table; compared by equality. ``timestamp`` in ms."""

    timestamp: Int64 = 0
    counter: Int64 = 0

    def next(self, now_ms: int) -> DataVersion:
        """Return the version after a change at ``now_ms``."""
        return DataVersion(now_ms, self.counter + 1)


class TopicConfig(Body):
    """A topic on one broker."""

    topic_name: str
    read_queue_nums: Int32 = 16
    write_queue_nums: Int32 = 16
    perm: Int32 = 6
    topic_filter_type: TopicFilterType = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False

    def to_text(self) -> str:
        """The form used in compressed registrations (TopicConfig.encode)."""
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm}"
            f" {self.topic_filter_type}"
        )

    @classmethod
    def from_text(cls, text: str) -> TopicConfig:
        """Read :meth:`to_text`'s form; 5.x appends a blank and attributes, which are ignored.

        Raises:
            ProtocolError: It has fewer than five words, or the numbers are none.
        """
        words = text.split(" ")
        try:
            name, read, write, perm, filter_type = words[:5]
            return cls(name, int(read), int(write), int(perm), filter_type_of(filter_type))
        except ValueError as error:
            raise ProtocolError(f"no topic configuration: {text[:80]!r}") from error


class TopicConfigSerializeWrapper(Body):
    """Answers 21, and travels in registrations."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()


_COUNT: Final = struct.Struct(">i")
MOST_INFLATED_BYTES: Final = 1024**2
"""Of a registration in its compressed form, where the reader sets no other bound."""
LEAST_TOPIC_BYTES: Final = 52
"""An estimate of a topic's bytes there: of a count that cannot fit no topic is read."""


class RegisterBrokerBody(Body):
    """Body of 103, plain or compressed."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = []

    def to_compressed(self) -> bytes:
        """Write the compressed form (RegisterBrokerBody.encode)."""
        wrapper = self.topic_config_serialize_wrapper
        topics = [config.to_text().encode() for config in wrapper.topic_config_table.values()]
        parts = [_sized(wrapper.data_version.to_json()), _COUNT.pack(len(topics))]
        parts += map(_sized, topics)
        parts.append(_sized(fastjson.dumps(self.filter_server_list)))
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def from_compressed(
        cls, data: bytes, most_bytes: int = MOST_INFLATED_BYTES
    ) -> RegisterBrokerBody:
        """Read the compressed form; what 5.x appends to it is ignored.

        Raises:
            ProtocolError: It is no zlib stream, inflates to more than ``most_bytes`` or has more
                topics than these hold, or its parts contradict each other.
        """
        plain = inflate(data, most_bytes)
        most_topics = most_bytes // LEAST_TOPIC_BYTES
        version, position = _take_sized(plain, 0)
        count, position = _take_count(plain, position)
        if count > most_topics:
            raise ProtocolError(f"registration of {count} topics, at most {most_topics} are taken")
        table = {}
        for _ in range(count):
            text, position = _take_sized(plain, position)
            config = TopicConfig.from_text(_utf8(text))
            table[config.topic_name] = config
        servers, _ = _take_sized(plain, position)
        wrapper = TopicConfigSerializeWrapper(table, DataVersion.from_json(version))
        return cls(wrapper, fastjson.read(servers, list[str]))


def _sized(part: bytes) -> bytes:
    return _COUNT.pack(len(part)) + part


def _take_count(data: bytes, position: int) -> tuple[int, int]:
    try:
        (count,) = _COUNT.unpack_from(data, position)
    except struct.error as error:
        raise ProtocolError(f"registration is cut off at {position}") from error
    if count < 0:
        raise ProtocolError(f"negative count in a registration at {position}")
    return count, position + _COUNT.size


def _take_sized(data: bytes, position: int) -> tuple[bytes, int]:
    size, start = _take_count(data, position)
    if start + size > len(data):
        raise ProtocolError(f"registration part of {size} bytes at {start} overruns its body")
    return data[start : start + size], start + size


def _utf8(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ProtocolError(f"topic in a registration is no UTF-8: {error}") from error


class SubscriptionGroupConfig(Body):
    """A consumer group on one broker.

    ``broker_id`` is suggested to readers near the log's end, ``which_broker_when_consume_slowly``
    to those far behind, both only where slaveReadEnable is set.
    """

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: Int32 = 1
    retry_max_times: Int32 = 16
    broker_id: Int64 = 0
    which_broker_when_consume_slowly: Int64 = 1
    notify_consumer_ids_changed_enable: bool = True


class SubscriptionGroupWrapper(Body):
    """Answers 201; also the file subscriptionGroup.json."""

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    data_version: DataVersion = DataVersion()


_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')
"""What does not stand in JSON as it is."""


class ConsumerOffsetTable(Body):
    """Answers 43; also consumerOffset.json. ``topic@group`` to queue id to next offset.

    ``deletions`` says when, in ms, the offsets of ``topic@`` or of ``@group`` were last deleted. It
    is ours, and missing where nothing was; Java passes it over.
    """

    offset_table: dict[str, dict[Int32, Int64]] = {}
    deletions: dict[str, Int64] | None = None

    def to_json(self, *, unquoted_int_keys: bool = False, pretty: bool = False) -> bytes:
        """As every body, but a large table in a third of the time: a broker does nothing else."""
        table, is_plain = self.offset_table, unquoted_int_keys and not pretty
        if not is_plain or self.deletions or _ESCAPED.search("".join(table)):
            return super().to_json(unquoted_int_keys=unquoted_int_keys, pretty=pretty)
        rows = (
            f'"{key}":{{{",".join([f"{queue}:{queues[queue]}" for queue in sorted(queues)])}}}'
            for key, queues in sorted(table.items())
        )
        return f'{{"offsetTable":{{{",".join(rows)}}}}}'.encode()


def parse_offset_table(data: bytes | str) -> dict[str, dict[int, int]]:
    """Read the body of code 43, or a consumerOffset.json: ``topic@group`` to queue id to offset.

    Raises:
        ProtocolError: It is neither, for example a file cut off by a crash.
    """
    return ConsumerOffsetTable.from_json(data).offset_table


def split_offset_key(key: str) -> tuple[str, str]:
    """Split a key of an offset table, ``topic@group``; without ``@`` the group is empty."""
    topic, _, group = key.partition("@")
    return topic, group


class DelayOffsetTable(Body):
    """Answers 45; also delayOffset.json. Delay level to next offset in its queue."""

    offset_table: dict[Int32, Int64] = {}
