"""A lean producer process for benchmarks: N outstanding SEND_MESSAGE_V2 requests per connection.

Runs as a process of its own (``python -m tests.benchmarks.loadgen``), speaks plain remoting frames,
and works against any broker of the 4.9 protocol, so that both opponents get the very same load.
Prints one JSON line: messages, seconds, errors and latency percentiles in ms.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import ssl
import struct
import sys
import time
from typing import cast

from failback.client.remoting.guarded.signing import AccessKey, sign
from failback.protocol.command import RemotingCommand

FIRST_OPAQUE = 1_000_000_000  # fixed width, so that frames differ in the digits only


class SendLoop(asyncio.Protocol):
    """Keeps ``outstanding`` sends in flight until the deadline, then drains."""

    def __init__(
        self, topic: str, body: bytes, outstanding: int, queues: int, key: AccessKey | None = None
    ) -> None:
        self._frames = [_split_frame(topic, body, queue, key) for queue in range(queues)]
        self._outstanding = outstanding
        self._buffer = b""
        self._next_opaque = FIRST_OPAQUE
        self._sent_at: dict[int, float] = {}
        self._transport: asyncio.Transport | None = None
        self.deadline = 0.0
        self.latencies: list[float] = []
        self.errors = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none by inheritance, only by what they offer.
        self._transport = cast(asyncio.Transport, transport)

    def start(self, deadline: float) -> None:
        self.deadline = deadline
        self._send(self._outstanding)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer + data if self._buffer else data
        position, answered, now = 0, 0, time.perf_counter()
        while len(buffer) - position >= 8:
            (length,) = struct.unpack_from(">i", buffer, position)
            if len(buffer) - position < 4 + length:
                break
            header_bytes = int.from_bytes(buffer[position + 5 : position + 8], "big")
            header = json.loads(buffer[position + 8 : position + 8 + header_bytes])
            self.latencies.append(now - self._sent_at.pop(header["opaque"]))
            self.errors += header["code"] != 0
            answered += 1
            position += 4 + length
        self._buffer = buffer[position:]
        if now < self.deadline:
            self._send(answered)
        elif not self._sent_at and not self.done.done():
            self.done.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(error or ConnectionError("the broker closed the connection"))

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def _send(self, count: int) -> None:
        assert self._transport is not None
        now, out = time.perf_counter(), []
        for _ in range(count):
            opaque = self._next_opaque
            self._next_opaque += 1
            head, tail = self._frames[opaque % len(self._frames)]
            out += [head, b"%d" % opaque, tail]
            self._sent_at[opaque] = now
        self._transport.write(b"".join(out))


def _split_frame(
    topic: str, body: bytes, queue_id: int, key: AccessKey | None = None
) -> tuple[bytes, bytes]:
    """Return what is before and after the ten digits of the opaque, which no signature covers."""
    fields = {
        "a": "bench",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": str(int(time.time() * 1000)),
        "h": "0",
        "i": "UNIQ_KEY\x017F00000110920000000000000000002A\x02WAIT\x01true",
        "j": "0",
        "k": "false",
        "m": "false",
    }
    if key is not None:
        request = RemotingCommand.request(310, ext=fields, body=body)
        sign(request, key)
        fields = request.ext_fields or {}
    command = {"code": 310, "extFields": fields, "flag": 0, "language": "JAVA"}
    text = json.dumps(
        {**command, "opaque": FIRST_OPAQUE, "serializeTypeCurrentRPC": "JSON", "version": 409},
        separators=(",", ":"),
    ).encode()
    head, tail = text.split(b"%d" % FIRST_OPAQUE)
    prefix = struct.pack(">ii", 4 + len(text) + len(body), len(text))
    return prefix + head, tail + body


async def run(options: argparse.Namespace) -> dict[str, float]:
    host, port = options.address.rsplit(":", 1)
    loop = asyncio.get_running_loop()
    body = os.urandom(options.body_bytes)
    loops = []
    key = AccessKey(*options.key.split(":")) if options.key else None
    for _ in range(options.connections):
        _, protocol = await loop.create_connection(
            lambda: SendLoop(options.topic, body, options.outstanding, options.queues, key),
            host,
            int(port),
            ssl=ssl.create_default_context(cafile=options.ca) if options.ca else None,
        )
        loops.append(protocol)
    started = time.perf_counter()
    for protocol in loops:
        protocol.start(started + options.seconds)
    done = asyncio.gather(*(protocol.done for protocol in loops))
    await asyncio.wait_for(done, options.seconds + 30)
    elapsed = time.perf_counter() - started
    for protocol in loops:
        protocol.close()
    ordered = sorted(latency for protocol in loops for latency in protocol.latencies)
    errors = sum(protocol.errors for protocol in loops)
    percentiles = {
        f"p{name}_ms": 1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)]
        for name, share in (("50", 0.5), ("99", 0.99), ("999", 0.999))
    }
    return {"messages": len(ordered), "seconds": elapsed, "errors": errors, **percentiles}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--topic", default="Bench")
    parser.add_argument("--outstanding", type=int, default=16)
    parser.add_argument("--connections", type=int, default=1)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--key", default="", help="signs the requests; ACCESS_KEY:SECRET_KEY")
    parser.add_argument("--ca", default="", help="speaks TLS; file with the CA of the broker")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    try:
        import uvloop
    except ImportError:
        result = asyncio.run(run(options))
    else:
        result = uvloop.run(run(options))
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
