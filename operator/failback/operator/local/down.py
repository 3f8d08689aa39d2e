"""Ending what a runtime left behind when it was killed: by pid and start time only."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from failback.operator.local.control import RuntimeAway, call
from failback.operator.local.process import Identity, end_stranger
from failback.operator.local.root import Root, RootInUse, read_json

_DOWN_SECONDS: Final = 600.0


def bring_down(root: Root) -> list[str]:
    """Stop everything of a root, through its runtime or without it; return what was done.

    Raises:
        RuntimeAway: The runtime lives but does not answer.
    """
    if not root.path.exists():
        return []
    try:
        with root.lock():
            return list(end_leftovers(root))
    except RootInUse:
        pass  # a runtime lives: it stops its own children, as their parent
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
    with contextlib.suppress(FileNotFoundError):
        root.control_file.unlink()
    if state:
        root.state_file.unlink()
