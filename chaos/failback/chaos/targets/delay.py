"""Hold packets back: ``python -m failback.chaos.targets.delay QUEUE MS`` in a pod's namespace.

The kernel hands packets to a queue (NFQUEUE), and gets each back when its time has come. It ends
with its standard input, so with its harness. Rules let packets pass while the queue has no reader.

    request   nlmsghdr(len, type 3 << 8 | kind, flags, seq, pid), nfgenmsg(family, version, queue)
              and attributes: length, number, value, padding to 4 bytes
    packet    kind 0; attribute 1 has its number      verdict   kind 1; attribute 2: 1, number
    config    kind 2; attribute 1: command bind, 2: copy no payload, 3: how many may wait
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from typing import Final

_NETFILTER: Final = 12
_SO_RCVBUFFORCE: Final = 33
_HEADER: Final = struct.Struct("=IHHII")
_REQUEST: Final = 1
_ACK: Final = 4
_BIND: Final = b"\x01\x00\x00\x02"
_ACCEPT: Final = 1
_MOST: Final = 65_536


def _message(kind: int, queue: int, attribute: int, value: bytes, flags: int = _REQUEST) -> bytes:
    body = struct.pack("=BBH", 0, 0, socket.htons(queue))
    body += struct.pack("=HH", 4 + len(value), attribute) + value + bytes(-len(value) % 4)
    return _HEADER.pack(_HEADER.size + len(body), 3 << 8 | kind, flags, 0, 0) + body


def _packets(data: bytes) -> Iterator[int]:
    """The numbers of the packets in one read."""
    start = 0
    while start < len(data):
        length, kind, *_ = _HEADER.unpack_from(data, start)
        if kind == 3 << 8:  # its first attribute has the number
            yield struct.unpack_from("!I", data, start + _HEADER.size + 8)[0]
        start += (length + 3) & ~3


def main(queue: int, seconds: float) -> None:
    """Hold every packet of a queue for so long."""
    kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)
    kernel.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 24)
    for attribute, value in (
        (1, _BIND),
        (2, struct.pack("!IB", 0, 1)),
        (3, struct.pack("!I", _MOST)),
    ):
        kernel.send(_message(2, queue, attribute, value, _REQUEST | _ACK))
        (error,) = struct.unpack_from("=i", kernel.recv(4096), _HEADER.size)
        if error:
            raise OSError(-error, f"queue {queue}")
    print("ready", flush=True)
    held: deque[tuple[float, int]] = deque()
    while True:
        left = max(0.0, held[0][0] - time.monotonic()) if held else None
        readable, _, _ = select.select([kernel, sys.stdin], [], [], left)
        if sys.stdin in readable:
            return
        if kernel in readable:
            due = time.monotonic() + seconds
            held.extend((due, number) for number in _packets(kernel.recv(1 << 16)))
        while held and held[0][0] <= time.monotonic():
            verdict = struct.pack("!II", _ACCEPT, held.popleft()[1])
            kernel.send(_message(1, queue, 2, verdict))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]) / 1000)
