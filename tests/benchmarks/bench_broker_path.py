"""What one stored message costs the broker: the send path with 1 KiB bodies, ASYNC_FLUSH.

Run: ``python -m tests.benchmarks.bench_broker_path [--seconds N] [--flush SYNC_FLUSH]``. A real
broker process is loaded by ``loadgen`` in a process of its own. Printed per cell: connections ×
sends in flight, messages per second, CPU (user + system) of the broker per message, the same in
multiples of a calibration loop that runs the building blocks once per message, and latencies.
Compare ratios; rates vary with whatever else the machine does. JSON on the last line.

``--acl`` measures a broker that checks each request by its accounts beside one that does not, both
under the same signed requests.

``--tls`` measures plain and TLS connections of our broker and of Apache's under the same load, and
prints the ratio ours/Apache's of the rates with TLS.

``--against FOLDER [--rounds N]`` measures a second broker, from another checkout, in alternating
windows, and prints the ratio this/that of the medians: whether a change of the code paid.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import ExitStack
from pathlib import Path

import msgspec

from failback.protocol.headers import SendMessageRequestHeaderV2, envelope_decoder
from tests.benchmarks.loadgen import _split_frame
from tests.support.java.apache import Broker
from tests.support.net.certificates import Authority
from tests.support.net.ports import free_port_block
from tests.support.net.tls_files import TlsFolder
from tests.support.processes.child_process import ROOT, SOURCES

CELLS = ((1, 1), (1, 16), (1, 64), (16, 1), (64, 1))
READY = "boot success"
KEY = "bench-key:hush-of-the-bench"
ACCOUNTS = """accounts:
- {accessKey: bench-key, secretKey: hush-of-the-bench, topicPerms: [Bench=PUB]}
"""
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


def start_broker(
    folder: Path, settings: dict[str, str], checkout: Path = ROOT
) -> tuple[subprocess.Popen[str], str]:
    """Start the broker of a checkout; return its process and its address."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port_block(4) + 2
    properties = {
        "brokerName": "bench",
        "brokerIP1": "127.0.0.1",
        "listenPort": str(port),
        "failbackHttpPort": "0",
        "storePathRootDir": str(folder / "store"),
    }
    (folder / "plain_acl.yml").write_text(ACCOUNTS)
    conf = folder / "broker.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in (properties | settings).items()))
    with (folder / "broker.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "failback.broker", "-c", str(conf)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, "PYTHONPATH": _sources(checkout)},
        )
    assert process.stdout is not None
    if READY not in process.stdout.readline():
        raise SystemExit((folder / "broker.log").read_text())
    return process, f"127.0.0.1:{port}"


def _sources(checkout: Path) -> str:
    return os.pathsep.join(str(checkout / source) for source in SOURCES)


def load(
    address: str, connections: int, outstanding: int, seconds: float, key: str = "", ca: str = ""
) -> dict[str, float]:
    options = {
        "key": key,
        "ca": ca,
        "connections": connections,
        "outstanding": outstanding,
        "seconds": seconds,
    }
    arguments = [f"--{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "tests.benchmarks.loadgen", address, *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(output)
    return result


def measure(
    pid: int, address: str, cell: tuple[int, int], seconds: float, key: str = "", ca: str = ""
) -> dict[str, float]:
    before = cpu_seconds(pid)
    result = load(address, *cell, seconds, key, ca)
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
    parser.add_argument("--against", type=Path, help="another checkout, measured in turn")
    parser.add_argument("--acl", action="store_true", help="with accounts, beside one without")
    parser.add_argument("--tls", action="store_true", help="plain and TLS, ours and Apache's")
    parser.add_argument("--rounds", type=int, default=5, help="of a comparison")
    options = parser.parse_args()
    calibration = calibration_us()
    print(f"{platform.python_version()} on {os.cpu_count()} CPUs; calibration {calibration:.2f} µs")
    if options.tls:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            compare_tls(Path(folder), options.seconds, options.rounds)
        return 0
    checkouts = {"this": ROOT}
    if options.against is not None or options.acl:
        checkouts["that"] = ROOT if options.acl else options.against.resolve()
    key = KEY if options.acl else ""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, ExitStack() as stack:
        brokers = {}
        for name, checkout in checkouts.items():
            guarded = {"aclEnable": "true"} if options.acl and name == "this" else {}
            settings = {"flushDiskType": options.flush, **guarded}
            process, address = start_broker(Path(folder) / name, settings, checkout)
            stack.callback(stop, process)
            load(address, 1, 16, 1.0, key)
            brokers[name] = (process.pid, address)
        if len(brokers) > 1:
            compare(brokers, options.seconds, options.rounds, key)
            return 0
        pid, address = brokers["this"]
        report = measure_cells(pid, address, options.seconds, calibration)
    print(msgspec.json.encode(report).decode())
    return 0


def stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.wait(30)
    if process.stdout is not None:
        process.stdout.close()


def measure_cells(pid: int, address: str, seconds: float, calibration: float) -> dict[str, object]:
    print("conns  in flight   msg/s   CPU µs   ratio   p50 ms   p99 ms  p99.9 ms")
    rows = []
    for cell in CELLS:
        row = measure(pid, address, cell, seconds)
        row["ratio"] = row["cpu_us"] / calibration
        rows.append(row)
        print(
            f"{cell[0]:5d}  {cell[1]:9d}  {row['rate']:6.0f}  {row['cpu_us']:7.1f}"
            f"  {row['ratio']:6.2f}  {row['p50_ms']:7.2f}  {row['p99_ms']:7.2f}"
            f"  {row['p999_ms']:8.2f}",
            flush=True,
        )
    anonymous = memory_mib(pid)
    print(f"anonymous memory after it: {anonymous:.0f} MiB")
    return {"calibration_us": calibration, "anonymous_mib": anonymous, "cells": rows}


def compare_tls(folder: Path, seconds: float, rounds: int) -> None:
    """Print medians of alternating windows: plain and TLS, at our broker and at Apache's."""
    authority = Authority(folder / "ca")
    access = TlsFolder(folder / "access", authority, authority.issue("server"))
    access.set(server_mode="permissive", test_mode_enable="false")
    access.set(server_certPath=f"{access.path}/tls.crt", server_keyPath=f"{access.path}/tls.key")
    flags = ("-Xms512m", "-Xmx512m", f"-Dtls.config.file={access.path}/tls.properties")
    apache = Broker("apache", folder / "apache", "127.0.0.1:9", java_flags=flags)
    print(
        "conns  in flight   msg/s ours plain     TLS   Apache's plain     TLS   TLS ours/Apache's"
    )
    with ExitStack() as stack:
        settings = {"failbackAccessFolder": str(access.path)}
        process, address = start_broker(folder / "ours", settings)
        stack.callback(stop, process)
        stack.callback(lambda: apache.process.dispose())
        apache.start()
        brokers = {"ours": (process.pid, address), "apache": (apache.process.pid, apache.address)}
        columns = [(name, ca) for name in brokers for ca in ("", str(authority.file))]
        for name, ca in columns:
            load(brokers[name][1], 1, 16, 5.0, ca=ca)
        for cell in CELLS:
            rates: dict[tuple[str, str], list[float]] = {column: [] for column in columns}
            for number in range(rounds):
                for name, ca in columns if number % 2 == 0 else reversed(columns):
                    row = measure(*brokers[name], cell, seconds, ca=ca)
                    rates[name, ca].append(row["rate"])
            medians = [statistics.median(rates[column]) for column in columns]
            print(
                f"{cell[0]:5d}  {cell[1]:9d}  {medians[0]:16.0f}  {medians[1]:6.0f}"
                f"  {medians[2]:15.0f}  {medians[3]:6.0f}  {medians[1] / medians[3]:18.2f}",
                flush=True,
            )


def compare(
    brokers: dict[str, tuple[int, str]], seconds: float, rounds: int, key: str = ""
) -> None:
    """Print medians of alternating windows of two brokers."""
    print("conns  in flight   CPU µs this    that   this/that   lowest   msg/s this    that")
    for cell in CELLS:
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in brokers}
        for number in range(rounds):
            for name in brokers if number % 2 == 0 else reversed(brokers):
                rows[name].append(measure(*brokers[name], cell, seconds, key))
        cpu = {name: [row["cpu_us"] for row in each] for name, each in rows.items()}
        this, that = (statistics.median(each) for each in cpu.values())
        lowest = min(cpu["this"]) / min(cpu["that"])
        rates = [statistics.median(row["rate"] for row in each) for each in rows.values()]
        print(
            f"{cell[0]:5d}  {cell[1]:9d}  {this:12.1f}  {that:6.1f}  {this / that:10.3f}"
            f"  {lowest:7.3f}  {rates[0]:11.0f}  {rates[1]:6.0f}",
            flush=True,
        )


if __name__ == "__main__":
    sys.exit(main())
