"""A tiny blocking remoting client for threads: one connection, one request at a time.

The witness must not share an event loop, a socket or a timer with what it watches, so it does not
use failback.client. It speaks failback.protocol over its own sockets and stamps what it sees.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from typing import Final, TypeVar

from failback.client.remoting.guarded.access import ClusterAccess
from failback.client.remoting.guarded.cluster import access_by
from failback.protocol import calls
from failback.protocol.calls import Call, Pulled
from failback.protocol.codes import ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import (
    RemotingConnectError,
    RemotingSendError,
    RemotingTimeout,
)
from failback.protocol.frames import FrameReader
from failback.protocol.route import TopicRouteData
from failback.protocol.stats import TopicStatsTable

CONNECT_TIMEOUT: Final = 0.5
HANDSHAKE_TIMEOUT: Final = 2.0
ACCESS_FILES: Final = ("access_key_file", "tls_ca", "tls_cert", "tls_key")
T = TypeVar("T")
_access: tuple[Mapping[str, str], ClusterAccess | None] = ({}, None)
"""How the cluster of this process is asked."""


def use_access(files: Mapping[str, str]) -> None:
    """Have later connections of this process sign and speak TLS.

    Args:
        files: Settings of a guarded cluster by the names of their options; empty for an open one.

    Raises:
        ConfigError: A file cannot be read.
    """
    global _access
    if files != _access[0]:
        _access = dict(files), access_by(files)


def split_address(address: str) -> tuple[str, int]:
    """Split ``host:port``; an IPv6 host may stand in brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


class WireConnection:
    """One TCP connection to a broker or name server. Not thread-safe: one thread owns it."""

    def __init__(self, address: str, connect_timeout: float = CONNECT_TIMEOUT) -> None:
        """Connect.

        Raises:
            RemotingConnectError: Refused, unreachable, or no answer in time.
        """
        self.address = address
        self._access = _access[1]
        host, port = split_address(address)
        try:
            self.socket = socket.create_connection((host, port), connect_timeout)
            if self._access is not None and (tls := self._access.tls) is not None:
                self.socket.settimeout(HANDSHAKE_TIMEOUT)
                name = tls.name_of(host)
                self.socket = tls.context.wrap_socket(self.socket, server_hostname=name)
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

    def send(self, request: RemotingCommand) -> int:
        """Send one request and return its opaque. Raises ``RemotingSendError``."""
        self._opaque += 1
        request.opaque = self._opaque
        if self._access is not None:
            self._access.sign(request)
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

    def ask(self, call: Call[T], timeout: float = 3.0) -> T:
        """Request and answer. Raises ``BrokerError`` for a code that ``call`` does not accept."""
        return call.result(self.receive(self.send(call.request()), timeout), self.address)

    def runtime_info(self, timeout: float = 0.5) -> dict[str, str]:
        return self.ask(calls.runtime_info(), timeout)

    def broker_config(self, timeout: float = 3.0) -> dict[str, str]:
        return self.ask(calls.broker_config(), timeout)

    def all_offsets(self, timeout: float = 3.0) -> dict[str, dict[int, int]]:
        """``topic@group`` to queue id to offset."""
        return self.ask(calls.all_offsets(), timeout)

    def topic_stats(self, topic: str, timeout: float = 3.0) -> dict[int, tuple[int, int]]:
        """Queue id to (min, max) queue offset; empty when the topic is unknown."""
        call = calls.topic_stats(topic).otherwise(ResponseCode.TOPIC_NOT_EXIST, TopicStatsTable())
        table = self.ask(call, timeout).offset_table
        return {queue.queue_id: (it.min_offset, it.max_offset) for queue, it in table.items()}

    def topic_names(self) -> set[str]:
        """Names of all topics that the broker has."""
        return set(self.ask(calls.all_topic_config()).topic_config_table)

    def group_names(self) -> set[str]:
        """Names of all subscription groups that the broker has."""
        return set(self.ask(calls.all_groups()).subscription_group_table)

    def cluster_addresses(self) -> dict[str, dict[int, str]]:
        """At a name server: broker name to broker id to address."""
        table = self.ask(calls.cluster_info(), 1.0).broker_addr_table
        return {name: broker.broker_addrs for name, broker in table.items()}

    def route(self, topic: str) -> dict[str, dict[int, str]]:
        """At a name server: broker name to broker id to address; empty for no route."""
        call = calls.topic_route(topic).otherwise(ResponseCode.TOPIC_NOT_EXIST, TopicRouteData())
        brokers = self.ask(call, 1.0).broker_datas
        return {broker.broker_name: broker.broker_addrs for broker in brokers}

    def pull(self, topic: str, queue_id: int, offset: int, timeout: float = 5.0) -> Pulled:
        return self.ask(calls.pull_by_tools(topic, queue_id, offset), timeout)

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        self.ask(calls.update_offset(group, topic, queue_id, offset), 1.0)
