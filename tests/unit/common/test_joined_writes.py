"""Writes are joined: one at a time, with pauses between them."""

from __future__ import annotations

import asyncio
import itertools
import threading

import pytest

from failback.common import joined_writes
from failback.common.joined_writes import JoinedWrites, Write


class Recorder:
    """Remembers when writes began; ``gate`` holds them back."""

    def __init__(self, size: int = 1) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.begun: list[float] = []
        self.errors: list[Exception | None] = []
        self.error: Exception | None = None
        self._size = size
        self.writes = JoinedWrites(self._take)

    def _take(self) -> Write:
        self.begun.append(asyncio.get_running_loop().time())
        return Write(self._work, self.errors.append)

    def _work(self) -> int:
        self.gate.wait()
        if self.error is not None:
            raise self.error
        return self._size


async def test_what_changes_during_a_write_is_one_more_write() -> None:
    recorder = Recorder()
    recorder.writes.pause_seconds = 0.0
    recorder.gate.clear()
    for _ in range(20):
        recorder.writes.wake()
        await asyncio.sleep(0)
    recorder.gate.set()
    await recorder.writes.settled()
    assert len(recorder.begun) == 2
    assert recorder.writes.is_idle


async def test_no_write_begins_before_its_pause_is_over() -> None:
    recorder = Recorder()
    for _ in range(3):
        recorder.writes.wake()
        await asyncio.sleep(joined_writes.PAUSE_SECONDS / 2)
        recorder.writes.wake()
        await recorder.writes.settled()
    gaps = [after - before for before, after in itertools.pairwise(recorder.begun)]
    assert len(gaps) >= 3
    assert min(gaps) > 0.99 * joined_writes.PAUSE_SECONDS


async def test_much_that_was_written_makes_the_pause_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(joined_writes, "_BURST_BYTES", 1000)
    monkeypatch.setattr(joined_writes, "_BYTES_PER_SECOND", 10_000)
    recorder = Recorder(size=3000)
    recorder.writes.pause_seconds = 0.0
    for _ in range(3):
        recorder.writes.wake()
        await recorder.writes.settled()
    first, second, third = recorder.begun
    assert second - first > 0.19
    assert third - second > 0.28


async def test_an_error_is_told_and_the_next_change_is_written() -> None:
    recorder = Recorder()
    recorder.writes.pause_seconds = 0.0
    recorder.error = OSError("no room")
    recorder.writes.wake()
    await recorder.writes.settled()
    recorder.error = None
    recorder.writes.wake()
    await recorder.writes.settled()
    assert [str(error) for error in recorder.errors] == ["no room", "None"]
