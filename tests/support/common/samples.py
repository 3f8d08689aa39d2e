"""Right input of decoders, to be spoilt."""

from __future__ import annotations

from typing import Final

from failback.client.consumelog.reader import Head, HotLog
from failback.client.consumelog.schema import TABLES
from failback.client.consumelog.upload.lake_files import stream_bytes
from failback.client.consumelog.upload.segments import segments_of
from failback.operator.planning.operations.switching import snapshot
from failback.protocol.route import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from tests.support.analytics.trace_builder import after, before, pub
from tests.support.common.protocol_golden import golden_bodies, golden_bytes

_BODIES: Final = golden_bodies()
_RECORDS: Final = [(TABLES["life"].code, n + 1, 10, 20, f"state-{n}") for n in range(200)]
(_SEGMENT,) = segments_of(
    HotLog(Head("r1", b"p" * 16, 3, "consumer", "h", 4, 1), list(_RECORDS), False, 0)
)
_REGISTRATION: Final = RegisterBrokerBody(
    TopicConfigSerializeWrapper({f"t{n}": TopicConfig(f"t{n}") for n in range(9)})
)
_COMMAND: Final = (
    b'{"code":34,"extFields":{"a":"1"},"flag":2,"language":"CPP","opaque":5,"version":9}'
)
_TRACES: Final = pub("m1"), before("m1", 1, "r1"), after("m1", 2, "r1"), before("m2", 3, "r2")

SAMPLES: Final[dict[str, bytes]] = {
    "heartbeat": _BODIES["heartbeat_data"].encode(),
    "lock": _BODIES["lock_batch_request"].encode(),
    "registration": _BODIES["register_broker_body"].encode(),
    "compressed_registration": _REGISTRATION.to_compressed(),
    "json_header": _COMMAND,
    "binary_header": golden_bytes("send_v2_request_binary")[8:200],
    "topics": _BODIES["topic_config_wrapper"].encode(),
    "offsets": _BODIES["consumer_offsets"].encode(),
    "delay_offsets": _BODIES["delay_offsets"].encode(),
    "topic_route": _BODIES["topic_route_data"].encode(),
    "cluster": _BODIES["cluster_info"].encode(),
    "consume_stats": _BODIES["consume_stats"].encode(),
    "topic_stats": _BODIES["topic_stats_table"].encode(),
    "reset": _BODIES["reset_offset"].encode(),
    "records": golden_bytes("stored_record"),
    "trace": b"".join(_TRACES),
    "kept_offsets": snapshot.encode({f"t@g{n}": {0: n, 1: 2} for n in range(50)}),
    "arrow_stream": stream_bytes(_SEGMENT),
    "metrics": b'rocketmq_slave_bytes{slave="1"} 5\nrocketmq_slave_age 1.5\n',
    "settings": b"brokerName=a\nflushDiskType=SYNC_FLUSH\n",
    "sql_filter": b"a > 5 AND b IN ('x', 'y') OR NOT c IS NULL",
    "properties": b"TAGS\x01a\x02KEYS\x01k\x02",
}
