"""How fast a fresh slave copies a master's log, for each pairing of engines.

Progress is read from the slave's log file itself: the first byte that arrived and the last one.
So no broker is asked, and both engines are watched in the same way.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks.broker import stores, targets
from tests.benchmarks.broker.engines import NAMESRV_HEAP, alternating, broker, say
from tests.benchmarks.broker.proc import cpu_seconds
from tests.benchmarks.broker.scale import MIB, Scale
from tests.benchmarks.broker.table import size
from tests.benchmarks.documents import Table, number
from tests.support.java.apache import Broker, Engine, NameServer

PAIRS: Final[tuple[tuple[Engine, Engine], ...]] = (
    ("failback", "failback"),
    ("apache", "apache"),
    ("failback", "apache"),
    ("apache", "failback"),
)
_TOPIC: Final = "CatchUp"
_FIRST_BYTES: Final = 4
"""Where the magic of the first record begins: the first byte that can't be zero once it came."""
_DEADLINE_SECONDS: Final = 400.0
_NAMES: Final = {"failback": "ours", "apache": "Apache"}


@dataclass(frozen=True, slots=True)
class Copied:
    """One slave: MB a second from the first byte to the last, CPU seconds of both ends."""

    rate: float
    master_cpu: float
    slave_cpu: float
    is_equal: bool


def measure(scale: Scale, folder: Path) -> list[Table]:
    """Return the table of all four pairings."""
    table = Table(
        f"A fresh slave copies {size(scale.catch_up_bytes)} within one log file",
        (
            "master",
            "slave",
            "MB/s",
            "ratio to two of Apache",
            "CPU s of the master",
            "of the slave",
            "bytes",
        ),
    )
    prepared = folder / "prepared"
    end = stores.fill(prepared, scale.catch_up_bytes, _TOPIC)
    measures = {
        f"{master} {slave}": partial(_copy, master, slave, prepared, end, folder)
        for master, slave in PAIRS
    }
    found = alternating(measures.items(), scale.catch_up_rounds)
    apache = statistics.median(each.rate for each in found["apache apache"])
    for master, slave in PAIRS:
        rounds = found[f"{master} {slave}"]
        rate = statistics.median(each.rate for each in rounds)
        table.rows.append(
            [
                _NAMES[master],
                _NAMES[slave],
                number(rate),
                _verdict(master, slave, rate / apache),
                number(statistics.median(each.master_cpu for each in rounds)),
                number(statistics.median(each.slave_cpu for each in rounds)),
                "equal" if all(each.is_equal for each in rounds) else "DIFFER",
            ]
        )
    shutil.rmtree(folder)
    return [table]


def _verdict(master: Engine, slave: Engine, ratio: float) -> str:
    if (master, slave) == ("apache", "apache"):
        return "1"
    ours = master == slave
    return (targets.CATCH_UP_OURS if ours else targets.CATCH_UP_MIXED).verdict(ratio)


def _copy(master: Engine, slave: Engine, prepared: Path, end: int, folder: Path) -> Copied:
    root = folder / f"{master}-{slave}"
    namesrv = NameServer("failback", root / "ns", java_flags=NAMESRV_HEAP)
    source = broker(master, root / "master", namesrv.address)
    target = broker(slave, root / "slave", namesrv.address, "SLAVE")
    stores.copy(prepared, source.store)
    try:
        namesrv.start()
        source.start()
        before = cpu_seconds(source.process.pid)
        began = time.monotonic()
        target.start()
        copied = _watch(source, target, before, began, end)
        say(f"catch-up: {master} to {slave}: {copied.rate:.1f} MB/s")
        return copied
    finally:
        for process in (target.process, source.process, namesrv.process):
            process.dispose()
        shutil.rmtree(root)


def _watch(source: Broker, target: Broker, master_before: float, began: float, end: int) -> Copied:
    log = target.store / "commitlog" / f"{0:020d}"
    first = _when_written(target, log, _FIRST_BYTES, began)
    last = _when_written(target, log, end - 1, began)
    return Copied(
        end / 1e6 / max(last - first, 1e-3),
        cpu_seconds(source.process.pid) - master_before,
        cpu_seconds(target.process.pid),
        _equal(source.store / "commitlog" / log.name, log, end),
    )


def _when_written(target: Broker, log: Path, position: int, began: float) -> float:
    """Return the moment at which the byte at ``position`` is no zero any more."""
    while time.monotonic() - began < _DEADLINE_SECONDS:
        if log.exists():
            with log.open("rb", buffering=0) as file:
                if os.pread(file.fileno(), 1, position) not in (b"", b"\0"):
                    return time.monotonic()
        if not target.process.alive:
            raise RuntimeError(f"the slave has ended: {target.process.errors()[-2000:]}")
        time.sleep(0.002)
    raise TimeoutError(f"byte {position} of {log} did not come in {_DEADLINE_SECONDS:.0f} s")


def _equal(one: Path, other: Path, end: int) -> bool:
    with one.open("rb") as left, other.open("rb") as right:
        for at in range(0, end, MIB):
            piece = min(MIB, end - at)
            if left.read(piece) != right.read(piece):
                return False
    return True
