"""What every workload process does beside its work: log, heartbeat rows, control, a clean end."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from failback.chaos.errors import ChaosError
from failback.chaos.workload.plan import ProcessPlan
from failback.client.consumelog.hot_format import ConsumeLogError
from failback.client.consumelog.upload.beside import ShipperBeside
from failback.client.consumelog.writer import ConsumeLog

logger = logging.getLogger(__name__)

BEAT_SECONDS = 1.0


@contextmanager
def hot_log(plan: ProcessPlan, role: str) -> Iterator[ConsumeLog]:
    """The hot log of this process, which says as the last line how far it got.

    Raises:
        ConsumeLogError: It could not be opened.
    """
    try:
        log = ConsumeLog(
            plan.hot,
            run=plan.run,
            proc=bytes.fromhex(plan.proc) if plan.proc is not None else None,
            proc_no=plan.proc_no,
            role=role,
            segment_bytes=plan.segment_bytes,
            segment_seconds=plan.segment_seconds,
        )
    except OSError as error:
        raise ConsumeLogError(str(error), plan.hot) from error
    try:
        yield log
    finally:
        log.close()
        print(json.dumps({"last_seq": log.last_seq}), flush=True)


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


Operation = Callable[[Mapping[str, Any]], dict[str, Any] | None]
"""Request → answer; ``None`` where there is nothing to say but that it was done."""


class ControlServer:
    """Control channel of a workload process: a Unix socket, one JSON object per line each way.

    {"op": "stats"}                         figures of this process
    {"op": "first-ok", "after_ns": N}       producers: first send acknowledged after N
    {"op": "stop-sending"}                  producers: finish what is under way, send no more
    {"op": "set-handler", "mean_ms": ...}   consumers
    {"op": "unsubscribe"}, {"op": "subscribe"}   consumers: of their topic
    {"op": "stop"}                          end in order, as SIGTERM does
    """

    def __init__(self, path: Path, operations: Mapping[str, Operation]) -> None:
        self._path = path
        self._operations = operations
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, self._path)
        self._path.chmod(0o600)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self.answer(line)).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError) as error:  # it hung up, or sent an endless line
            logger.debug("control connection: %s", error)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            operation = self._operations[request["op"]]
        except (ValueError, KeyError, TypeError):
            return {"ok": False, "error": f"there is {', '.join(self._operations)}"}
        try:
            return {"ok": True, **(operation(request) or {})}
        except (ValueError, TypeError, KeyError) as error:
            return {"ok": False, "error": str(error)}
