"""What the store costs: µs per record appended, read and copied by a slave, MB/s recovered.

Run ``python tests/benchmarks/bench_store.py``. Beside each figure stands its ratio to a
calibration loop of the same size (pack the 88 fixed bytes, CRC of the body, join), so that runs
on different machines can be compared. Writes a few hundred MB to a temporary directory.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import struct
import sys
import tempfile
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "broker-image"))

from failback.broker.native import kernels  # noqa: E402
from failback.broker.store.config import StoreConfig  # noqa: E402
from failback.broker.store.message_store import MessageStore  # noqa: E402
from failback.protocol.message import (  # noqa: E402
    BatchElement,
    decode_batch,
    encode_batch,
    pack_host,
    tags_code,
)

HEAD = struct.Struct(">iIIiiqqiq8sq8siqi")
HOST = pack_host("127.0.0.1", 10911)
TOPIC = b"BenchmarkTopic"
PROPERTIES = b"UNIQ_KEY\x017F00000100002A9F0000000000000000\x02TAGS\x01TagA\x02CLUSTER\x01bench"
BATCH_PROPERTIES = b"CLUSTER\x01bench\x02WAIT\x01true"
TAG_A = tags_code("TagA")


def calibration(body: bytes, count: int) -> float:
    """Return µs per record of the least that any store of this format must do."""
    topic, length = bytes((len(TOPIC),)) + TOPIC, struct.pack(">h", len(PROPERTIES))
    crc32, pack = zlib.crc32, HEAD.pack
    began = time.perf_counter()
    for number in range(count):
        crc = crc32(body) & 0x7FFFFFFF
        head = pack(1, 2, crc, 3, 0, number, number, 0, 1, HOST, 2, HOST, 0, 0, len(body))
        b"".join((head, body, topic, length, PROPERTIES))
    return (time.perf_counter() - began) / count * 1e6


def append(store: MessageStore, body: bytes, count: int, per_commit: int) -> None:
    done = 0
    while done < count:
        for number in range(per_commit):
            store.append(
                topic=TOPIC,
                queue_id=number & 3,
                flag=0,
                sys_flag=0,
                born_timestamp=1_700_000_000_000,
                born_host=HOST,
                reconsume_times=0,
                body=body,
                properties=PROPERTIES,
                tags_code=TAG_A,
            )
        store.commit_pending()
        done += per_commit


def append_batches(store: MessageStore, body: bytes, count: int) -> None:
    elements = [BatchElement(0, body, PROPERTIES)] * 32
    for _ in range(count // 32):
        store.append_batch(
            topic=TOPIC,
            queue_id=0,
            sys_flag=0,
            born_timestamp=1_700_000_000_000,
            born_host=HOST,
            reconsume_times=0,
            elements=elements,
            batch_properties=b"CLUSTER\x01bench",
        )
        store.commit_pending()


def append_encoded(store: MessageStore, body: bytes, count: int, *, pure: bool) -> None:
    """Store batches as producers send them; with the kernels, where there are any, unless pure."""
    data = encode_batch([BatchElement(0, body, PROPERTIES)] * 32)
    shared: dict[str, Any] = {"topic": TOPIC, "queue_id": 0, "sys_flag": 0, "reconsume_times": 0}
    shared |= {"born_timestamp": 1_700_000_000_000, "born_host": HOST}
    shared |= {"batch_properties": BATCH_PROPERTIES}
    for _ in range(count // 32):
        if pure:
            store.append_batch(elements=decode_batch(data), **shared)
        else:
            store.append_encoded_batch(body=data, **shared)
        store.commit_pending()


def run_kernel(module: ModuleType, body: bytes, count: int) -> float:
    """Return µs per record of the two kernel calls for a batch, nothing around them."""
    data = encode_batch([BatchElement(0, body, PROPERTIES)] * 32)
    piece, head = bytes((len(TOPIC),)) + TOPIC, bytes(88)
    began = time.thread_time()
    for _ in range(count // 32):
        elements, payload = module.measure_batch(data, BATCH_PROPERTIES, 1 << 30)
        total = payload + elements * (len(head) + len(piece) + 2)
        module.lay_out_batch(data, BATCH_PROPERTIES, head, piece, 1, elements, total, 0, 0)
    return (time.thread_time() - began) / count * 1e6


def pull_all(store: MessageStore, queue_ids: range) -> int:
    count = 0
    for queue_id in queue_ids:
        offset, end = 0, store.max_queue_offset(TOPIC.decode(), queue_id)
        while offset < end:
            result = store.get_message("g", TOPIC.decode(), queue_id, offset, 32)
            b"".join(result.chunks)
            offset = result.next_offset
            count += result.message_count
    return count


class Bench:
    def __init__(self, folder: Path, body_bytes: int, count: int, rounds: int) -> None:
        self.folder = folder
        self.body = os.urandom(body_bytes)
        self.count = count
        self.rounds = rounds
        self.stores = 0
        self.base = median(calibration(self.body, count) for _ in range(rounds))

    def open_store(self) -> MessageStore:
        self.stores += 1
        store = MessageStore(StoreConfig(self.folder / str(self.stores), HOST))
        store.load()
        return store

    def line(self, name: str, micros: float) -> None:
        print(f"{name:<44}{micros:>9.2f} µs/record{micros / self.base:>8.2f} × calibration")

    def timed(
        self,
        work: Callable[[MessageStore], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> float:
        """Return µs per record of ``work`` on a fresh store: the median of all rounds."""
        figures = []
        for _ in range(self.rounds):
            store = self.open_store()
            began = clock()
            work(store)
            figures.append((clock() - began) / self.count * 1e6)
            store.close()
        return median(figures)

    def run(self) -> None:
        self.line("calibration: pack + crc + join", self.base)
        for per_commit in (1, 16, 64):
            work = partial(append, body=self.body, count=self.count, per_commit=per_commit)
            self.line(f"append + commit, {per_commit} per commit, 4 queues", self.timed(work))
        self.line(
            "append_batch of 32 + commit",
            self.timed(lambda store: append_batches(store, self.body, self.count)),
        )
        self.encoded_batches()
        self.reading()
        self.recovery()
        self.copying("queues take turns", lambda store: append(store, self.body, self.count, 64))
        self.copying("batches of 32", lambda store: append_batches(store, self.body, self.count))

    def encoded_batches(self) -> None:
        """Print the CPU of this thread: how long a disk takes is not the question here."""
        for name, pure in (("Python", True), ("kernels" if kernels else "no kernels", False)):
            work = partial(append_encoded, body=self.body, count=self.count, pure=pure)
            micros = self.timed(work, time.thread_time)
            self.line(f"encoded batch of 32 + commit, {name}, CPU", micros)
        if kernels is not None:
            rounds = [run_kernel(kernels, self.body, self.count) for _ in range(self.rounds)]
            self.line("the kernel alone, CPU", median(rounds))

    def reading(self) -> None:
        store = self.open_store()
        append_batches(store, self.body, self.count)
        pull_all(store, range(1))
        began = time.perf_counter()
        count = pull_all(store, range(1))
        self.line("get_message, 32 adjacent", (time.perf_counter() - began) / count * 1e6)
        store.close()
        store = self.open_store()
        append(store, self.body, self.count, 64)
        pull_all(store, range(4))
        began = time.perf_counter()
        count = pull_all(store, range(4))
        self.line("get_message, 32 scattered", (time.perf_counter() - began) / count * 1e6)
        store.close()

    def recovery(self) -> None:
        store = self.open_store()
        append(store, self.body, self.count, 64)
        size = store.max_physical_offset
        root = store.config.root
        store.close()
        for name, unclean in (("clean", False), ("unclean, all dispatched again", True)):
            if unclean:
                (root / "abort").touch()
            began = time.perf_counter()
            again = MessageStore(StoreConfig(root, HOST))
            report = again.load()
            seconds = time.perf_counter() - began
            assert report.records == self.count
            again.close()
            print(f"{'recovery, ' + name:<44}{size / seconds / 1e6:>9.0f} MB/s", end="")
            print(f"{seconds / self.count * 1e6:>12.2f} µs/record")

    def copying(self, order: str, fill: Callable[[MessageStore], None]) -> None:
        """Print a slave's µs on the event loop's thread for each step that it does by itself."""
        master = self.open_store()
        fill(master)
        steps = [asyncio.run(self._copy(master)) for _ in range(self.rounds)]
        master.close()
        names = ("append_raw of 256 KiB", "dispatch", "index")
        for name, figures in zip(names, zip(*steps, strict=True), strict=True):
            self.line(f"slave, {order}: {name}", median(figures) / self.count * 1e6)

    async def _copy(self, master: MessageStore) -> tuple[float, float, float]:
        """Return the seconds of copying, then of dispatch, then of the index."""
        slave = self.open_store()
        slave.config.broker_role = "SLAVE"
        shutdown = asyncio.Event()
        running = asyncio.create_task(slave.run(shutdown))
        await asyncio.sleep(0)
        times = [time.thread_time()]
        while (position := slave.max_physical_offset) < master.max_physical_offset:
            slave.append_raw(position, master.read_raw(position, 256 * 1024))
        times.append(time.thread_time())
        assert slave.dispatch_until_stuck() is None  # which dispatches everything
        times.append(time.thread_time())
        while slave.index_behind_bytes:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.005)
        times.append(time.thread_time())
        shutdown.set()
        await running
        slave.close()
        first, copied, dispatched, indexed = times
        return copied - first, dispatched - copied, indexed - dispatched


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--records", type=int, default=40_960)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} CPUs, {platform.machine()}, ", end=""
    )
    print(f"{arguments.records} records with bodies of {arguments.body_bytes} bytes")
    with tempfile.TemporaryDirectory(prefix="bench-store-") as folder:
        Bench(Path(folder), arguments.body_bytes, arguments.records, arguments.rounds).run()


if __name__ == "__main__":
    main()
