"""Uploads repeated, reordered, cut, wrong, on a full disk and into a killed collector."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from failback.client.consumelog.schema import SCHEMA_ID
from failback.client.consumelog.upload.lake_files import ARROW_STREAM
from tests.support.analytics.collector_lab import (
    CollectorLab,
    Upload,
    check_lake,
    running_collector,
    uploads_of,
    write_log,
)
from tests.support.common.polling import SCALE

SENDERS = 4
SEGMENTS_PER_PROCESS = 25
# What one upload is, and how often. "full" limits the files of the collector while it lasts.
KINDS = {
    "plain": 40,
    "again": 22,
    "hash": 8,
    "truncated": 8,
    "cut": 8,
    "other": 6,
    "full": 4,
    "burst": 4,
}


class Storm:
    """Seeded uploads from several threads, while the collector is killed and started again."""

    def __init__(self, lab: CollectorLab, uploads: list[Upload], count: int, seed: int) -> None:
        self._lab = lab
        self._random = random.Random(seed)
        self._uploads = uploads
        self._left = self._orders(count)
        self._lock = threading.Lock()
        self._gate = threading.Lock()  # a collector on a full disk serves one sender at a time
        self.seen: Counter[tuple[str, int]] = Counter()
        self.conflicts: set[str] = set()
        self.errors: list[BaseException] = []

    def _orders(self, count: int) -> list[tuple[str, Upload]]:
        """Each segment at least once as it is, the rest drawn; all of it shuffled."""
        kinds = self._random.choices(list(KINDS), list(KINDS.values()), k=count)
        orders = [("plain", upload) for upload in self._uploads]
        orders += [(kind, self._random.choice(self._uploads)) for kind in kinds[len(orders) :]]
        self._random.shuffle(orders)
        return orders

    def run(self, kills: int) -> None:
        threads = [threading.Thread(target=self._send_all) for _ in range(SENDERS)]
        marks = sorted(self._random.sample(range(len(self._left)), kills), reverse=True)
        for thread in threads:
            thread.start()
        for mark in marks:
            while len(self._left) > mark and any(thread.is_alive() for thread in threads):
                time.sleep(0.001)
            self._lab.kill()
            with self._gate:  # it says on a file that it has started
                self._lab.start()
        for thread in threads:
            thread.join()
        assert self.errors == []

    def _send_all(self) -> None:
        try:
            while True:
                with self._lock:
                    if not self._left:
                        return
                    kind, upload = self._left.pop()
                self._send(kind, upload)
        except BaseException as error:
            self.errors.append(error)

    def _send(self, kind: str, upload: Upload) -> None:
        """Send until it is answered: a killed collector is asked again."""
        deadline = time.monotonic() + 240 * SCALE
        while True:
            try:
                status = getattr(self, f"_{kind}")(upload)
            except (OSError, EOFError):
                status = 0
            if status not in {0, 429, 503, 507} or (kind == "full" and status == 507):
                break
            assert time.monotonic() < deadline, f"{kind} of {upload.id} was never answered"
            time.sleep(0.05)
        with self._lock:
            self.seen[kind, status] += 1

    def _answer(self, upload: Upload, body: bytes | None = None, **headers: str) -> int:
        try:
            return self._lab.send(upload, body=body, **headers)[0]
        except (OSError, ValueError) as error:
            raise EOFError(str(error)) from error
        except Exception as error:
            if type(error).__module__ == "http.client":
                raise EOFError(str(error)) from error
            raise

    def _plain(self, upload: Upload) -> int:
        status = self._answer(upload)
        assert status in {200, 201, 429, 503, 507}, status
        return status

    _again = _plain

    def _burst(self, upload: Upload) -> int:
        return min(self._plain(upload) for _ in range(3))

    def _hash(self, upload: Upload) -> int:
        """The hash of something else."""
        status = self._answer(upload, X_Content_SHA256="0" * 64)
        assert status in {400, 429, 503, 507}, status
        return status

    def _truncated(self, upload: Upload) -> int:
        """Less than the hash says, announced as whole."""
        status = self._answer(upload, upload.body[: len(upload.body) * 2 // 3])
        assert status in {400, 429, 503, 507}, status
        return status

    def _cut(self, upload: Upload) -> int:
        """The connection ends before the body does."""
        head = (
            f"POST /v1/segments/{upload.id} HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {self._lab.token}\r\nContent-Type: {ARROW_STREAM}\r\n"
            f"X-Content-SHA256: {upload.sha256}\r\nX-Failback-Schema: {SCHEMA_ID}\r\n"
            f"Content-Length: {len(upload.body)}\r\n\r\n"
        )
        with socket.create_connection(("127.0.0.1", self._lab.port), 60 * SCALE) as connection:
            connection.sendall(head.encode() + upload.body[: len(upload.body) // 2])
        return -1

    def _other(self, upload: Upload) -> int:
        """Other content under the name: refused once the segment is there."""
        status = self._answer(upload)
        if status not in {200, 201}:
            return status
        body = upload.body[:-1] + bytes([upload.body[-1] ^ 1])
        changed = Upload(upload.id, upload.path, body, upload.table)
        status = self._answer(changed)
        assert status in {409, 429, 503, 507}, status
        if status == 409:
            with self._lock:
                self.conflicts.add(changed.sha256)
        return status

    def _full(self, upload: Upload) -> int:
        """No file may grow: stored before, or refused, never half."""
        with self._gate:
            try:
                self._lab.limit_files(900)
                status = self._answer(upload)
            finally:
                try:
                    self._lab.limit_files(None)
                except ProcessLookupError:
                    status = 0
        assert status in {0, 200, 201, 429, 503, 507}, status
        return status


def storm(folder: Path, *, count: int, segments: int, kills: int, seed: int) -> Counter[str]:
    """Run one storm and compare the lake with the truth; returns how often each answer came."""
    hot = folder / "hot"
    last, uploads, number = dict[int, int](), list[Upload](), 0
    while len(uploads) < segments:
        number += 1
        last[number] = write_log(hot / str(number), proc_no=number, deliveries=150)
        uploads += uploads_of(hot / str(number))
    with running_collector(folder / "lab") as lab:
        weather = Storm(lab, uploads, count, seed)
        weather.run(kills)
        check_lake(lab.lake, uploads)
        kept = {path.name.rpartition("-")[2] for path in lab.root.glob("quarantine/run=*/*")}
        assert kept == {sha256[:16] for sha256 in weather.conflicts}
        client = lab.client()
        assert client.close_run("lab", last).document == {"gaps": []}
        client.close()
        # Killed once more: what stands on the disk is what it knows.
        lab.kill()
        lab.start()
        check_lake(lab.lake, uploads)
        assert not list((lab.root / "incoming").iterdir())
    return Counter({f"{kind} {status}": times for (kind, status), times in weather.seen.items()})


def test_the_lake_is_the_truth_after_500_uploads(tmp_path: Path) -> None:
    seen = storm(tmp_path, count=500, segments=120, kills=4, seed=20260729)
    assert sum(seen.values()) == 500
    for answer in ("plain 201", "again 200", "hash 400", "truncated 400", "cut -1", "other 409"):
        assert seen[answer] > 0, seen


@pytest.mark.soak
def test_the_lake_is_the_truth_after_10000_uploads(tmp_path: Path) -> None:
    seen = storm(tmp_path, count=10_000, segments=2_500, kills=60, seed=7)
    assert sum(seen.values()) == 10_000
    print(dict(sorted(seen.items())))
