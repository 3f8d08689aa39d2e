"""What single sends cost inside one process: ``python -m tests.benchmarks.bench_sends``.

Frames of a Java producer, 1 KiB bodies over 4 queues, are given to the server in reads of 1, 16
and 64; store and files are real, the socket is not. Printed per read size: µs of CPU per message
in ``received`` (decode, check, lay out, answer), user and system time of ``finish`` (one write to
the log, queue entries, index). Once with the kernels and once without, where there are any.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from failback.broker.native import kernels
from tests.benchmarks.loadgen import FIRST_OPAQUE, _split_frame
from tests.support.brokers.broker_lab import broker_lab

READS = (1, 16, 64)


async def run(folder: Path, messages: int) -> None:
    settings = {"mappedFileSizeCommitLog": 1 << 28, "mappedFileSizeConsumeQueue": 6_000_000}
    async with broker_lab(folder, **settings) as lab:
        connection = lab.connect().connection
        lab.clients[0].transport.write = lambda data: None  # type: ignore[method-assign]
        server = lab.controller.server
        frames = [_split_frame("Bench", os.urandom(1024), queue) for queue in range(4)]
        made = FIRST_OPAQUE
        for number, per_read in enumerate((64, *READS)):
            received = finish_user = finish_system = 0.0
            count = messages // per_read
            for _ in range(count):
                parts = []
                for opaque in range(made, made + per_read):
                    head, tail = frames[opaque % 4]
                    parts += [head, b"%d" % opaque, tail]
                made += per_read
                data = b"".join(parts)
                began = time.process_time_ns()
                server.received(connection, data)
                received += time.process_time_ns() - began
                before = os.times()
                began = time.process_time_ns()
                server.finish()
                spent = time.process_time_ns() - began
                finish_user += spent
                finish_system += os.times().system - before.system
                await asyncio.sleep(0)
            done = count * per_read
            if number == 0:
                continue  # only to get warm
            print(
                f"{per_read:4d} a read: received {received / done / 1e3:6.2f} µs,"
                f" finish {finish_user / done / 1e3:6.2f} µs"
                f" (system {finish_system / done * 1e6:5.2f})",
                flush=True,
            )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=60_000, help="per read size")
    parser.add_argument("--this-way-only", action="store_true")
    options = parser.parse_args()
    print("with kernels" if kernels is not None else "without kernels")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), options.messages))
    if kernels is not None and not options.this_way_only:
        command = [sys.executable, "-m", "tests.benchmarks.bench_sends", "--this-way-only"]
        command += [f"--messages={options.messages}"]
        subprocess.run(command, check=True, env={**os.environ, "FAILBACK_PURE": "1"})
    return 0


if __name__ == "__main__":
    sys.exit(main())
