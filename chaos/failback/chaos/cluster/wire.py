"""A tiny blocking remoting client for threads: one connection, one request at a time.

The witness must not share an event loop, a socket or a timer with what it watches, so it does not
use failback.client. It speaks failback.protocol over its own sockets and stamps what it sees.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import (
    BrokerError,
    ProtocolError,
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeout,
)
from failback.protocol.fastjson import loads
from failback.protocol.frames import FrameReader
from failback.protocol.message import MessageExt, decode_records

CONNECT_TIMEOUT: Final = 0.5
PULL_GROUP: Final = "TOOLS_CONSUMER"
"""A system group of every broker: pulling with it needs no registration and commits nothing."""
PULL_SUBSCRIPTION: Final = 4
FOUND: Final = 0
NOT_FOUND: Final = 19
RETRY_IMMEDIATELY: Final = 20
OFFSET_MOVED: Final = 21


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``; an IPv6 host may stand in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


class Pulled(NamedTuple):
    """Answer to one pull of the scanner."""

    code: int
    messages: list[MessageExt]
    next_offset: int
    min_offset: int
    max_offset: int


class WireConnection:
    """One TCP connection to a broker or name server. Not thread-safe: one thread owns it."""

    def __init__(self, address: str, *, connect_timeout: float = CONNECT_TIMEOUT) -> None:
        """Connect.

        Raises:
            RemotingConnectError: Refused, unreachable, or no answer in time.
        """
        self.address = address
        try:
            self.socket = socket.create_connection(split_address(address), connect_timeout)
        except OSError as error:
            raise RemotingConnectError(address, str(error)) from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = FrameReader()
        self._opaque = 0

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> WireConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, code: int, ext: Mapping[str, Any] | None = None, body: bytes = b"") -> int:
        """Send one request and return its opaque. Raises ``RemotingSendError``."""
        self._opaque += 1
        fields = {key: str(value) for key, value in (ext or {}).items()}
        request = RemotingCommand.request(code, ext=fields, body=body)
        request.opaque = self._opaque
        try:
            self.socket.settimeout(3.0)
            self.socket.sendall(request.encode())
        except OSError as error:
            raise RemotingSendError(self.address, str(error)) from error
        return self._opaque

    def receive(self, opaque: int, timeout: float) -> RemotingCommand:
        """Return the answer to ``opaque``; answers to older requests are dropped.

        Raises:
            RemotingTimeout: Nothing in time. The connection can still be used.
            RemotingSendError: Closed or reset by the peer, see ``why``: ``FIN`` or ``RST``.
        """
        deadline = time.monotonic() + timeout
        while True:
            frame = self._reader.next_frame()
            if frame is not None:
                answer = RemotingCommand.from_frame(frame)
                if answer.is_response and answer.opaque == opaque:
                    return answer
                continue
            left = deadline - time.monotonic()
            if left <= 0:
                raise RemotingTimeout(self.address, timeout * 1000)
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(1 << 18)
            except TimeoutError as error:
                raise RemotingTimeout(self.address, timeout * 1000) from error
            except ConnectionResetError as error:
                raise RemotingSendError(self.address, "RST") from error
            except OSError as error:
                raise RemotingSendError(self.address, str(error)) from error
            if not data:
                raise RemotingSendError(self.address, "FIN")
            self._reader.receive_data(data)

    def call(
        self,
        code: int,
        ext: Mapping[str, Any] | None = None,
        *,
        body: bytes = b"",
        timeout: float = 3.0,
        accept: tuple[int, ...] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """Request and answer. Raises ``BrokerError`` for a code outside ``accept``."""
        answer = self.receive(self.send(code, ext, body), timeout)
        if answer.code not in accept:
            raise BrokerError(answer.code, answer.remark, self.address)
        return answer

    # --- the handful of calls that the harness makes ---------------------------------------------

    def runtime_info(self, timeout: float = 0.5) -> dict[str, str]:
        """Code 28: the broker's table of figures, all strings."""
        answer = self.call(RequestCode.GET_BROKER_RUNTIME_INFO, timeout=timeout)
        table = loads(answer.body).get("table") or {}
        return {str(key): str(value) for key, value in table.items()}

    def broker_config(self, timeout: float = 3.0) -> dict[str, str]:
        """Code 26: the configuration as ``key=value`` lines."""
        answer = self.call(RequestCode.GET_BROKER_CONFIG, timeout=timeout)
        lines = answer.body.decode("utf-8", "replace").splitlines()
        pairs = (line.partition("=") for line in lines if line and not line.startswith("#"))
        return {key.strip(): value.strip() for key, _, value in pairs}

    def update_config(self, changes: Mapping[str, str], timeout: float = 3.0) -> None:
        """Code 25: ``key=value`` lines."""
        body = "".join(f"{key}={value}\n" for key, value in changes.items()).encode()
        self.call(RequestCode.UPDATE_BROKER_CONFIG, body=body, timeout=timeout)

    def all_offsets(self, timeout: float = 3.0) -> dict[str, dict[int, int]]:
        """Code 43: ``topic@group`` to queue id to offset."""
        answer = self.call(RequestCode.GET_ALL_CONSUMER_OFFSET, timeout=timeout)
        return parse_offset_table(answer.body)

    def delay_offsets(self, timeout: float = 3.0) -> dict[int, int]:
        """Code 45: delay level to offset; empty when the broker keeps none yet."""
        answer = self.call(
            RequestCode.GET_ALL_DELAY_OFFSET,
            timeout=timeout,
            accept=(ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR),
        )
        if answer.code != ResponseCode.SUCCESS or not answer.body.strip():
            return {}
        table = loads(answer.body).get("offsetTable") or {}
        return {int(level): int(offset) for level, offset in table.items()}

    def topic_stats(self, topic: str, timeout: float = 3.0) -> dict[int, tuple[int, int]]:
        """Code 202: queue id to (min, max) queue offset; empty when the topic is unknown."""
        answer = self.call(
            RequestCode.GET_TOPIC_STATS_INFO,
            {"topic": topic},
            timeout=timeout,
            accept=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
        )
        if answer.code != ResponseCode.SUCCESS:
            return {}
        table = loads(answer.body).get("offsetTable") or {}
        stats: dict[int, tuple[int, int]] = {}
        for key, value in table.items():
            queue = dict(key) if isinstance(key, tuple) else loads(key)
            stats[int(queue["queueId"])] = (int(value["minOffset"]), int(value["maxOffset"]))
        return stats

    def topic_names(self, timeout: float = 3.0) -> list[str]:
        """Code 21: names of all topics that the broker has."""
        answer = self.call(RequestCode.GET_ALL_TOPIC_CONFIG, timeout=timeout)
        return sorted(loads(answer.body).get("topicConfigTable") or {})

    def group_names(self, timeout: float = 3.0) -> list[str]:
        """Code 201: names of all subscription groups that the broker has."""
        answer = self.call(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, timeout=timeout)
        return sorted(loads(answer.body).get("subscriptionGroupTable") or {})

    def route(self, topic: str, timeout: float = 1.0) -> dict[str, dict[int, str]]:
        """Code 105 at a name server: broker name to broker id to address; empty for no route."""
        answer = self.call(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            {"topic": topic},
            timeout=timeout,
            accept=(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
        )
        if answer.code != ResponseCode.SUCCESS:
            return {}
        brokers = loads(answer.body).get("brokerDatas") or []
        return {str(each["brokerName"]): _addresses(each) for each in brokers}

    def cluster_addresses(self, timeout: float = 1.0) -> dict[str, dict[int, str]]:
        """Code 106 at a name server: broker name to broker id to address."""
        answer = self.call(RequestCode.GET_BROKER_CLUSTER_INFO, timeout=timeout)
        table = loads(answer.body).get("brokerAddrTable") or {}
        return {str(name): _addresses(each) for name, each in table.items()}

    def commit_offset(
        self, group: str, topic: str, queue_id: int, offset: int, timeout: float = 1.0
    ) -> None:
        """Code 15."""
        self.call(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset},
            timeout=timeout,
        )

    def create_topic(self, name: str, queues: int, timeout: float = 3.0) -> None:
        """Code 17."""
        self.call(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {
                "topic": name,
                "defaultTopic": "TBW102",
                "readQueueNums": queues,
                "writeQueueNums": queues,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0,
                "order": "false",
            },
            timeout=timeout,
        )

    def create_group(self, body: bytes, timeout: float = 3.0) -> None:
        """Code 200 with a SubscriptionGroupConfig body."""
        self.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body, timeout=timeout)

    def pull(
        self, topic: str, queue_id: int, offset: int, count: int = 32, timeout: float = 5.0
    ) -> Pulled:
        """Code 11 for nobody: own subscription in the header, no commit, no holding."""
        answer = self.call(
            RequestCode.PULL_MESSAGE,
            {
                "consumerGroup": PULL_GROUP,
                "topic": topic,
                "queueId": queue_id,
                "queueOffset": offset,
                "maxMsgNums": count,
                "sysFlag": PULL_SUBSCRIPTION,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subVersion": 0,
                "subscription": "*",
                "expressionType": "TAG",
            },
            timeout=timeout,
            accept=(FOUND, NOT_FOUND, RETRY_IMMEDIATELY, OFFSET_MOVED),
        )
        ext = answer.ext_fields or {}
        return Pulled(
            answer.code,
            decode_records(answer.body) if answer.code == FOUND else [],
            int(ext.get("nextBeginOffset", offset)),
            int(ext.get("minOffset", 0)),
            int(ext.get("maxOffset", 0)),
        )


def parse_offset_table(data: bytes | str) -> dict[str, dict[int, int]]:
    """Read the body of code 43, or a consumerOffset.json.

    Raises:
        ProtocolError: It is neither, for example a file cut off by a crash.
    """
    document = loads(data)
    if not isinstance(document, dict):
        raise ProtocolError("an offset table must be an object")
    table = document.get("offsetTable") or {}
    return {
        str(key): {int(queue): int(offset) for queue, offset in (queues or {}).items()}
        for key, queues in table.items()
    }


def split_offset_key(key: str) -> tuple[str, str]:
    """Split ``topic@group``."""
    topic, _, group = key.partition("@")
    return topic, group


def _addresses(broker: Mapping[str, Any]) -> dict[int, str]:
    return {int(number): str(address) for number, address in broker["brokerAddrs"].items()}
