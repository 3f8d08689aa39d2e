"""Loopback addresses for pods: every node on this machine has a range of its own."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

_SECOND_BYTES: Final = (77, *range(128, 256))
_NETWORKS: Final = range(1, 255)
_FIRST, _LAST = 2, 254


class Range:
    """``127.77.N.2`` to ``127.77.N.254``, then the same of ``127.128.N`` and so on.

    N is held by a lock until the process ends, so that two nodes never share an address. The
    node's own address is ``127.77.N.1``.
    """

    def __init__(self) -> None:
        self._lock, self.number = _take()
        self.node = f"127.{_SECOND_BYTES[0]}.{self.number}.1"
        self._used: set[str] = set()
        self._next = self._sequence()

    def allocate(self) -> str:
        """Return an address that no pod has now; one that was given up comes last again."""
        for _ in range(len(_SECOND_BYTES) * _LAST):
            address = next(self._next)
            if address not in self._used:
                self._used.add(address)
                return address
        raise RuntimeError("no address is left")

    def release(self, address: str) -> None:
        self._used.discard(address)

    def _sequence(self) -> Iterator[str]:
        while True:
            for second in _SECOND_BYTES:
                for last in range(_FIRST, _LAST + 1):
                    yield f"127.{second}.{self.number}.{last}"


def _take() -> tuple[IO[str], int]:
    folder = Path(tempfile.gettempdir()) / f"failback-kube-lab-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    for number in _NETWORKS:
        handle = (folder / f"network-{number}.lock").open("a")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            continue
        return handle, number
    raise RuntimeError("every network of 127.77 is taken")
