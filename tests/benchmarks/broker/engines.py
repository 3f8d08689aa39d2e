"""Ours and Apache's brokers as the benchmark starts them: production heap, production compiler."""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, TypeVar

from tests.benchmarks.broker.generator import LoadGenerator, Window
from tests.benchmarks.broker.proc import anonymous_mib
from tests.support.java.apache import Broker, Engine, NameServer

ENGINES: Final[tuple[Engine, Engine]] = ("failback", "apache")
BROKER_HEAP: Final = ("-Xms1g", "-Xmx1g")
NAMESRV_HEAP: Final = ("-Xms256m", "-Xmx256m")
LOG_FILE_BYTES: Final = 1 << 30
QUEUES: Final = 4

Figure = TypeVar("Figure")


def broker(
    engine: Engine, folder: Path, namesrv: str, role: str = "ASYNC_MASTER", **settings: object
) -> Broker:
    """Return a broker with log files of 1 GiB, not started."""
    more = {"mappedFileSizeCommitLog": LOG_FILE_BYTES, "defaultTopicQueueNums": QUEUES}
    return Broker(
        engine,
        folder,
        namesrv,
        broker_id=1 if role == "SLAVE" else 0,
        role=role,
        settings={**more, **settings},
        java_flags=BROKER_HEAP,
    )


class Site:
    """A name server and a broker of one engine, perhaps with a slave, in a folder of its own."""

    def __init__(
        self,
        engine: Engine,
        folder: Path,
        *,
        role: str = "ASYNC_MASTER",
        has_slave: bool = False,
        **settings: object,
    ) -> None:
        self.engine = engine
        self.folder = folder
        self.namesrv = NameServer(engine, folder / "ns", java_flags=NAMESRV_HEAP)
        address = self.namesrv.address
        self.master = broker(engine, folder / "master", address, role, **settings)
        self.slave = (
            broker(engine, folder / "slave", address, "SLAVE", **settings) if has_slave else None
        )

    @property
    def brokers(self) -> list[Broker]:
        return [self.master] if self.slave is None else [self.master, self.slave]

    @property
    def pids(self) -> list[int]:
        """Of the master, then of the slave."""
        return [each.process.pid for each in self.brokers]

    @property
    def address(self) -> str:
        """Of the name server, for clients."""
        return self.namesrv.address

    def start(self) -> None:
        self.namesrv.start()
        for each in self.brokers:
            each.start()

    def memory_mib(self) -> list[float]:
        return [anonymous_mib(pid) for pid in self.pids]

    def dispose(self) -> None:
        """End everything and delete its stores. SIGKILL: nobody reads them again."""
        for each in reversed(self.brokers):
            each.process.dispose()
        self.namesrv.process.dispose()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def sites(folder: Path, **options: object) -> Iterator[dict[Engine, Site]]:
    """Start one site per engine; both are there until the end, and the load alternates."""
    with ExitStack() as stack:
        found: dict[Engine, Site] = {}
        for engine in ENGINES:
            site = Site(engine, folder / engine, **options)  # type: ignore[arg-type]
            stack.callback(site.dispose)
            site.start()
            found[engine] = site
        yield found


def warm_up(
    generator: LoadGenerator, site: Site, topic: str, seconds: float, topics: int = 0
) -> None:
    """Wait until everything asked for answers SEND_OK, then load it singly and in batches.

    Args:
        topics: How many topics there are; ``topic`` is what their names begin with. 0: it is one.
    """
    address, half = site.address, int(seconds * 500)
    generator.first(address, f"{topic}0" if topics else topic, 120)
    several = {"topics": topics} if topics else {}
    for batch, threads in ((1, 64), (32, 4)):
        options = {"threads": threads, "batch": batch, "size": 1024, "millis": half}
        generator.send(address, topic, (), **options, **several)


def write_back() -> None:
    """Let the disk have what was written so far, so that it is not paid in what is measured."""
    os.sync()


def alternating(
    measures: Iterable[tuple[str, Callable[[], Figure]]], rounds: int
) -> dict[str, list[Figure]]:
    """Call each in turn, ``rounds`` times, every second round in the opposite order."""
    order = list(measures)
    found: dict[str, list[Figure]] = {name: [] for name, _ in order}
    for number in range(rounds):
        for name, measure in order if number % 2 == 0 else reversed(order):
            found[name].append(measure())
    return found


def medians(measures: Iterable[tuple[str, Callable[[], Window]]], rounds: int) -> dict[str, Window]:
    """Measure in alternation; return what :func:`middle` makes of each one's windows."""
    return {name: middle(found) for name, found in alternating(measures, rounds).items()}


def middle(windows: list[Window]) -> Window:
    """Return the window of medians; what went wrong is summed up."""
    median = statistics.median
    return Window(
        rate=median(each.rate for each in windows),
        cpu_us=tuple(
            median(column) for column in zip(*(each.cpu_us for each in windows), strict=True)
        ),
        p50_ms=median(each.p50_ms for each in windows),
        p99_ms=median(each.p99_ms for each in windows),
        p999_ms=median(each.p999_ms for each in windows),
        messages=sum(each.messages for each in windows),
        errors=sum(each.errors for each in windows),
        unsure=sum(each.unsure for each in windows),
        first_error=next((each.first_error for each in windows if each.first_error), ""),
    )


def say(text: str) -> None:
    """Tell how far the run is, where it does not get into the tables."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)
