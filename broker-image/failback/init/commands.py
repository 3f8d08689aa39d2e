"""What runs beside the init, through exec: kill, hold, release, status."""

from __future__ import annotations

import json
import signal
import sys
from typing import Final

from failback.init import processes
from failback.init.arguments import Expected, Kill
from failback.init.processes import DEAD_STATES, Gone, Identity
from failback.init.records import Record, RunDirectory

DONE, NO_SUCH_CHILD, REFUSED = 0, 1, 4
_DEATHS_SHOWN: Final = 64


def kill(request: Kill, directory: RunDirectory) -> int:
    """Signal exactly the child and print the receipt, one JSON object."""
    record = directory.child()
    if record is None:
        return _fail(NO_SUCH_CHILD, f"no child has been started in {directory.path}")
    child = Identity(record["pid"], record["ticks"])
    refusal = _refusal(record, child, request.expect)
    if refusal is not None:
        return _fail(REFUSED, refusal)
    if processes.state_of(child) in (None, *DEAD_STATES):
        return _fail(NO_SUCH_CHILD, f"process {child.pid} has ended")
    try:
        if request.hold:
            directory.hold(request.by or "failback-init kill", request.until)
        if request.signum == signal.SIGSTOP and request.until is not None:
            directory.pause(child, request.until)
        directory.signal_sent(child, request.signum, {"by": request.by or "failback-init kill"})
    except OSError as error:  # a death whose cause is nowhere would be taken for another's
        return _fail(REFUSED, f"{directory.path}: {error.strerror}; no signal was sent")
    _announce(child, request.signum)
    try:
        issued, returned = processes.send(child, request.signum)
    except Gone:
        return _fail(NO_SUCH_CHILD, f"process {child.pid} has ended")
    receipt = {
        **child._asdict(),
        "signum": request.signum,
        "issued": issued._asdict(),
        "returned": returned._asdict(),
        "held": directory.held(),
    }
    print(json.dumps(receipt), flush=True)
    return DONE


def _announce(child: Identity, signum: int) -> None:
    """Say on standard error that the signal is going out, in case nothing more can be said.

    The init ends with its child, and the kernel ends this command with the init: that may be before
    the receipt is out.
    """
    print(
        f"failback-init: signal {signum} to {child.pid}:{child.ticks}", file=sys.stderr, flush=True
    )


def _refusal(record: Record, child: Identity, expect: Expected | None) -> str | None:
    """Say why this child must not be signalled from here, or ``None``."""
    if child.pid == 1:
        return "the child is PID 1, which SIGKILL does not reach"
    if record["pid_namespace"] != processes.pid_namespace():
        return "the child is in another PID namespace: run this inside the container"
    if expect is not None and tuple(expect) != tuple(child):
        return f"expected {expect.pid}:{expect.ticks}, the child is {child.pid}:{child.ticks}"
    return None


def hold(by: str, directory: RunDirectory, until: float | None = None) -> int:
    """Keep the child down from its next end on, at most ``until`` seconds. Safe to repeat."""
    try:
        directory.hold(by, until)
    except OSError as error:
        return _fail(NO_SUCH_CHILD, f"{directory.path}: {error.strerror}")
    return DONE


def renew(seconds: float, directory: RunDirectory) -> int:
    """Let a hold and a stop that end by themselves last ``seconds`` from now."""
    try:
        found = directory.renew(seconds)
    except OSError as error:
        return _fail(NO_SUCH_CHILD, f"{directory.path}: {error.strerror}")
    return DONE if found else _fail(NO_SUCH_CHILD, "there is nothing to renew")


def release(directory: RunDirectory) -> int:
    """Let the child start again. Safe to repeat."""
    directory.release()
    return DONE


def status(as_json: bool, directory: RunDirectory) -> int:
    """Print what the run directory and the kernel say."""
    found = observe(directory)
    print(json.dumps(found) if as_json else describe(found), flush=True)
    return DONE


def observe(directory: RunDirectory) -> Record:
    """Return the child (``state`` is the kernel's letter), the hold, stops and deaths."""
    record = directory.child()
    child: Record | None = None
    if record is not None:
        state = processes.state_of(Identity(record["pid"], record["ticks"]))
        if state is not None and record["pid_namespace"] == processes.pid_namespace():
            child = {**record, "state": state}
    deaths = directory.lines("deaths.jsonl")
    return {
        "run_dir": directory.path,
        "child": child,
        "held": directory.held(),
        "hold": directory.hold_record(),
        "stops": directory.lines("stops.jsonl")[-_DEATHS_SHOWN:],
        "death_count": len(deaths),
        "deaths": deaths[-_DEATHS_SHOWN:],
    }


def describe(found: Record) -> str:
    """Put an observation into two or three lines."""
    child, hold_record = found["child"], found["hold"]
    lines = ["no child runs"]
    if child is not None:
        words = " ".join(child["command"])
        lines = [f"child {child['pid']}:{child['ticks']} state {child['state']}: {words}"]
    if hold_record is not None:
        lines.append(f"held by {hold_record.get('by') or 'a hold file'}")
    if found["deaths"]:
        last = found["deaths"][-1]
        how = f"signal {last['signal']}" if last["signal"] else f"exit code {last['code']}"
        lines.append(f"{found['death_count']} deaths, the last of {last['pid']} by {how}")
    return "\n".join(lines)


def _fail(code: int, text: str) -> int:
    print(f"failback-init: {text}", file=sys.stderr, flush=True)
    return code
