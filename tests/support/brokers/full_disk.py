"""A small disk of its own for a broker's store, that a test fills and empties."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from failback.client.remoting.connection import RemotingClient
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import RemotingError
from failback.protocol.message import decode_records
from tests.support.brokers.broker_lab import pull_header, send_header
from tests.support.common.polling import SCALE

DISK_BYTES = 48 << 20
BODY_BYTES = 64 << 10


@dataclass
class SmallDisk:
    """A file system in memory, mounted at ``path``."""

    path: Path

    @property
    def free_bytes(self) -> int:
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize

    def fill(self, left_bytes: int) -> None:
        """Take all of it but ``left_bytes``, whoever else is writing meanwhile."""
        with (self.path / "filler").open("ab") as filler:
            while (more := self.free_bytes - left_bytes) > 0:
                try:
                    os.posix_fallocate(filler.fileno(), os.fstat(filler.fileno()).st_size, more)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def make_room(self) -> None:
        (self.path / "filler").unlink()


@contextmanager
def small_disk(path: Path, size: int = DISK_BYTES) -> Iterator[SmallDisk]:
    """Mount a disk at ``path``; skip the test where nobody may."""
    path.mkdir(parents=True)
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(["mount", *options], check=False).returncode:
        pytest.skip("a disk of its own needs root and the right to mount")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


@dataclass
class Peer:
    """One client of a broker; remembers what was acknowledged."""

    client: RemotingClient
    address: str
    acknowledged: list[bytes] = field(default_factory=list)
    _number: int = 0

    async def send(
        self, size: int = BODY_BYTES, timeout_ms: float = 3000, queue_id: int = 0
    ) -> RemotingCommand:
        """Send the next message; the answer may be a refusal.

        Raises:
            RemotingError: There was no answer.
        """
        self._number += 1
        body = f"{self._number:08d}".encode().ljust(size, b".")
        request = RemotingCommand.request(
            RequestCode.SEND_MESSAGE_V2, send_header(queue_id=queue_id), body
        )
        answer = await self.client.invoke(self.address, request, timeout_ms * SCALE)
        if answer.code == 0:
            self.acknowledged.append(body[:8])
        return answer

    async def send_until_refused(self, most: int = 2000) -> RemotingCommand | RemotingError:
        """Return the refusal, or how the first send failed that got none."""
        for _ in range(most):
            try:
                answer = await self.send()
            except RemotingError as error:
                return error
            if answer.code:
                return answer
        raise AssertionError(f"{most} messages were taken on a full disk")

    async def seconds_until_taken(self, most_seconds: float) -> float:
        """Send until a message is taken; return how long that took."""
        began = time.monotonic()
        while time.monotonic() < began + most_seconds * SCALE:
            try:
                if (await self.send()).code == 0:
                    return time.monotonic() - began
            except RemotingError:
                pass
        raise AssertionError(f"nothing is taken {most_seconds} s after there is room")

    async def pull(self, offset: int, queue_id: int = 0) -> RemotingCommand:
        """Pull from an offset; the answer may be a refusal."""
        header = pull_header(queue_offset=offset, queue_id=queue_id)
        request = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
        return await self.client.invoke(self.address, request, 10_000 * SCALE)

    async def pull_all(self, queue_id: int = 0) -> list[bytes]:
        """Return the beginnings of all messages of the queue, in its order."""
        found: list[bytes] = []
        while True:
            answer = await self.pull(len(found), queue_id)
            if answer.code:
                return found
            found += [message.body[:8] for message in decode_records(answer.body)]

    async def commit(self, admin: AdminClient, offset: int) -> bool:
        """Commit an offset and read it again."""
        await admin.update_offset(self.address, "CG", "TopicTest", 0, offset)
        return await admin.query_offset(self.address, "CG", "TopicTest", 0) == offset
