"""How fast an empty slave gets a master's log: two processes, real stores, uvloop.

    python -m tests.benchmarks.bench_ha_transfer [--megabytes 600] [--rounds 3] [--one-thread]

Prints per round MB/s until the log is there, after how many seconds its queues and index are, and
the CPU seconds of both processes until then; the bytes are compared afterwards. With --one-thread
both ends are in one process, and each round prints the MB of log per second of its CPU, which says
more than MB/s where others use the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import shutil
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from failback.broker.ha.config import HaConfig
from failback.broker.ha.service import HaService
from failback.broker.store.config import StoreConfig
from failback.broker.store.message_store import MessageStore
from failback.protocol.message import pack_host

HOST = pack_host("127.0.0.1", 10911)
FILE_BYTES = 1 << 30
_DEADLINE_SECONDS = 300


def open_store(root: Path, role: str) -> MessageStore:
    store = MessageStore(
        StoreConfig(root=root, store_host=HOST, broker_role=role, mapped_file_bytes=FILE_BYTES)
    )
    store.load()
    return store


def fill(store: MessageStore, megabytes: int) -> None:
    body = bytes(range(256)) * 4
    while store.max_physical_offset < megabytes * 1_000_000:
        for queue_id in range(64):
            store.append(
                topic=b"Bench",
                queue_id=queue_id % 8,
                flag=0,
                sys_flag=0,
                born_timestamp=0,
                born_host=HOST,
                reconsume_times=0,
                body=body,
                properties=b"",
                tags_code=0,
            )
        store.commit_pending()


def run_master(root: Path, pipe: Connection) -> None:
    store = open_store(root, "ASYNC_MASTER")

    async def serve() -> None:
        service = HaService(store, HaConfig("ASYNC_MASTER", "127.0.0.1", 0, FILE_BYTES))
        shutdown = asyncio.Event()
        task = asyncio.create_task(service.run(shutdown))
        await service.listening.wait()
        before = _cpu_seconds()
        pipe.send((service.bound_port, store.max_physical_offset))
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        pipe.send(_cpu_seconds() - before)
        shutdown.set()
        await task

    uvloop.run(serve())
    store.close()


def run_slave(root: Path, port: int, end: int, pipe: Connection) -> None:
    store = open_store(root, "SLAVE")

    async def follow() -> None:
        config = HaConfig("SLAVE", "127.0.0.1", 0, FILE_BYTES, master_address=f"127.0.0.1:{port}")
        service = HaService(store, config)
        shutdown, complete = asyncio.Event(), asyncio.Event()
        store.add_append_listener(
            lambda: complete.set() if store.max_physical_offset >= end else None
        )
        store_task = asyncio.create_task(store.run(shutdown))
        before, started = _cpu_seconds(), time.monotonic()
        task = asyncio.create_task(service.run(shutdown))
        async with asyncio.timeout(_DEADLINE_SECONDS):
            await complete.wait()
            copied = time.monotonic() - started
            while store.dispatch_behind_bytes() or store.index_behind_bytes:  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(0.005)
        pipe.send((copied, time.monotonic() - started, _cpu_seconds() - before))
        shutdown.set()
        await task
        await store_task

    uvloop.run(follow())
    store.close()


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure_on_one_thread(folder: Path, megabytes: int) -> dict[str, float | bool]:
    """Copy from one store of this process into another, return MB per CPU second."""
    master = open_store(folder / "master", "ASYNC_MASTER")
    fill(master, megabytes)
    master.flush()
    slave = open_store(folder / "slave", "SLAVE")
    end = master.max_physical_offset

    async def copy() -> float:
        sender = HaService(master, HaConfig("ASYNC_MASTER", "127.0.0.1", 0, FILE_BYTES))
        shutdown, complete = asyncio.Event(), asyncio.Event()
        slave.add_append_listener(
            lambda: complete.set() if slave.max_physical_offset >= end else None
        )
        async with asyncio.timeout(_DEADLINE_SECONDS), asyncio.TaskGroup() as tasks:
            tasks.create_task(sender.run(shutdown))
            await sender.listening.wait()
            address = f"127.0.0.1:{sender.bound_port}"
            config = HaConfig("SLAVE", "127.0.0.1", 0, FILE_BYTES, master_address=address)
            tasks.create_task(slave.run(shutdown))
            began = _cpu_seconds()
            tasks.create_task(HaService(slave, config).run(shutdown))
            await complete.wait()
            used = _cpu_seconds() - began
            shutdown.set()
        return used

    used = uvloop.run(copy())
    slave.close()
    master.close()
    return {
        "megabytes_per_cpu_second": end / 1e6 / used,
        "equal": equal_logs(folder / "master", folder / "slave", end),
    }


def equal_logs(one: Path, other: Path, end: int) -> bool:
    name = "commitlog/" + "0" * 20
    with (one / name).open("rb") as left, (other / name).open("rb") as right:
        for _ in range(0, end, 1 << 20):
            if left.read(1 << 20) != right.read(1 << 20):
                return False
    return True


def measure(folder: Path, megabytes: int) -> dict[str, float | bool]:
    """Fill a master, let an empty slave copy it, return the figures."""
    context = multiprocessing.get_context("spawn")
    master_pipe, slave_pipe = context.Pipe(), context.Pipe()
    filled = open_store(folder / "master", "ASYNC_MASTER")
    fill(filled, megabytes)
    filled.close()
    master = context.Process(target=run_master, args=(folder / "master", master_pipe[1]))
    master.start()
    port, end = master_pipe[0].recv()
    slave = context.Process(target=run_slave, args=(folder / "slave", port, end, slave_pipe[1]))
    slave.start()
    seconds, entered_seconds, slave_cpu = slave_pipe[0].recv()
    master_pipe[0].send("done")
    master_cpu = master_pipe[0].recv()
    slave.join()
    master.join()
    return {
        "megabytes_per_second": end / 1e6 / seconds,
        "entered_after_seconds": entered_seconds,
        "master_cpu_seconds": master_cpu,
        "slave_cpu_seconds": slave_cpu,
        "equal": equal_logs(folder / "master", folder / "slave", end),
    }


def told(result: dict[str, float | bool]) -> str:
    if "megabytes_per_cpu_second" in result:
        return f"{result['megabytes_per_cpu_second']:.0f} MB per CPU second"
    return (
        f"{result['megabytes_per_second']:.0f} MB/s, entered after "
        f"{result['entered_after_seconds']:.1f} s, CPU master "
        f"{result['master_cpu_seconds']:.1f} s, slave {result['slave_cpu_seconds']:.1f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=600, help="below one file of 1 GiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one-thread", action="store_true", help="both ends in one process")
    options = parser.parse_args()
    one_round = measure_on_one_thread if options.one_thread else measure
    results = []
    for number in range(options.rounds):
        folder = Path(tempfile.mkdtemp(prefix="failback-ha-"))
        try:
            result = one_round(folder, options.megabytes)
        finally:
            shutil.rmtree(folder)
        bytes_are = "equal" if result["equal"] else "DIFFER"
        print(f"round {number + 1}: {told(result)}, bytes {bytes_are}")
        results.append(result)
    print(json.dumps({"ha_transfer": results}))
    return 0 if all(result["equal"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
