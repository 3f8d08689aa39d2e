"""A commit log in memory, for tests of replication without files."""

from __future__ import annotations

from collections.abc import Callable

from failback.protocol.errors import StoreError


class FakeLog:
    """Bytes from ``start`` on, in imaginary files of ``file_bytes``; satisfies ``HaStore``."""

    def __init__(self, file_bytes: int, *, start: int = 0, data: bytes = b"") -> None:
        self.file_bytes = file_bytes
        self.start = start
        self.data = bytearray(data)
        self.appends: list[tuple[int, int]] = []
        self.full_at: int | None = None
        self.behind_bytes = 0
        self.stuck_at: int | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def max_physical_offset(self) -> int:
        return self.start + len(self.data) if self.data else 0

    def dispatch_behind_bytes(self) -> int:
        return self.behind_bytes

    def dispatch_until_stuck(self) -> int | None:
        return self.stuck_at

    def read_raw(self, physical_offset: int, max_bytes: int) -> memoryview:
        file_end = physical_offset - physical_offset % self.file_bytes + self.file_bytes
        end = min(self.max_physical_offset, physical_offset + max_bytes, file_end)
        if physical_offset < self.start or end <= physical_offset:
            return memoryview(b"")
        return memoryview(bytes(self.data[physical_offset - self.start : end - self.start]))

    def append_raw(self, physical_offset: int, data: bytes | memoryview) -> None:
        if self.full_at is not None and len(self.data) + len(data) > self.full_at:
            raise StoreError("no space left on device")
        if not self.data:
            self.start = physical_offset - physical_offset % self.file_bytes
            self.data = bytearray(physical_offset - self.start)
        assert physical_offset == self.start + len(self.data), "a hole in the log"
        within = physical_offset % self.file_bytes
        assert within + len(data) <= self.file_bytes, "an append across files"
        self.data += data
        self.appends.append((physical_offset, len(data)))

    def add_append_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def put(self, data: bytes) -> int:
        """Append as a producer's send would; return the end."""
        self.data += data
        for listener in self._listeners:
            listener()
        return self.max_physical_offset
