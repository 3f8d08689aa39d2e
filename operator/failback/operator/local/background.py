"""Starting a runtime: in this process, or in the background."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from failback.client.program import begin_logging
from failback.operator.kinds.base import Resource
from failback.operator.local.control import RuntimeAway, bring_down, call
from failback.operator.local.root import Root, RootInUse
from failback.operator.local.runtime import LocalRuntime
from failback.operator.local.secrets import Secrets
from failback.operator.schema.decoding import decode
from failback.protocol.errors import FailbackError

_POLL_SECONDS: Final = 0.1
ISOLATE_NETWORK: Final = "--isolate-network"
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
READY_SECONDS: Final = 1500.0
"""More than the startup probes of name servers, masters and slaves take one after another."""


class StartFailed(FailbackError):
    """The runtime ended before everything was ready. ``exit_code`` is its own."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


async def serve(runtime: LocalRuntime, *, on_ready: Callable[[], None] = lambda: None) -> None:
    """Run a prepared runtime until SIGINT, SIGTERM or ``down``."""
    loop = asyncio.get_running_loop()
    for signum in _STOP_SIGNALS:
        loop.add_signal_handler(signum, runtime.stop)

    async def announce() -> None:
        await runtime.wait_ready()
        on_ready()

    announcing = asyncio.create_task(announce())
    try:
        await runtime.run()
    finally:
        announcing.cancel()
        await asyncio.wait([announcing])
        for signum in _STOP_SIGNALS:
            loop.remove_signal_handler(signum)


def start_in_background(
    root: Root,
    items: Sequence[Resource],
    secrets: Secrets | None = None,
    *,
    faults: Sequence[str] = (),
    isolate_network: bool = False,
) -> int:
    """Start a runtime of its own for ``root``; return its pid.

    Raises:
        RootInUse: One runs already.
    """
    root.create()
    if root.is_locked():
        with root.lock():  # raises, and names the pid
            pass
    documents = [item.model_dump(by_alias=True, exclude_unset=True) for item in items]
    words = [ISOLATE_NETWORK] if isolate_network else []
    with root.runtime_log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "failback.operator.local", str(root.path), *words, *faults],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    assert process.stdin is not None
    process.stdin.write(json.dumps([documents, secrets or {}]).encode())
    process.stdin.close()
    _children.append(process)
    return process.pid


# Kept, so that a background runtime that ends before this process is reaped.
_children: list[subprocess.Popen[bytes]] = []


def stop_background(root: Root, pid: int) -> None:
    """End a runtime that :func:`start_in_background` of this process started, also while it starts.

    One that has not taken its lock yet dies of the signal; a later one stops its pods first.
    """
    for child in _children:
        if child.pid == pid:
            child.terminate()
            child.wait()
    bring_down(root)


def wait_ready(
    root: Root,
    pid: int,
    progress: Callable[[dict[str, Any]], None] = lambda status: None,
    seconds: float = READY_SECONDS,
) -> None:
    """Return when the runtime ``pid`` says that everything is ready.

    Args:
        progress: Called with every answer to ``status``.

    Raises:
        StartFailed: It ended, or was not ready in time; the message has its last words.
    """
    deadline = time.monotonic() + seconds
    while True:
        for child in _children:
            if child.pid == pid and (code := child.poll()) is not None:
                raise StartFailed(_last_words(root), max(1, code))
        try:
            status = call(root, "status")
        except RuntimeAway:
            status = {}
        progress(status)
        if status.get("ready"):
            return
        if time.monotonic() > deadline:
            raise StartFailed(f"not ready after {seconds:g} s, see {root.runtime_log}")
        time.sleep(_POLL_SECONDS)


def _last_words(root: Root) -> str:
    lines = root.runtime_log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1].removeprefix("error: ") if lines else f"the runtime ended, see {root.path}"


def main(argv: Sequence[str]) -> int:
    """Be the background runtime: ``python -m failback.operator.local ROOT FAULT...``."""
    root, isolate = Root(argv[0]), ISOLATE_NETWORK in argv[1:]
    faults = [each for each in argv[1:] if each != ISOLATE_NETWORK]
    begin_logging(lines="%(asctime)s %(levelname)s %(message)s")
    try:
        documents, secrets = json.load(sys.stdin)
        items = [decode(document) for document in documents]
        with root.lock():
            runtime = LocalRuntime(
                root,
                log=lambda line: print(line, flush=True),
                faults=faults,
                isolate_network=isolate,
            )
            runtime.prepare(items, secrets)
            print(f"runtime {os.getpid()} of {root.path}", flush=True)
            asyncio.run(serve(runtime))
    except (FailbackError, RootInUse) as error:
        print(f"error: {error}", flush=True)
        return 2
    return 0
