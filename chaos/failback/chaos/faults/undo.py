"""Take back what the undo ledger has open, and see that it is gone.

Used by the last rollback of a run and by ``failback run --heal`` after a harness was killed. Every
undo is safe twice. An entry is closed only when the system was seen without the fault.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from failback.chaos.cluster.target import StoreWriter, Target
from failback.chaos.cluster.unix_socket import is_deserted
from failback.chaos.cluster.view import Member, ProcessIdentity, ProcessState
from failback.chaos.errors import TargetError
from failback.chaos.run_folder.undo_ledger import (
    CONTINUE,
    RELEASE,
    RESET_HANDLERS,
    RESTORE_FILES,
    START_CONSUMERS,
    STOP_WORKLOAD,
    SUBSCRIBE,
    UndoEntry,
    UndoLedger,
)
from failback.chaos.workload.process import ANSWER_SECONDS, ask, stop_orphan
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)


def undo_open(
    ledger: UndoLedger,
    target: Target,
    *,
    seconds: float,
    tell: Callable[[str], None] = lambda _: None,
    faults_only: bool = False,
    only: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Undo every open entry, newest first, again and again with back-off until it is healed.

    Returns ``{"undone": [ids], "still_open": [sentences]}``; never raises for an undo that failed.
    """
    deadline = time.monotonic() + seconds
    done: list[str] = []
    wait = 1.0
    while True:
        left: list[tuple[UndoEntry, str]] = []
        for entry in ledger.open_entries(faults_only=faults_only):
            if only is not None and entry.id not in only:
                continue
            why = _undo_once(ledger, target, entry, deadline)
            if why:
                left.append((entry, why))
            else:
                done.append(entry.id)
        if not left or time.monotonic() >= deadline:
            return {"undone": done, "still_open": [_sentence(*each) for each in left]}
        tell(f"still open: {_sentence(*left[0])}")
        time.sleep(min(wait, max(0.0, deadline - time.monotonic())))
        wait = min(wait * 2, 30.0)


def _undo_once(ledger: UndoLedger, target: Target, entry: UndoEntry, deadline: float) -> str:
    """Undo one entry; return why it is still open, or nothing."""
    try:
        observation = _UNDO[entry.call](target, entry.args, deadline)
    except FailbackError as error:
        logger.warning("undo of %s failed: %s", entry.id, error)
        return str(error)
    except OSError as error:
        return str(error)
    ledger.mark_undone(entry.id)
    if observation is None:
        return "undone, but not yet seen healed"
    ledger.mark_healed(entry.id, observation)
    return ""


def _release(target: Target, args: Mapping[str, Any], deadline: float) -> dict[str, Any] | None:
    """Release a held broker and see it answer."""
    pod = str(args["pod"])
    member = _member(target, pod)
    if member.running and target.pod_state(pod) != "Held":
        target.release(member)
        return {"pod": pod, "running": True}
    target.release(member)
    target.start(member)
    end = min(deadline, time.monotonic() + 30)
    while True:
        found = _member(target, pod)
        if found.running and found.identity is not None and found.identity.boot_ms is not None:
            return {"pod": pod, "pid": found.identity.pid, "boot_ms": found.identity.boot_ms}
        if time.monotonic() >= end:
            return None
        time.sleep(0.2)


def _continue(target: Target, args: Mapping[str, Any], deadline: float) -> dict[str, Any] | None:
    """SIGCONT exactly the process that was stopped; one that is gone needs none."""
    victim = ProcessIdentity(
        str(args["pod"]),
        int(args["pid"]),
        int(args["ticks"]),
        container=str(args.get("container", "")),
        uid=str(args.get("uid", "")),
    )
    state = target.process_state(victim)
    if state is ProcessState.STOPPED:
        target.signal(victim, signal.SIGCONT)
        end = min(deadline, time.monotonic() + 10)
        while state is ProcessState.STOPPED and time.monotonic() < end:
            time.sleep(0.02)
            state = target.process_state(victim)
    return None if state is ProcessState.STOPPED else {"pid": victim.pid, "state": state.value}


def _start_consumers(
    _target: Target, args: Mapping[str, Any], _deadline: float
) -> dict[str, Any] | None:
    """A run that is being undone starts nobody: its consumers end with it."""
    return {"ended_with": "the run", "members": args.get("members")}


def _restore_files(
    target: Target, args: Mapping[str, Any], _deadline: float
) -> dict[str, Any] | None:
    """Put saved store files back, as long as the broker has not started with the other ones."""
    pod = str(args["pod"])
    member = _member(target, pod)
    if member.running or target.pod_state(pod) != "Held":
        return {"pod": pod, "restored": False, "why": "it has started since"}
    if not isinstance(target, StoreWriter):
        raise TargetError(f"restore files of {pod}", "this target cannot write store files")
    for path, saved in dict(args["files"]).items():
        target.write_store(member, path, None if saved is None else Path(saved).read_bytes())
    return {"pod": pod, "restored": True}


def _reset_handlers(
    _target: Target, args: Mapping[str, Any], _deadline: float
) -> dict[str, Any] | None:
    """Turn the knobs of handlers back; a process that is gone has none."""
    shown = _told(args["sockets"], {"op": "set-handler", **args["knobs"]})
    healed = all(each.get("handler", {}).get("knobs") == args["knobs"] for each in shown)
    return {"answered": len(shown), "knobs": args["knobs"]} if healed else None


def _subscribe(_target: Target, args: Mapping[str, Any], _deadline: float) -> dict[str, Any] | None:
    """Have members subscribe; the queues come back to a process that is gone with its next life."""
    shown = _told(args["sockets"], {"op": "subscribe"})
    healed = all(each.get("subscribed") for each in shown)
    return {"answered": len(shown)} if healed else None


def _told(sockets: Sequence[str], request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Tell workload processes something; return what those that live say of themselves then.

    One that lives and is silent says nothing: that is not seen healed.
    """
    shown = []
    for socket in map(Path, sockets):
        if not is_deserted(socket, ANSWER_SECONDS):
            ask(socket, request)
            shown.append(ask(socket, {"op": "stats"}))
    return shown


def _stop_workload(
    _target: Target, args: Mapping[str, Any], _deadline: float
) -> dict[str, Any] | None:
    control = Path(args["socket"])
    if not stop_orphan(Path(args["plan"]), control):
        return None
    control.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # the folder goes with the last socket in it
        control.parent.rmdir()
    return {"stopped": True}


_UNDO: dict[str, Callable[[Target, Mapping[str, Any], float], dict[str, Any] | None]] = {
    RELEASE: _release,
    CONTINUE: _continue,
    START_CONSUMERS: _start_consumers,
    RESTORE_FILES: _restore_files,
    RESET_HANDLERS: _reset_handlers,
    SUBSCRIBE: _subscribe,
    STOP_WORKLOAD: _stop_workload,
}


def _member(target: Target, pod: str) -> Member:
    for member in target.view().members:
        if member.pod == pod:
            return member
    raise TargetError(f"pod {pod}", "not part of the cluster")


def _sentence(entry: UndoEntry, why: str) -> str:
    named = ", ".join(f"{key} {value}" for key, value in entry.args.items())
    return f"{entry.call} ({named}): {why}"
