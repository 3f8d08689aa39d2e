"""What one stored message costs the broker: the send path with 1 KiB bodies, ASYNC_FLUSH.

Run: ``python -m tests.benchmarks.bench_broker_path [--seconds N] [--flush SYNC_FLUSH]``. A real
broker process is loaded by ``loadgen`` in a process of its own. Printed per cell: connections ×
sends in flight, messages per second, CPU (user + system) of the broker per message, the same in
multiples of a calibration loop that runs the building blocks once per message, and latencies.
Compare ratios; rates vary with whatever else the machine does. JSON on the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import msgspec

from failback.protocol.headers import SendMessageRequestHeaderV2, envelope_decoder
from tests.benchmarks.loadgen import _split_frame
from tests.support.ports import free_port_block

CELLS = ((1, 1), (1, 16), (1, 64), (16, 1), (64, 1))
READY = "boot success"
_FIXED = struct.Struct(">iIIiiqqiq8sq8siqi")
_ANSWER = b'{"code":%d,"extFields":{"msgId":"%016X","queueId":"%d","queueOffset":"%d"},"opaque":%d}'


def calibration_us(rounds: int = 40_000) -> float:
    """CPU time of the unavoidable parts of one send: decode, CRC, pack, join, answer."""
    head, tail = _split_frame("Bench", b"", 0)
    header = (head + b"1000000000" + tail)[8:]
    decode = envelope_decoder(SendMessageRequestHeaderV2).decode
    body, host = os.urandom(1024), bytes(8)
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        for number in range(rounds):
            fields = decode(header).extFields
            properties = (fields.properties or "").encode()
            fixed = _FIXED.pack(
                1200, 1, zlib.crc32(body), 0, 0, number, number, 0, 0, host, 0, host, 0, 0, 1024
            )
            b"".join((fixed, body, b"\x05Bench", b"\x00\x2a", properties))
            _ANSWER % (0, number, 0, number, number)
        best = min(best, (time.process_time() - began) / rounds * 1e6)
    return best


def cpu_seconds(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mib(pid: int) -> float:
    """Anonymous resident memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    return 0.0


def start_broker(folder: Path, settings: dict[str, str]) -> tuple[subprocess.Popen[str], str]:
    port = free_port_block(4) + 2
    properties = {
        "brokerName": "bench",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(port),
        "failbackHttpPort": "0",
        "storePathRootDir": str(folder / "store"),
    }
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in (properties | settings).items()))
    with (folder / "broker.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "failback.broker", "-c", str(conf)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    assert process.stdout is not None
    if READY not in process.stdout.readline():
        raise SystemExit((folder / "broker.log").read_text())
    return process, f"127.0.0.1:{port}"


def load(address: str, connections: int, outstanding: int, seconds: float) -> dict[str, float]:
    options = {"connections": connections, "outstanding": outstanding, "seconds": seconds}
    arguments = [f"--{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "tests.benchmarks.loadgen", address, *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(output)
    return result


def measure(pid: int, address: str, cell: tuple[int, int], seconds: float) -> dict[str, float]:
    before = cpu_seconds(pid)
    result = load(address, *cell, seconds)
    spent = cpu_seconds(pid) - before
    return {
        "connections": cell[0],
        "in_flight": cell[1],
        "rate": result["messages"] / result["seconds"],
        "cpu_us": spent / result["messages"] * 1e6,
        **{name: result[name] for name in ("p50_ms", "p99_ms", "p999_ms", "errors")},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH")
    parser.add_argument("--folder", type=Path, help="where the store is put; default: temporary")
    options = parser.parse_args()
    calibration = calibration_us()
    print(f"{platform.python_version()} on {os.cpu_count()} CPUs; calibration {calibration:.2f} µs")
    print("conns  in flight   msg/s   CPU µs   ratio   p50 ms   p99 ms  p99.9 ms")
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        process, address = start_broker(Path(folder), {"flushDiskType": options.flush})
        try:
            load(address, 1, 16, 1.0)
            for cell in CELLS:
                row = measure(process.pid, address, cell, options.seconds)
                row["ratio"] = row["cpu_us"] / calibration
                rows.append(row)
                print(
                    f"{cell[0]:5d}  {cell[1]:9d}  {row['rate']:6.0f}  {row['cpu_us']:7.1f}"
                    f"  {row['ratio']:6.2f}  {row['p50_ms']:7.2f}  {row['p99_ms']:7.2f}"
                    f"  {row['p999_ms']:8.2f}",
                    flush=True,
                )
            anonymous = memory_mib(process.pid)
            print(f"anonymous memory after it: {anonymous:.0f} MiB")
        finally:
            process.terminate()
            process.wait(30)
            if process.stdout is not None:
                process.stdout.close()
    report = {"calibration_us": calibration, "anonymous_mib": anonymous, "cells": rows}
    print(msgspec.json.encode(report).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
