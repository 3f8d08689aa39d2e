"""Every decoder of bytes from a peer, as functions of bytes that do what its door does first.

``DECODERS`` says how long its input may be, in what its generated input is wrapped, and what it may
take at its peak.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from failback.analytics.collector.decode import decode as decode_upload
from failback.analytics.collector.settings import Limits
from failback.analytics.lake.segment_ids import SegmentId
from failback.analytics.trace.records import decode_body as decode_trace
from failback.broker.filters.sql92 import compile_filter
from failback.namesrv.processor import _registration_body
from failback.operator.brokers.peers import gauges_of
from failback.operator.planning.operations.switching import snapshot
from failback.protocol import clients, fastjson, route, stats
from failback.protocol.body import Body
from failback.protocol.codes import BODY_BYTES, MOST_BODY_BYTES, RequestCode
from failback.protocol.command import MAX_HEADER_BYTES, RemotingCommand
from failback.protocol.frames import Frame
from failback.protocol.message import decode_properties, decode_records
from failback.protocol.properties import properties_of

KIB: Final = 1024
MIB: Final = 1024 * KIB
BUDGET_BYTES: Final = 16 * MIB
_SEGMENT: Final = SegmentId("r1", "70" * 16, 4, "life")


def request(code: int, body: bytes) -> RemotingCommand:
    """A request as a door lets it in."""
    command = RemotingCommand(code, version=409, body=body)
    command.check_body()
    return command


def _of(code: int, cls: type[Body]) -> Callable[[bytes], object]:
    return lambda data: cls.from_json(request(code, data).body)


def registration(data: bytes) -> object:
    return _registration_body(request(RequestCode.REGISTER_BROKER, data), False)


def compressed_registration(data: bytes) -> object:
    return _registration_body(request(RequestCode.REGISTER_BROKER, data), True)


def json_header(data: bytes) -> object:
    return RemotingCommand.from_frame(Frame(0, data, b""))


def binary_header(data: bytes) -> object:
    return RemotingCommand.from_frame(Frame(1, data, b""))


def settings(data: bytes) -> object:
    return properties_of(request(RequestCode.UPDATE_BROKER_CONFIG, data).body)


def sql_filter(data: bytes) -> object:
    return compile_filter(data.decode(errors="replace"))


def properties(data: bytes) -> object:
    return decode_properties(data.decode(errors="replace"))


def arrow_stream(data: bytes) -> object:
    return decode_upload(_SEGMENT, data, "ab", Limits())


heartbeat = _of(RequestCode.HEART_BEAT, clients.HeartbeatData)
lock = _of(RequestCode.LOCK_BATCH_MQ, clients.LockBatchRequestBody)
check_client = _of(RequestCode.CHECK_CLIENT_CONFIG, clients.CheckClientRequestBody)
group = _of(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, route.SubscriptionGroupConfig)
data_version = _of(RequestCode.QUERY_DATA_VERSION, route.DataVersion)
topics = route.TopicConfigSerializeWrapper.from_json
offsets = route.ConsumerOffsetTable.from_json
groups = route.SubscriptionGroupWrapper.from_json
delay_offsets = route.DelayOffsetTable.from_json
topic_route = route.TopicRouteData.from_json
cluster = route.ClusterInfo.from_json
connections = clients.ConsumerConnection.from_json
consume_stats = stats.ConsumeStats.from_json
topic_stats = stats.TopicStatsTable.from_json
running_info = stats.ConsumerRunningInfo.from_json
reset = stats.ResetOffsetBody.from_json
any_json = fastjson.loads
records = decode_records
trace = decode_trace
kept_offsets = snapshot.decode
metrics = gauges_of


def as_it_is(data: bytes) -> bytes:
    return data


def in_gzip(data: bytes) -> bytes:
    return gzip.compress(data, 1, mtime=0)


def text_and_sizes(data: bytes) -> bytes:
    """A compressed registration with ``data`` for the text of a topic, repeated."""
    topic = data[:200]
    part = len(topic).to_bytes(4, "big") + topic
    count = min(len(data) // max(len(part), 1), 100_000)
    return zlib.compress(b"\x00\x00\x00\x02{}" + count.to_bytes(4, "big") + part * count, 1)


@dataclass(frozen=True, slots=True)
class Decoder:
    """What may be taken is ``times`` the size, where that is more than the budget of all."""

    longest: int = MOST_BODY_BYTES
    wrap: Callable[[bytes], bytes] = as_it_is
    times: int = 8

    def budget(self, length: int) -> int:
        return max(BUDGET_BYTES, self.times * length)


_REGISTRATION: Final = Decoder(BODY_BYTES[RequestCode.REGISTER_BROKER], times=12)
"""A list of short texts costs ten times its length, and this body may be the longest."""
_ANSWER: Final = Decoder(MOST_BODY_BYTES)
_TABLE: Final = Decoder(MIB, times=24)
DECODERS: Final[dict[str, Decoder]] = {
    "heartbeat": Decoder(),
    "lock": Decoder(),
    "check_client": Decoder(),
    "group": Decoder(),
    "data_version": Decoder(),
    "settings": Decoder(),
    "registration": _REGISTRATION,
    "compressed_registration": Decoder(MIB, text_and_sizes),
    "json_header": Decoder(MAX_HEADER_BYTES),
    "binary_header": Decoder(MAX_HEADER_BYTES),
    "sql_filter": Decoder(32 * KIB),
    "properties": Decoder(32 * KIB),
    "topics": _TABLE,
    "offsets": _TABLE,
    "groups": _ANSWER,
    "delay_offsets": _ANSWER,
    "topic_route": _ANSWER,
    "cluster": _ANSWER,
    "connections": _ANSWER,
    "consume_stats": _ANSWER,
    "topic_stats": _ANSWER,
    "running_info": _ANSWER,
    "reset": _ANSWER,
    "records": Decoder(MIB, times=16),
    "trace": Decoder(256 * KIB),
    "kept_offsets": Decoder(MIB, in_gzip, times=24),
    "metrics": Decoder(4 * MIB),
    "arrow_stream": Decoder(256 * KIB),
}
