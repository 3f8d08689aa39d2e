"""A blocking remoting server in a thread: answers what a test tells it, hangs up as it is told."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Any, Self

from failback.protocol.command import RemotingCommand
from failback.protocol.fastjson import dumps
from failback.protocol.frames import FrameReader

Answer = Callable[[RemotingCommand], RemotingCommand | None]


class FakeRemoting:
    """One listener on a loopback port. ``None`` as an answer means silence."""

    def __init__(self, answers: Mapping[int, Answer], *, port: int = 0) -> None:
        self.answers = dict(answers)
        self.requests: list[RemotingCommand] = []
        self.silent = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.settimeout(0.1)
        self._connections: list[socket.socket] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def hang_up(self, *, reset: bool = False) -> None:
        """Close every connection: with FIN, or with RST."""
        for connection in self._connections:
            if reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                if not reset:
                    connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._connections.clear()

    def close(self) -> None:
        """Refuse and hang up from now on, as a dead process does."""
        self._stop.set()
        with contextlib.suppress(OSError):  # it wakes who waits for the next connection
            socket.create_connection(self._listener.getsockname(), timeout=1).close()
        self._threads[0].join(5)  # after it no connection is added
        self._listener.close()
        self.hang_up()
        for thread in self._threads[1:]:
            thread.join(5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            self._connections.append(connection)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        reader = FrameReader()
        with contextlib.suppress(OSError):  # closed by the test, at any moment
            connection.settimeout(0.1)
            while not self._stop.is_set():
                try:
                    data = connection.recv(1 << 16)
                except TimeoutError:
                    continue
                if not data:
                    return
                reader.receive_data(data)
                while (frame := reader.next_frame()) is not None:
                    self._answer(connection, RemotingCommand.from_frame(frame))

    def _answer(self, connection: socket.socket, request: RemotingCommand) -> None:
        self.requests.append(request)
        if self.silent.is_set():
            return
        answer = self.answers.get(request.code)
        reply = answer(request) if answer else request.response(1, f"no answer to {request.code}")
        if reply is not None:
            connection.sendall(reply.encode())


class FakeBroker(FakeRemoting):
    """A broker's admin side over plain tables that a test fills."""

    def __init__(self, *, boot_ms: int = 1_000, broker_id: int = 0, port: int = 0) -> None:
        self.boot_ms = boot_ms
        self.version = "V4_9_7"
        self.config: dict[str, str] = {"brokerId": str(broker_id), "brokerName": "b"}
        self.offsets: dict[str, dict[int, int]] = {}
        self.queues: dict[str, dict[int, tuple[int, int]]] = {}
        self.delays: dict[int, int] = {}
        super().__init__(
            {
                15: self._commit,
                21: lambda r: self._body(
                    r, {"topicConfigTable": {t: {"topicName": t} for t in self.queues}}
                ),
                26: lambda r: r.response(
                    0, body="".join(f"{k}={v}\n" for k, v in self.config.items()).encode()
                ),
                28: lambda r: self._body(
                    r,
                    {
                        "table": {
                            "bootTimestamp": str(self.boot_ms),
                            "brokerVersionDesc": self.version,
                        }
                    },
                ),
                43: lambda r: self._body(r, {"offsetTable": self.offsets}),
                45: lambda r: self._body(r, {"offsetTable": self.delays}),
                202: self._stats,
            },
            port=port,
        )

    def _body(self, request: RemotingCommand, document: Any) -> RemotingCommand:
        return request.response(0, body=dumps(document))

    def _commit(self, request: RemotingCommand) -> RemotingCommand:
        ext = request.ext_fields or {}
        key = f"{ext['topic']}@{ext['consumerGroup']}"
        self.offsets.setdefault(key, {})[int(ext["queueId"])] = int(ext["commitOffset"])
        return request.response(0)

    def _stats(self, request: RemotingCommand) -> RemotingCommand:
        topic = (request.ext_fields or {})["topic"]
        if topic not in self.queues:
            return request.response(17, "no topic")
        entries = ",".join(
            f'{{"brokerName":"b","queueId":{queue},"topic":"{topic}"}}:'
            f'{{"lastUpdateTimestamp":0,"maxOffset":{high},"minOffset":{low}}}'
            for queue, (low, high) in self.queues[topic].items()
        )
        return request.response(0, body=f'{{"offsetTable":{{{entries}}}}}'.encode())


def lists(master: FakeBroker, slave: FakeBroker) -> None:
    """Let a master answer as a name server, too, which lists the pair."""
    pair = {
        "cluster": "c",
        "brokerName": "b",
        "brokerAddrs": {0: master.address, 1: slave.address},
    }
    body = dumps({"brokerAddrTable": {"b": pair}, "clusterAddrTable": {"c": ["b"]}})
    master.answers[106] = lambda request: request.response(0, body=body)
