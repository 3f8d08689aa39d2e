"""The control socket: one JSON object per line each way, on a Unix socket.

    {"cmd": "view"}                                what runs, as the chaos harness needs it
    {"cmd": "status"}                              status of every custom resource, progress
    {"cmd": "hold", "pod": P, "undo": ID}          do not start P again until release
    {"cmd": "release", "pod": P}
    {"cmd": "limit", "pod": P, "seconds": S}       end a hold, a SIGSTOP and faults of P in S s;
                                                   0: never
    {"cmd": "fault", "pod": P, "fault": F, "value": {}}  change its clock, files, disk or
                                                   memory
    {"cmd": "end-faults", "pod": P}                take that back
    {"cmd": "stop", "pod": P, "grace_seconds": S}  SIGTERM, grace, SIGKILL; it stays down
    {"cmd": "start", "pod": P}
    {"cmd": "version", "pod": P, "version": V}     run Apache's V from the next start of P on
    {"cmd": "deaths", "since": N}                  wait statuses with a number above N
    {"cmd": "down"}                                stop everything and end

The reply is ``{"ok": true, ...}`` or ``{"ok": false, "error": "..."}``.

``bring_down`` also ends what a killed runtime left behind: by pid and start time only.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final

from failback.common.text import why
from failback.operator.local import network
from failback.operator.local.faults import clean_up
from failback.operator.local.process import Identity, end_stranger
from failback.operator.local.root import Root, RootInUse, read_json, write_json
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)

Reply = dict[str, Any]
Command = Callable[[Mapping[str, Any]], Awaitable[Reply]]
_ANSWER_SECONDS: Final = 5.0
_DOWN_SECONDS: Final = 600.0
_LONGEST_SOCKET_PATH: Final = 100  # sun_path holds 108 bytes on Linux, 104 elsewhere


class CommandError(FailbackError):
    """The runtime refuses a command."""


class RuntimeAway(FailbackError):
    """No runtime answers for this root."""

    exit_code: ClassVar[int] = 2
    """Of the command line: the user has to start one first."""


class ControlServer:
    """Serves the commands of one runtime."""

    def __init__(self, root: Root, commands: Mapping[str, Command]) -> None:
        self._root = root
        self._commands = commands
        self._tasks: set[asyncio.Task[None]] = set()
        self._answering = 0
        self._all_answered = asyncio.Event()
        self._all_answered.set()
        self._server: asyncio.Server | None = None
        self._folder: str | None = None

    async def start(self) -> None:
        """Listen, then say where in ``control.json``."""
        path = self._root.path / "control.sock"
        if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
            self._folder = tempfile.mkdtemp(prefix="failback-")
            path = Path(self._folder) / "control.sock"
        path.unlink(missing_ok=True)
        self._server = await asyncio.start_unix_server(self._accept, path)
        path.chmod(0o600)
        me = Identity.of(os.getpid())
        ticks = me.ticks if me is not None else 0
        control = {"socket": str(path), "pid": os.getpid(), "ticks": ticks}
        write_json(self._root.control_file, control)

    async def stop(self) -> None:
        """Stop listening, let running commands answer, remove ``control.json``."""
        if self._server is not None:
            self._server.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                await self._all_answered.wait()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._root.control_file.unlink(missing_ok=True)
        (self._root.path / "control.sock").unlink(missing_ok=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                self._count(+1)
                try:
                    reply = await self._answer(line)
                    writer.write(json.dumps(reply).encode() + b"\n")
                    await writer.drain()
                finally:
                    self._count(-1)
        except (ConnectionError, ValueError) as error:  # it hung up, or sent an endless line
            logger.debug("control connection: %s", error)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def _count(self, change: int) -> None:
        self._answering += change
        if self._answering:
            self._all_answered.clear()
        else:
            self._all_answered.set()

    async def _answer(self, line: bytes) -> Reply:
        try:
            request = json.loads(line)
            name = request["cmd"]
            if name not in self._commands:
                raise CommandError(f'unknown command "{name}", there is {sorted(self._commands)}')
            return {"ok": True, **await self._commands[name](request)}
        except FailbackError as error:
            return {"ok": False, "error": str(error)}
        except (ValueError, KeyError, TypeError) as error:
            return {"ok": False, "error": f"bad request: {type(error).__name__}: {error}"}


def call(root: Root, command: str, /, *, timeout: float = 10.0, **arguments: Any) -> Reply:
    """Send one command to the runtime of ``root`` and return its reply.

    Raises:
        RuntimeAway: There is none, or it does not answer within ``timeout`` seconds.
        CommandError: It says no.
    """
    control = read_json(root.control_file)
    if control is None:
        raise RuntimeAway(f"no local cluster at {root.path}; start one with: failback up FILE")
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(control["socket"])
            connection.sendall(json.dumps({"cmd": command, **arguments}).encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
    except OSError as error:
        alive = Identity(control["pid"], control["ticks"]).alive()
        state = "does not answer" if alive else "was killed"
        problem = f"the local cluster at {root.path} (pid {control['pid']}) {state}: {why(error)}"
        raise RuntimeAway(problem) from error
    if not line:
        raise RuntimeAway(f"the local cluster at {root.path} hung up")
    reply: Reply = json.loads(line)
    if not reply.pop("ok"):
        raise CommandError(reply["error"])
    return reply


def bring_down(root: Root) -> list[str]:
    """Stop everything of a root, through its runtime or without it; return what was done.

    Raises:
        RuntimeAway: The runtime lives but does not answer.
    """
    if not root.path.exists():
        return []
    try:
        with root.lock():
            return [*end_leftovers(root), *clean_up(root)]
    except RootInUse:
        pass  # a runtime lives: as their parent it stops its own children
    control = read_json(root.control_file) or {}
    reply = call(root, "down", timeout=_DOWN_SECONDS)
    runtime = Identity(control["pid"], control["ticks"])
    deadline = time.monotonic() + 10
    while runtime.alive():
        if time.monotonic() > deadline:
            raise RuntimeAway(f"the runtime of {root.path} stopped its pods but does not end")
        time.sleep(0.02)
    return [f"{pod}: stopped" for pod in reply["stopped"]]


def end_leftovers(root: Root) -> Iterator[str]:
    """End the children of a runtime that was killed; yield a line for each.

    The caller holds the root's lock. Slaves go first, then masters, then name servers. A
    process that has one of our pids but another start time belongs to another program and is left.
    """
    state: dict[str, Any] = read_json(root.state_file) or {}
    pods = state.get("pods", {})
    for group in state.get("stop_order", ()):
        living = {
            name: Identity(pods[name]["pid"], pods[name]["ticks"])
            for name in group
            if name in pods and pods[name]["pid"] is not None
        }
        with ThreadPoolExecutor(max_workers=max(1, len(living))) as pool:
            results = {
                name: pool.submit(end_stranger, identity, pods[name]["grace_seconds"])
                for name, identity in living.items()
            }
        for name, result in results.items():
            if (how := result.result()) != "was gone already":
                yield f"{name}: {how} (left by a runtime that was killed)"
    with suppress(FileNotFoundError):
        root.control_file.unlink()
    yield from network.remove(root)
    if state:
        root.state_file.unlink()
