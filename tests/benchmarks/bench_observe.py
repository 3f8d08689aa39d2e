"""What ``failback observe`` costs: itself, and the brokers that it asks.

    make bench-observe                          one pair of Apache 4.9.7, ten pairs of ours
    make bench-observe ARGS="--pairs 0 --markdown docs/design/measurements.md"

Each pair has 30 topics of 8 queues, and 20 groups with an offset on each; those of two queues of
each topic move every five seconds. The observer is a process of its own that looks every second;
its CPU, its memory and the CPU of the brokers' processes are read from ``/proc``. The brokers'
share is what they take with the observer less what they take without. At the end the master of the
first pair is killed: the time until the line about it stands there is told in periods.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from failback.client.admin.admin import AdminClient
from failback.protocol.route import TopicConfig
from tests.benchmarks.documents import Table, with_figures
from tests.benchmarks.targets import Target, at_most
from tests.support.java.apache import Broker, Engine, NameServer
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

TOPICS, QUEUES, GROUPS = 30, 8, 20
MOVING: Final = (0, 1)
COMMIT_SECONDS: Final = 5.0
COMMAND: Final = "make bench-observe"
_TICKS: Final = os.sysconf("SC_CLK_TCK")
Bar = tuple[str, float, Target]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=60, help="length of each phase")
    parser.add_argument(
        "--pairs", type=int, default=10, help="of ours, in the second part; 0: none"
    )
    parser.add_argument("--markdown", type=Path, help="document whose figures are replaced")
    options = parser.parse_args()
    if options.markdown:
        with_figures(options.markdown.read_text(), COMMAND, "")  # it has a place for them
    bars = part("apache", 1, options.seconds)
    if options.pairs:
        bars += part("failback", options.pairs, options.seconds)
    table = Table(
        f"{TOPICS} topics of {QUEUES} queues, {GROUPS} groups, a look every second",
        ("what", "figure (target)"),
        [[what, target.verdict(figure)] for what, figure, target in bars],
    )
    figures = f"Measured {time.strftime('%Y-%m-%d')}, each over {options.seconds} s.\n\n"
    figures += table.markdown()
    print(figures)
    if options.markdown:
        text = with_figures(options.markdown.read_text(), COMMAND, figures)
        options.markdown.write_text(text)
    return 0


def part(engine: Engine, pairs: int, seconds: int) -> list[Bar]:
    """Measure with so many pairs of one engine."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        namesrv, masters, brokers = started(stack, engine, pairs, Path(folder))
        asyncio.run(prepared(masters))
        with committing(masters):
            alone = cpu_of([each.process.pid for each in brokers], seconds)
            watching = observer(stack, namesrv, Path(folder) / "run")
            mine, beside = watched(watching, brokers, seconds)
            rss = resident_mib(watching.pid)
        name = f"{pairs} pair{'s' if pairs > 1 else ''} ({engine})"
        bars = [
            (f"{name}: observer, % of a core", mine, at_most(2 if pairs == 1 else 15)),
            (f"{name}: observer, MiB", rss, at_most(100)),
        ]
        if pairs == 1:
            more = (beside - alone) / len(brokers)
            bars.append((f"{name}: a broker's own CPU, more % of a core", more, at_most(1)))
        masters[0].kill()
        began = time.monotonic()
        watching.wait_for("MasterGone")
        periods = time.monotonic() - began
        bars.append((f"{name}: an event is shown, periods after it", periods, at_most(2)))
        watching.stop()
        return bars


def started(
    stack: ExitStack, engine: Engine, pairs: int, folder: Path
) -> tuple[NameServer, list[Broker], list[Broker]]:
    """Return a name server, the masters and all brokers, running."""
    namesrv = NameServer(engine, folder / "ns")
    stack.callback(namesrv.process.dispose)
    namesrv.start()
    masters, brokers = [], []
    for number in range(pairs):
        for member, role in enumerate(("ASYNC_MASTER", "SLAVE")):
            broker = Broker(
                engine,
                folder / f"broker-{number}-{member}",
                namesrv.address,
                name=f"broker-{number}",
                broker_id=member,
                role=role,
            )
            broker.start()
            stack.callback(broker.process.dispose)
            brokers.append(broker)
            if member == 0:
                masters.append(broker)
    return namesrv, masters, brokers


async def prepared(masters: Sequence[Broker]) -> None:
    async with AdminClient(timeout_ms=30_000) as admin:
        for master in masters:
            for number in range(TOPICS):
                config = TopicConfig(f"T{number}", QUEUES, QUEUES)
                await admin.create_topic(master.address, config)
        await commit(admin, masters, 1, queues=range(QUEUES))


async def commit(
    admin: AdminClient, masters: Sequence[Broker], offset: int, *, queues: Sequence[int]
) -> None:
    """Every group stands at ``offset`` on these queues of each topic."""
    turn = asyncio.Semaphore(64)

    async def one(master: Broker, group: int, topic: int, queue: int) -> None:
        async with turn:
            where = (f"g{group}", f"T{topic}", queue, offset)
            await admin.update_offset(master.address, *where)

    for master in masters:
        for group in range(GROUPS):
            await asyncio.gather(
                *(one(master, group, topic, queue) for topic in range(TOPICS) for queue in queues)
            )


@contextmanager
def committing(masters: Sequence[Broker]) -> Iterator[None]:
    """Move offsets every few seconds while the block runs."""
    over = threading.Event()

    async def go() -> None:
        offset = 1
        async with AdminClient(timeout_ms=30_000) as admin:
            while not over.is_set():
                offset += 1
                began = time.monotonic()
                await commit(admin, masters, offset, queues=MOVING)
                await asyncio.to_thread(
                    over.wait, max(0.0, COMMIT_SECONDS - (time.monotonic() - began))
                )

    thread = threading.Thread(target=lambda: asyncio.run(go()), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def observer(stack: ExitStack, namesrv: NameServer, run: Path) -> TestProcess:
    words = ("observe", "--namesrv", namesrv.address, "--out", str(run))
    found = TestProcess(
        "observer", failback_command("cli", *words), run.parent, environment=failback_environment()
    )
    stack.callback(found.dispose)
    found.start()
    found.wait_for("observing")
    return found


def watched(watching: TestProcess, brokers: Sequence[Broker], seconds: int) -> tuple[float, float]:
    """Return the share of a core of the observer, and of all brokers, over ``seconds``."""
    began = ticks(watching.pid)
    theirs = cpu_of([each.process.pid for each in brokers], seconds)
    return (ticks(watching.pid) - began) / _TICKS / seconds * 100, theirs


def cpu_of(pids: Sequence[int], seconds: int) -> float:
    """Return what processes take together, in % of a core, over ``seconds``."""
    began = sum(map(ticks, pids))
    time.sleep(seconds)
    return (sum(map(ticks, pids)) - began) / _TICKS / seconds * 100


def ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def resident_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


if __name__ == "__main__":
    sys.exit(main())
