"""Name server and brokers in memory, for tests of clients in virtual time.

They speak the real wire format through the loop's in-memory network, keep what a broker keeps
(queues, offsets, members), and do what tests tell them: die, come back with old offsets, answer a
code, answer nothing. Every request is recorded with its virtual time.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from failback.protocol.clients import ConsumerIdList, HeartbeatData
from failback.protocol.codes import PULL_COMMIT, PULL_SUSPEND, RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand, encode_pull_response_head
from failback.protocol.frames import FrameReader
from failback.protocol.headers import (
    ConsumerSendMsgBackRequestHeader,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    from_ext,
)
from failback.protocol.message import (
    decode_batch,
    decode_properties,
    decode_record,
    encode_record,
    offset_msg_id,
    pack_host,
)
from failback.protocol.route import BrokerData, QueueData, TopicRouteData
from tests.support.common.virtual_time import MemoryServer, MemoryTransport, network, now

LEVEL_SECONDS = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600)

EPOCH_MS = 1_700_000_000_000
"""Wall time at virtual time 0, as ``tests.support.common.virtual_time.LoopClock`` has it."""

Answer = RemotingCommand | None
Override = Callable[[RemotingCommand], Answer]


def wall_ms() -> int:
    return EPOCH_MS + round(now() * 1000)


@dataclass(frozen=True)
class Request:
    """One request as a peer received it."""

    time: float
    code: int
    ext: Mapping[str, str]
    body: bytes
    opaque: int
    is_oneway: bool


class _Connection(asyncio.Protocol):
    """The serving side of one connection."""

    def __init__(self, peer: FakePeer) -> None:
        self._peer = peer
        self._reader = FrameReader()
        self.transport: MemoryTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, MemoryTransport)
        self.transport = transport
        self._peer.connections.append(self)

    def data_received(self, data: bytes) -> None:
        self._reader.receive_data(data)
        while (frame := self._reader.next_frame()) is not None:
            self._peer.receive(self, RemotingCommand.from_frame(frame))

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._peer.connections:
            self._peer.connections.remove(self)
            self._peer.on_lost(self)

    def send(self, command: RemotingCommand) -> None:
        self.transport.write(command.encode())


class FakePeer:
    """What name server and broker have in common.

    Attributes:
        requests: Everything received, oldest first.
        overrides: Per request code what to answer instead; a function that returns ``None``
            answers nothing.
    """

    def __init__(self, addr: str) -> None:
        self.addr = addr
        self.requests: list[Request] = []
        self.overrides: dict[int, Override] = {}
        self.connections: list[_Connection] = []
        self._server: MemoryServer | None = None

    @property
    def address(self) -> tuple[str, int]:
        host, port = self.addr.split(":")
        return host, int(port)

    def start(self) -> None:
        self._server = network().listen(lambda: _Connection(self), self.address)

    def stop(self, *, reset: bool = False) -> None:
        """End as a killed process does: the kernel closes with FIN, or with RST."""
        if self._server is not None:
            self._server.close()
            self._server = None
        connections, self.connections = self.connections, []
        for connection in connections:
            if reset:
                connection.transport.reset()
            else:
                connection.transport.close()

    def of(self, code: RequestCode) -> list[Request]:
        """The requests with this code."""
        return [request for request in self.requests if request.code == code]

    def refuse(self, code: RequestCode, answer: int, remark: str = "refused") -> None:
        """Answer requests with this code by an error."""
        self.overrides[code] = lambda request: request.response(answer, remark)

    def ignore(self, code: RequestCode) -> None:
        """Answer nothing to requests with this code."""
        self.overrides[code] = lambda request: None

    def receive(self, connection: _Connection, request: RemotingCommand) -> None:
        ext = request.ext_fields or {}
        self.requests.append(
            Request(now(), request.code, ext, request.body, request.opaque, request.is_oneway)
        )
        override = self.overrides.get(request.code)
        answer = override(request) if override else self.serve(connection, request)
        if answer is not None and not request.is_oneway:
            connection.send(answer)

    def serve(self, connection: _Connection, request: RemotingCommand) -> Answer:
        raise AssertionError(f"no answer for request code {request.code}")

    def on_lost(self, connection: _Connection) -> None:
        """A connection ended."""


class FakeNameServer(FakePeer):
    """Knows the brokers that are registered now, and the topics of the cluster."""

    def __init__(self, addr: str) -> None:
        super().__init__(addr)
        self.registered: dict[str, dict[int, str]] = {}
        self.topics: dict[str, dict[str, tuple[int, int, int]]] = {}
        """Topic to broker name to (read queues, write queues, perm)."""

    def route(self, topic: str) -> TopicRouteData | None:
        brokers = {
            name: queues
            for name, queues in self.topics.get(topic, {}).items()
            if self.registered.get(name)
        }
        if not brokers:
            return None
        return TopicRouteData(
            [QueueData(name, *queues) for name, queues in brokers.items()],
            [BrokerData("c", name, dict(self.registered[name])) for name in brokers],
        )

    def serve(self, connection: _Connection, request: RemotingCommand) -> Answer:
        if request.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return None  # the real one answers nothing to codes that it does not know
        route = self.route((request.ext_fields or {})["topic"])
        if route is None:
            return request.response(ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
        return request.response(ResponseCode.SUCCESS, body=route.to_json())


@dataclass
class _Group:
    """What a broker knows of a consumer group; gone with the process."""

    members: dict[str, _Connection] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)


@dataclass
class _Held:
    """A pull that waits for messages."""

    connection: _Connection
    request: RemotingCommand
    header: PullMessageRequestHeader
    timer: asyncio.TimerHandle


class Log:
    """The queues of a broker pair: records by topic and queue. Slaves share their master's."""

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], list[bytes]] = {}
        self.physical: dict[int, bytes] = {}
        self.end = 0

    def queue(self, topic: str, queue_id: int) -> list[bytes]:
        return self.queues.setdefault((topic, queue_id), [])


class FakeBroker(FakePeer):
    """One broker process.

    Attributes:
        offsets: (group, topic, queue id) to the offset; a broker stores whatever comes last.
        suggest: What pull answers say for ``suggestWhichBrokerId``.
        visible_end: For a slave that is behind: queues end here for pulls.
        notifies: Whether members are told of changes (40).
    """

    def __init__(
        self, cluster: FakeCluster, name: str, broker_id: int, addr: str, log: Log
    ) -> None:
        super().__init__(addr)
        self.name = name
        self.broker_id = broker_id
        self.log = log
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.commits: list[tuple[float, str, tuple[str, str, int], int]] = []
        self.groups: dict[str, _Group] = {}
        self.suggest = 0
        self.visible_end: int | None = None
        self.notifies = True
        self.min_offset = 0
        self._cluster = cluster
        self._held: list[_Held] = []

    # --- what tests do ----------------------------------------------------------------------

    def boot(self, offsets: Mapping[tuple[str, str, int], int] | None = None) -> None:
        """Start with empty member lists and the offsets of a file, and register."""
        self.groups.clear()
        if offsets is not None:
            self.offsets = dict(offsets)
        self.start()
        self._cluster.name_server.registered.setdefault(self.name, {})[self.broker_id] = self.addr

    def kill(self, *, reset: bool = False) -> None:
        """Die; the name server sees the connection close and forgets the address."""
        for held in self._held:
            held.timer.cancel()
        self._held.clear()
        self.groups.clear()
        self.stop(reset=reset)
        registered = self._cluster.name_server.registered.get(self.name, {})
        registered.pop(self.broker_id, None)

    def members(self, group: str) -> set[str]:
        return set(self.groups[group].members) if group in self.groups else set()

    def offset(self, group: str, topic: str, queue_id: int) -> int | None:
        return self.offsets.get((group, topic, queue_id))

    def store(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: Mapping[str, str] | None = None,
        *,
        reconsume_times: int = 0,
        flag: int = 0,
        sys_flag: int = 0,
    ) -> tuple[str, int]:
        """Append a message; returns its offset id and queue offset. Wakes held pulls."""
        queue = self.log.queue(topic, queue_id)
        host = pack_host(*self.address)
        physical = self.log.end
        record = encode_record(
            topic=topic,
            queue_id=queue_id,
            body=body,
            properties=properties or {},
            queue_offset=len(queue),
            physical_offset=physical,
            born_timestamp=wall_ms(),
            born_host=host,
            store_timestamp=wall_ms(),
            store_host=host,
            flag=flag,
            sys_flag=sys_flag,
            reconsume_times=reconsume_times,
        )
        queue.append(record)
        self.log.physical[physical] = record
        self.log.end += len(record)
        for broker in self._cluster.brokers:
            if broker.log is self.log:
                broker.wake(topic, queue_id)
        return offset_msg_id(host, physical), len(queue) - 1

    def wake(self, topic: str, queue_id: int) -> None:
        """End the held pulls of a queue with what is there now."""
        for held in [
            h for h in self._held if (h.header.topic, h.header.queue_id) == (topic, queue_id)
        ]:
            self._end_hold(held)

    def push(self, client_id: str, command: RemotingCommand) -> None:
        """Send a request to a member of any group."""
        for group in self.groups.values():
            if client_id in group.members:
                group.members[client_id].send(command)
                return
        raise AssertionError(f"{client_id} is not connected")

    # --- serving ----------------------------------------------------------------------------

    def serve(self, connection: _Connection, request: RemotingCommand) -> Answer:
        if request.is_response:
            return None
        serve = _SERVE.get(request.code)
        assert serve is not None, f"no answer for request code {request.code}"
        return serve(self, connection, request)

    def on_lost(self, connection: _Connection) -> None:
        self._held = [held for held in self._held if held.connection is not connection]
        for name, group in self.groups.items():
            gone = [client for client, c in group.members.items() if c is connection]
            for client in gone:
                del group.members[client]
            if gone:
                self._notify(name)

    def _notify(self, group: str) -> None:
        if not self.notifies:
            return
        for member in self.groups[group].members.values():
            command = RemotingCommand.request(
                RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, oneway=True, ext={"consumerGroup": group}
            )
            member.send(command)

    def _heartbeat(self, connection: _Connection, request: RemotingCommand) -> Answer:
        data = HeartbeatData.from_json(request.body)
        for consumer in data.consumer_data_set:
            group = self.groups.setdefault(consumer.group_name, _Group())
            is_new = data.client_id not in group.members
            group.members[data.client_id] = connection
            topics = {s.topic for s in consumer.subscription_data_set}
            is_new |= topics != set(group.versions)
            group.versions = {
                s.topic: max(s.sub_version, group.versions.get(s.topic, 0))
                for s in consumer.subscription_data_set
            }
            if is_new:
                self._notify(consumer.group_name)
        return request.response(ResponseCode.SUCCESS)

    def _unregister(self, connection: _Connection, request: RemotingCommand) -> Answer:
        ext = request.ext_fields or {}
        name = ext.get("consumerGroup")
        if name in self.groups and self.groups[name].members.pop(ext["clientID"], False):
            self._notify(name)
        return request.response(ResponseCode.SUCCESS)

    def _consumer_list(self, connection: _Connection, request: RemotingCommand) -> Answer:
        members = self.members((request.ext_fields or {})["consumerGroup"])
        if not members:
            return request.response(ResponseCode.SYSTEM_ERROR, "no consumer for this group")
        body = ConsumerIdList(list(members)).to_json()
        return request.response(ResponseCode.SUCCESS, body=body)

    def _query_offset(self, connection: _Connection, request: RemotingCommand) -> Answer:
        stored = self.offsets.get(_offset_key(request), -1)
        if stored < 0 and self.min_offset > 0:
            return request.response(ResponseCode.QUERY_NOT_FOUND, "Not found")
        return _ok(request, offset=max(stored, 0))

    def _update_offset(self, connection: _Connection, request: RemotingCommand) -> Answer:
        offset = int((request.ext_fields or {})["commitOffset"])
        self._commit("COMMIT", _offset_key(request), offset)
        return request.response(ResponseCode.SUCCESS)

    def _commit(self, kind: str, key: tuple[str, str, int], offset: int) -> None:
        self.offsets[key] = offset
        self.commits.append((now(), kind, key, offset))

    def _max_offset(self, connection: _Connection, request: RemotingCommand) -> Answer:
        return _ok(request, offset=len(self.log.queue(*_queue_of(request))))

    def _search_offset(self, connection: _Connection, request: RemotingCommand) -> Answer:
        timestamp = int((request.ext_fields or {})["timestamp"])
        records = self.log.queue(*_queue_of(request))
        times = [decode_record(record)[0].store_timestamp for record in records]
        return _ok(request, offset=sum(time < timestamp for time in times))

    def _send(self, connection: _Connection, request: RemotingCommand) -> Answer:
        header = SendMessageRequestHeader.from_v2(
            from_ext(SendMessageRequestHeaderV2, request.ext_fields)
        )
        if header.batch:
            parts = [
                (part.body, decode_properties(part.properties))
                for part in decode_batch(request.body)
            ]
        else:
            parts = [(request.body, decode_properties(header.properties or ""))]
        stored = [self._store_sent(header, body, properties) for body, properties in parts]
        answer = SendMessageResponseHeader(
            ",".join(msg_id for msg_id, _ in stored), header.queue_id, stored[0][1]
        )
        return request.response(ResponseCode.SUCCESS, header=answer)

    def _store_sent(
        self, header: SendMessageRequestHeader, body: bytes, properties: dict[str, str]
    ) -> tuple[str, int]:
        level = int(properties.get("DELAY", 0))

        def store() -> tuple[str, int]:
            return self.store(
                header.topic,
                header.queue_id,
                body,
                properties,
                reconsume_times=header.reconsume_times or 0,
                flag=header.flag,
                sys_flag=header.sys_flag,
            )

        if level == 0:
            return store()
        asyncio.get_running_loop().call_later(LEVEL_SECONDS[level - 1], store)
        return offset_msg_id(pack_host(*self.address), 0), 0

    def _send_back(self, connection: _Connection, request: RemotingCommand) -> Answer:
        header = from_ext(ConsumerSendMsgBackRequestHeader, request.ext_fields)
        record = self.log.physical.get(header.offset)
        if record is None:
            return request.response(ResponseCode.SYSTEM_ERROR, "look message by offset failed")
        message = decode_record(record)[0]
        properties = dict(message.properties)
        properties.setdefault("RETRY_TOPIC", message.topic)
        properties.setdefault("ORIGIN_MESSAGE_ID", message.offset_msg_id)
        times = message.reconsume_times
        if header.delay_level < 0 or times >= (header.max_reconsume_times or 16):
            self.store(f"%DLQ%{header.group}", 0, message.body, properties)
            return request.response(ResponseCode.SUCCESS)
        level = header.delay_level or 3 + times
        asyncio.get_running_loop().call_later(
            LEVEL_SECONDS[level - 1],
            lambda: self.store(
                f"%RETRY%{header.group}", 0, message.body, properties, reconsume_times=times + 1
            ),
        )
        return request.response(ResponseCode.SUCCESS)

    def _pull(self, connection: _Connection, request: RemotingCommand) -> Answer:
        header = from_ext(PullMessageRequestHeader, request.ext_fields)
        group = self.groups.get(header.consumer_group)
        if group is None or not group.members or header.topic not in group.versions:
            return request.response(ResponseCode.SUBSCRIPTION_NOT_EXIST, "no subscription")
        if group.versions[header.topic] < header.sub_version:
            return request.response(ResponseCode.SUBSCRIPTION_NOT_LATEST, "old subscription")
        if header.sys_flag & PULL_COMMIT and self.broker_id == 0:
            key = (header.consumer_group, header.topic, header.queue_id)
            self._commit("PULL", key, header.commit_offset)
        code, next_offset, body = self._read(header)
        if code == ResponseCode.PULL_NOT_FOUND and header.sys_flag & PULL_SUSPEND:
            loop = asyncio.get_running_loop()
            held = _Held(connection, request, header, loop.call_later(0, lambda: None))
            held.timer = loop.call_later(header.suspend_timeout_millis / 1000, self._end_hold, held)
            self._held.append(held)
            return None
        self._answer_pull(connection, request, code, next_offset, body)
        return None

    def _end_hold(self, held: _Held) -> None:
        if held in self._held:
            self._held.remove(held)
            held.timer.cancel()
            self._answer_pull(held.connection, held.request, *self._read(held.header))

    def _read(self, header: PullMessageRequestHeader) -> tuple[int, int, bytes]:
        records = self.log.queue(header.topic, header.queue_id)
        end = len(records) if self.visible_end is None else min(self.visible_end, len(records))
        offset = header.queue_offset
        if offset < self.min_offset or offset > end:
            if self.broker_id != 0:
                return ResponseCode.PULL_RETRY_IMMEDIATELY, offset, b""
            moved = self.min_offset if offset < self.min_offset else end
            return ResponseCode.PULL_OFFSET_MOVED, moved, b""
        found = records[offset : min(end, offset + min(header.max_msg_nums, 32))]
        if not found:
            return ResponseCode.PULL_NOT_FOUND, offset, b""
        return ResponseCode.SUCCESS, offset + len(found), b"".join(found)

    def _answer_pull(
        self,
        connection: _Connection,
        request: RemotingCommand,
        code: int,
        next_offset: int,
        body: bytes,
    ) -> None:
        ext = request.ext_fields or {}
        end = len(self.log.queue(ext["topic"], int(ext["queueId"])))
        connection.transport.write(
            encode_pull_response_head(
                request.opaque,
                code,
                b"",
                suggest_which_broker_id=self.suggest,
                next_begin_offset=next_offset,
                min_offset=self.min_offset,
                max_offset=end,
                body_bytes=len(body),
            )
            + body
        )


_Serve = Callable[[FakeBroker, _Connection, RemotingCommand], Answer]
_SERVE: dict[int, _Serve] = {
    RequestCode.HEART_BEAT: FakeBroker._heartbeat,
    RequestCode.UNREGISTER_CLIENT: FakeBroker._unregister,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: FakeBroker._consumer_list,
    RequestCode.QUERY_CONSUMER_OFFSET: FakeBroker._query_offset,
    RequestCode.UPDATE_CONSUMER_OFFSET: FakeBroker._update_offset,
    RequestCode.GET_MAX_OFFSET: FakeBroker._max_offset,
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: FakeBroker._search_offset,
    RequestCode.SEND_MESSAGE_V2: FakeBroker._send,
    RequestCode.SEND_BATCH_MESSAGE: FakeBroker._send,
    RequestCode.CONSUMER_SEND_MSG_BACK: FakeBroker._send_back,
    RequestCode.PULL_MESSAGE: FakeBroker._pull,
}


class FakeCluster:
    """One name server and the brokers a test adds. Make it inside a virtual loop."""

    def __init__(self) -> None:
        self.name_server = FakeNameServer("10.9.0.1:9876")
        self.name_server.start()
        self.brokers: list[FakeBroker] = []
        self._next_host = 1

    def add_pair(self, name: str, slaves: int = 0) -> list[FakeBroker]:
        """Boot a master (id 0) and its slaves; they share one log."""
        log = Log()
        added = []
        for broker_id in range(slaves + 1):
            addr = f"10.0.0.{self._next_host}:10911"
            self._next_host += 1
            broker = FakeBroker(self, name, broker_id, addr, log)
            broker.boot()
            added.append(broker)
        self.brokers += added
        return added

    def add_topic(
        self, topic: str, brokers: Iterable[str], queues: int = 4, *, perm: int = 6
    ) -> None:
        self.name_server.topics[topic] = dict.fromkeys(brokers, (queues, queues, perm))

    def add_group(self, group: str, brokers: Iterable[str]) -> None:
        """Make the retry topic that a heartbeat would make."""
        self.add_topic(f"%RETRY%{group}", brokers, 1)

    def fill(self, broker: FakeBroker, topic: str, queue_id: int, count: int) -> None:
        """Store ``count`` messages whose bodies are ``topic/queue/number``."""
        start = len(broker.log.queue(topic, queue_id))
        for number in range(start, start + count):
            body = f"{topic}/{queue_id}/{number}".encode()
            broker.store(topic, queue_id, body, {"UNIQ_KEY": f"{zlib.crc32(body):032X}"})


def _ok(request: RemotingCommand, **ext: object) -> RemotingCommand:
    fields = {name: str(value) for name, value in ext.items()}
    return request.response(ResponseCode.SUCCESS, ext=fields)


def _offset_key(request: RemotingCommand) -> tuple[str, str, int]:
    ext: Any = request.ext_fields
    return ext["consumerGroup"], ext["topic"], int(ext["queueId"])


def _queue_of(request: RemotingCommand) -> tuple[str, int]:
    ext: Any = request.ext_fields
    return ext["topic"], int(ext["queueId"])
