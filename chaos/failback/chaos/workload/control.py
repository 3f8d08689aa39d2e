"""Control channel of a workload process: a Unix socket, one JSON object per line each way.

{"op": "stats"}                   figures of this process
{"op": "first-ok", "after_ns": N} producers: first acknowledged send after N (monotonic)
{"op": "stop-sending"}            producers: send nothing more, finish what is under way
{"op": "set-handler", "mean_ms": ...}   consumers
{"op": "unsubscribe"}, {"op": "subscribe"}   consumers: of their topic
{"op": "stop"}                    end in order, as SIGTERM does
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

Operation = Callable[[Mapping[str, Any]], dict[str, Any]]


class ControlServer:
    """Answers on one socket until closed."""

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
            return {"ok": True, **operation(request)}
        except (ValueError, TypeError, KeyError) as error:
            return {"ok": False, "error": str(error)}
