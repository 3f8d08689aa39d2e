"""What logging one delivery costs: begin + end in the hot log against ``json.dumps`` of the row.

Run: ``python -m tests.benchmarks.bench_consumelog [--rows N]``. Prints CPU microseconds per
delivery and the ratio, as JSON on the last line. Aim: at most 3 µs, and at most 0.2 of the JSON.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from pathlib import Path

from failback.client.consumelog.schema import order
from failback.client.consumelog.writer import ConsumeLog

ROW = (
    1, "billing", "127.0.0.1@4711", 7, 12, "broker-a", "orders", 3, 123456, 987654321, b"\x7f" * 16,
    "7F0000010000000000000000000012AB", None, 65536, 4711, None, None, "orders", 0, None,
    1_700_000_000_000, 1_700_000_000_001, 3_000_000_000,
)  # fmt: skip


def hot_log_us(rows: int, folder: Path) -> float:
    """CPU time of a begin and an end, averaged over ``rows``."""
    with ConsumeLog(folder, run="bench", proc_no=1, role="consumer") as log:
        begin, end = log.deliver_begin, log.deliver_end
        started = time.process_time()
        for n in range(rows):
            end(begin(*ROW), "SUCCESS", True, n)
        return (time.process_time() - started) / rows * 1e6


def json_us(rows: int) -> float:
    """CPU time of one ``json.dumps`` of the joined row."""
    row: dict[str, object] = dict.fromkeys(order("deliver"), 1_234_567_890_123)
    row |= dict(zip(("call_id", "grp", "client_id"), ROW[:3], strict=True))
    row |= {"broker": "broker-a", "ptopic": "orders", "ltopic": "orders", "status": "SUCCESS"}
    row |= {"omid": "7f" * 16, "ukey": ROW[11], "keys": None, "okey": None, "applied": True}
    started = time.process_time()
    for _ in range(rows):
        json.dumps(row)
    return (time.process_time() - started) / rows * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as folder:
        hot = min(hot_log_us(rows, Path(folder)) for _ in range(3))
    text = min(json_us(rows) for _ in range(3))
    figures = {
        "hot_log_us": round(hot, 2),
        "json_dumps_us": round(text, 2),
        "ratio": round(hot / text, 3),
        "rows": rows,
        "python": sys.version.split()[0],
        "machine": f"{platform.system()} {platform.machine()}",
    }
    print(f"begin + end {hot:.2f} µs, json.dumps {text:.2f} µs, ratio {hot / text:.2f}")
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
