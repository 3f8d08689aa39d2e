"""What every workload process does beside its work: log, heartbeat rows, control, a clean end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from failback.chaos.cluster import processes
from failback.chaos.errors import ChaosError
from failback.chaos.workload.control import ControlServer, Operation
from failback.chaos.workload.plan import ProcessPlan
from failback.client.consumelog.hot_format import ConsumeLogError
from failback.client.consumelog.upload.beside import ShipperBeside
from failback.client.consumelog.writer import ConsumeLog
from failback.client.program.log_lines import begin_logging

logger = logging.getLogger(__name__)

BEAT_SECONDS = 1.0


def open_log(plan: ProcessPlan, role: str) -> ConsumeLog:
    """Open the hot log of this process. Raises ``ConsumeLogError``."""
    try:
        return ConsumeLog(
            plan.hot,
            run=plan.run,
            proc=plan.proc,
            proc_no=plan.proc_no,
            role=role,
            segment_bytes=plan.segment_bytes,
            segment_seconds=plan.segment_seconds,
        )
    except OSError as error:
        raise ConsumeLogError(str(error), plan.hot) from error


class NotAllShipped(ChaosError):
    """Some of the consume log is still in its folder."""

    def __init__(self, hot: Path) -> None:
        super().__init__(f"not all of the consume log was shipped; the rest is in {hot}")
        self.hot = hot


@contextmanager
def shipping(plan: ProcessPlan) -> Iterator[None]:
    """Have the consume log shipped while it is written, and to its end, if the plan says where.

    Raises:
        NotAllShipped: At the end, if the work itself did not fail.
    """
    if plan.ship is None:
        yield
        return
    ship = plan.ship
    beside = ShipperBeside(
        plan.hot, ship.to, token_file=ship.token_file, linger_seconds=ship.linger_seconds
    )
    failed = True
    try:
        yield
        failed = False
    finally:
        if not beside.end():
            left = NotAllShipped(plan.hot)
            if not failed:
                raise left
            logger.warning("%s", left)


@asynccontextmanager
async def living(
    plan: ProcessPlan, log: ConsumeLog, operations: Mapping[str, Operation], stop: asyncio.Event
) -> AsyncIterator[None]:
    """Write life and clock rows each second, answer the control socket, end at SIGTERM.

    A log that takes no more rows sets ``stop`` and is raised at the end.
    """
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    control: ControlServer | None = None
    if plan.control is not None:
        control = ControlServer(plan.control, operations)
        await control.start()
    beat = asyncio.create_task(_beat(log, stop), name="beat")
    try:
        yield
    finally:
        beat.cancel()
        results = await asyncio.gather(beat, return_exceptions=True)
        if control is not None:
            await control.close()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
        for result in results:
            if isinstance(result, ConsumeLogError):
                raise result


async def _beat(log: ConsumeLog, stop: asyncio.Event) -> None:
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    try:
        while True:
            log.write("life", state="RUNNING")
            log.write("clock", boot_id=boot_id, source="CLOCK_MONOTONIC", offset_ns=0, error_ns=0)
            await asyncio.sleep(BEAT_SECONDS)
    except ConsumeLogError:
        stop.set()
        raise


def write_pid_note(plan_file: Path) -> None:
    """Say beside the plan who runs it: a harness that comes later can find and stop it."""
    pid = os.getpid()
    note = {"pid": pid, "ticks": processes.read_ticks(pid)}
    plan_file.with_suffix(".pid").write_text(json.dumps(note), encoding="utf-8")


def last_words(log: ConsumeLog) -> None:
    """The last line of an orderly end: how far the log got."""
    print(json.dumps({"last_seq": log.last_seq}), flush=True)


def set_up_logging(verbose: bool = False) -> None:
    begin_logging(logging.DEBUG if verbose else logging.INFO)
