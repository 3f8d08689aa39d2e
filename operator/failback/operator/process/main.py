"""The operator process: puts its parts together, holds the Lease, stops gracefully."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version as package_version
from typing import Any, Final

from prometheus_client import disable_created_metrics

from failback.client.program import CommandParser, LineFormatter, name_fatal_signals
from failback.client.remoting.http_server import Endpoint, HttpServer, Reply
from failback.kube.asynchronous import Kube, connect
from failback.operator.brokers.operator_keys import OperatorKeys
from failback.operator.brokers.peers import Peers
from failback.operator.controller import handlers
from failback.operator.controller.carry_out import CarryOut
from failback.operator.controller.clock import StableClock
from failback.operator.controller.cluster_kinds import (
    BrokerClusterKind,
    Dependencies,
    NameServerKind,
)
from failback.operator.controller.job_kinds import ExperimentKind, ReportKind
from failback.operator.controller.loops import Loops
from failback.operator.controller.metadata_kinds import kinds_on_cluster
from failback.operator.controller.observe import Observer
from failback.operator.controller.passes import Kind, Passes
from failback.operator.controller.recheck import Recheck
from failback.operator.controller.snapshot_kind import OffsetSnapshotKind
from failback.operator.kubernetes.conflicts import Conflicts
from failback.operator.kubernetes.events import Recorder
from failback.operator.kubernetes.leader import lead
from failback.operator.kubernetes.store import Store
from failback.operator.metrics import Metrics
from failback.operator.planning.plan.memory import Shared
from failback.operator.settings import MANAGER, Settings, read_settings

logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 5.0
_TIDY_SECONDS: Final = 20.0
_THRESHOLDS: Final = (2_000, 10, 50)
"""Of the garbage collector: new objects, and collections of the younger generation."""


async def operate(settings: Settings) -> None:
    """Run the operator until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stop.set)
    metrics = Metrics(
        version=settings.version,
        kopf=package_version("kopf"),
        kubernetes=package_version("kubernetes"),
    )
    vitals = _Vitals()
    async with (
        serve_health(
            settings.http_host,
            settings.http_port,
            metrics,
            ready=vitals.not_ready,
        ) as port,
        connect(metrics, MANAGER, timeout_seconds=settings.api_timeout_seconds) as kube,
    ):
        logger.info("failback operator %s serves health on port %d", settings.version, port)
        if settings.leader_election:
            vitals.standing_by = True
            async with lead(kube, settings, stop):
                vitals.standing_by = False
                await _serve(settings, metrics, kube, stop, vitals)
        else:
            await _serve(settings, metrics, kube, stop, vitals)


@dataclass(slots=True)
class _Vitals:
    """What the health pages say. An operator that waits for the Lease is well, and ready to take
    over."""

    watches: handlers.Watches | None = None
    standing_by: bool = False

    def not_ready(self) -> str:
        """Return what is missing, empty when nothing is."""
        if self.standing_by:
            return ""
        return "starting" if self.watches is None else self.watches.first_lists.problem()


async def _serve(
    settings: Settings, metrics: Metrics, kube: Kube, stop: asyncio.Event, vitals: _Vitals
) -> None:
    if stop.is_set():
        return
    shared, stable = Shared(), StableClock()
    store = Store(shared)
    peers = Peers(
        metrics,
        timeout_seconds=settings.admin_timeout_seconds,
        scale=settings.poll_scale,
        clock=stable,
        resync_seconds=settings.resync_seconds,
    )
    observer = Observer(
        store,
        peers,
        kube,
        optional_kinds=_optional_kinds(settings),
        own_access=OperatorKeys(settings.access_folder),
        clock=stable,
    )
    dependencies = Dependencies(settings, observer, metrics, stable=stable, shared=shared)
    kinds: dict[str, Kind] = {
        "NameServer": NameServerKind(dependencies),
        "BrokerCluster": BrokerClusterKind(dependencies),
        **kinds_on_cluster(dependencies, store),
        "OffsetSnapshot": OffsetSnapshotKind(dependencies, store, kube, peers),
        "ChaosExperiment": ExperimentKind(dependencies, store, kube),
        "ReconsumptionReport": ReportKind(dependencies, store, kube),
    }
    watches = handlers.Watches(store, settings, kinds)
    carry_out = CarryOut(kube, peers, store, Conflicts(), metrics)
    passes = Passes(kube, store, carry_out, Recorder(kube), metrics, kinds)
    loops = Loops(
        passes,
        resync_seconds=settings.resync_seconds,
        poll_seconds=_POLL_SECONDS * settings.poll_scale,
        exists=watches.exists,
        dependents=watches.dependents,
    )
    watches.attach(loops)

    recheck = Recheck(
        kube,
        store,
        kinds=handlers.WATCHED,
        namespaces=settings.namespaces,
        period_seconds=settings.resync_seconds,
        wake=watches.notice,
    )
    aside = [
        asyncio.create_task(recheck.run(), name="recheck"),
        asyncio.create_task(_give_back_memory(shared), name="memory"),
    ]
    metrics.late = loops.late
    vitals.watches = watches
    try:
        await handlers.watch(watches, settings, stop)
    finally:
        for task in aside:
            task.cancel()
        await loops.close()
        await peers.close()
        logger.info("stopped")


def _optional_kinds(settings: Settings) -> list[str]:
    """Return the optional kinds that this operator has the right to make."""
    given = {"PodMonitor": settings.pod_monitors, "SparkApplication": settings.spark_operator}
    return [kind for kind, allowed in given.items() if allowed]


class _JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found)


def set_up_logging(settings: Settings) -> None:
    """Log to stderr, one line per record."""
    name_fatal_signals()
    handler = logging.StreamHandler(sys.stderr)
    if settings.log_format == "json":
        handler.setFormatter(_JsonFormatter())
    else:
        handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    for noisy in ("kopf.objects", "kopf._core", "kopf.activities"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def _collect_rarely() -> None:
    """Have the garbage collector look seldom, and never at what the imports made.

    Decoded objects of the API server live long and hold no cycles. With the interpreter's own
    thresholds, looking through them took a fifth of the CPU of a start with 200 clusters.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


async def _give_back_memory(shared: Shared) -> None:
    """Forget parts of objects that are gone, and return free pages to the system, where libc can.

    Answers of the API server come and go beside objects that stay: a tenth of the memory is free
    and still the process's. ``malloc_trim`` is glibc's.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while True:
        await asyncio.sleep(_TIDY_SECONDS)
        shared.sweep()
        if trim is not None:
            trim(0)


def run(argv: Sequence[str]) -> int:
    """Run ``failback operator run``: everything about it is set by FAILBACK_* variables."""
    words = "Run the operator. Everything about it is set by FAILBACK_* environment variables."
    CommandParser("failback operator run", words).parse_args(argv)
    return main(read_settings())


def main(settings: Settings) -> int:
    """Run the operator; return the exit code."""
    set_up_logging(settings)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    _collect_rarely()
    asyncio.run(operate(settings))
    return 0


@asynccontextmanager
async def serve_health(
    host: str,
    port: int,
    metrics: Metrics,
    *,
    ready: Callable[[], str],
) -> AsyncIterator[int]:
    """Serve until the block ends; yield the port.

    ``/healthz`` says that the event loop turns, by answering at all. A pass that is late is one
    resource's: a restart would make all others late, too.

    Args:
        ready: Returns what is missing for readiness, empty when nothing is.
    """
    server = HttpServer(
        {
            "/healthz": _answer(str),
            "/readyz": _answer(ready),
            "/metrics": lambda _method: Reply(200, metrics.text()),
        }
    )
    try:
        yield await server.listen(host, port)
    finally:
        await server.close()


def _answer(problem: Callable[[], str]) -> Endpoint:
    def answer(_method: str) -> Reply:
        text = problem()
        return Reply(503 if text else 200, (text or "ok").encode())

    return answer
