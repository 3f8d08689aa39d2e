"""Actions of a Failback experiment.

An action waits until it is due, writes its undo to the ledger, acts, and returns once the effect is
proved. It raises ``ActivityFailed`` only: Chaos Toolkit turns any other exception into that and
goes on with the method, so stopping is the control's business.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from chaoslib.exceptions import ActivityFailed
from chaoslib.types import Configuration, Secrets

from failback.chaos import session as sessions
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import Role
from failback.chaos.failpoints import crash_point
from failback.chaos.faults import broker_faults
from failback.chaos.faults.undo import undo_open
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.run.drain import drain as drain_groups
from failback.chaos.run.prepare import await_slaves
from failback.chaos.run.scan import scan_stores as scan
from failback.chaos.run_folder.undo_ledger import CONTINUE, RELEASE, RESTORE_FILES
from failback.chaos.session import Session
from failback.chaos.toolkit import probes
from failback.chaos.toolkit.action_context import guarded, session_of, undo_open_calls
from failback.chaos.toolkit.broker_actions import (
    kill_broker,
    long_outage,
    pause_broker,
    replace_offset_file,
    terminate_broker,
)
from failback.chaos.toolkit.group_actions import (
    reset_handlers,
    restart_consumers,
    set_handler,
    subscribe_consumers,
    unsubscribe_consumers,
)
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)

__all__ = [
    "begin_faults",
    "do_nothing",
    "drain",
    "kill_broker",
    "long_outage",
    "pause_broker",
    "recover",
    "release_broker",
    "replace_offset_file",
    "reset_handlers",
    "restart_consumers",
    "restore_offset_file",
    "resume_broker",
    "scan_stores",
    "set_handler",
    "start_broker",
    "subscribe_consumers",
    "terminate_broker",
    "undo_outstanding",
    "unsubscribe_consumers",
]


def begin_faults(configuration: Configuration = None, secrets: Secrets = None) -> dict[str, Any]:
    """Fix run zero: all ``at`` times of the schedule count from here."""
    session = session_of(configuration)
    guarded(lambda: await_slaves(session))
    zero = now()
    session.stage = sessions.INJECTING
    session.rec.zero = zero
    session.rec.log.write("life", state="RUN_ZERO")
    session.progress("run zero")
    return {"run": session.run, "zero": list(zero)}


def do_nothing(
    duration_seconds: float = 60.0,
    at_seconds: float = 0.0,
    fid: str = "",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """F0: let time pass under observation."""
    session = session_of(configuration)

    def act() -> dict[str, Any]:
        intended = broker_faults.wait_for_time(session, fid, at_seconds, "")
        record = FaultRecord(fid, "none", "nobody", session.schedule.seeds["victims"])
        record.intended_ns = intended
        stamp = now()
        record.issued, record.honest = (stamp, stamp), True
        session.phases.fault_begun(stamp.mono_ns)
        session.rec.open_fault(record)
        session.rec.fault_row(record, "NONE", observed=stamp, observer="harness")
        session.sleep_until(stamp.mono_ns + round(session.scaled(duration_seconds) * 1e9))
        session.rec.healed(record, now())
        session.phases.fault_healed(time.monotonic_ns())
        return session.rec.evidence(record, "effect")

    return guarded(act)


def restore_offset_file(
    pair: str,
    role: Role = "master",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """Undo of :func:`replace_offset_file` while the broker is held; safe to repeat."""
    return _undo(configuration, pair, role, RESTORE_FILES)


def release_broker(
    pair: str,
    role: Role = "master",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """Take every hold of a pair's brokers of this role away; safe to repeat."""
    return _undo(configuration, pair, role, RELEASE)


def start_broker(
    pair: str,
    role: Role = "master",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """Undo of :func:`terminate_broker`: the hold away and the broker started; safe to repeat."""
    return _undo(configuration, pair, role, RELEASE)


def resume_broker(
    pair: str,
    role: Role = "master",
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """Undo of :func:`pause_broker`; safe to repeat."""
    return _undo(configuration, pair, role, CONTINUE)


def recover(
    hold_seconds: float = 10.0,
    cooldown_seconds: float = 60.0,
    timeout_seconds: float = 300.0,
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """Wait until every fault is healed as observed and traffic is steady, then cool down.

    The result of the steady state is kept for the hypothesis after the method.
    """
    session = session_of(configuration)

    def act() -> dict[str, Any]:
        session.stage = sessions.RECOVERING
        session.progress("waiting for recovery")
        results = session.results
        if not session.wait_for(session.all_healed, timeout_seconds):
            results.recovered = False
            results.recovered_why = "; ".join(_not_healed(session))
            results.steady_now = {"steady": False, "why": [results.recovered_why]}
            raise ActivityFailed(f"not recovered in {timeout_seconds:g} s: {results.recovered_why}")
        steady = session.experiment.spec.steady_state
        kept = probes.hold_steady(
            session,
            steady.min_produce_per_second,
            None,  # a backlog after an outage is what is measured, not a fault that is left
            None,
            hold_seconds,
            timeout_seconds,
        )
        results.recovered = bool(kept["steady"])
        results.recovered_why = "; ".join(kept["why"])
        results.steady_now = kept
        session.progress(f"recovered, cooling down {session.scaled(cooldown_seconds):g} s")
        session.sleep_until(time.monotonic_ns() + round(session.scaled(cooldown_seconds) * 1e9))
        return {"recovered": results.recovered, "steady": kept}

    return guarded(act)


def drain(
    timeout_seconds: float = 120.0,
    quiet_seconds: float = 5.0,
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """Stop the producers and wait until every group has handled everything."""
    session = session_of(configuration)

    def act() -> dict[str, Any]:
        session.stage = sessions.DRAINING
        session.progress("draining")
        result = drain_groups(session, timeout_seconds, quiet_seconds)
        session.results.drained = result.drained
        session.results.drain_open = list(result.open)
        session.phases.drain_end = time.monotonic_ns()
        crash_point("drained")
        if not result.drained:
            logger.warning("not drained: %s", "; ".join(result.open))
        return {"drained": result.drained, "open": list(result.open)}

    return guarded(act)


def scan_stores(
    timeout_seconds: float = 300.0,
    configuration: Configuration = None,
    secrets: Secrets = None,
) -> dict[str, Any]:
    """Read every queue of every pair once into table ``scan``."""
    session = session_of(configuration)

    def act() -> dict[str, Any]:
        session.progress("scanning the stores")
        result = scan(session, timeout_seconds)
        session.results.scanned = result.complete
        session.results.scan_rows = result.rows
        return {
            "complete": result.complete,
            "rows": result.rows,
            "problems": list(result.problems),
        }

    return guarded(act)


def undo_outstanding(
    configuration: Configuration = None, secrets: Secrets = None
) -> dict[str, Any]:
    """Last rollback of every experiment: replay what the ledger still has open."""
    session = sessions.find(configuration)
    if session is None:
        return {"undone": [], "still_open": []}
    session.in_rollback = True
    try:
        return undo_open(
            session.ledger,
            session.target,
            seconds=session.experiment.spec.heal_deadline_seconds,
            tell=session.progress,
            faults_only=True,
        )
    except FailbackError as error:
        raise ActivityFailed(str(error)) from error


# --- helpers -------------------------------------------------------------------------------------


def _not_healed(session: Session) -> list[str]:
    waiting = []
    for fid, record in session.faults().items():
        if record.issued is None or "healed_ns" in record.observed:
            continue
        seen = [name.removesuffix("_ns") for name in record.observed if name.endswith("_ns")]
        where = f" ({record.victim.pair})" if record.victim else ""
        waiting.append(f"{fid}{where} is not healed, seen so far: {', '.join(seen) or 'nothing'}")
    return waiting


def _undo(configuration: Configuration, pair: str, role: Role, call: str) -> dict[str, Any]:
    """Undo what the ledger has open of one kind on a pair's brokers of a role."""
    session = session_of(configuration)
    pods = {
        member.pod
        for found in (session.view.pairs if session.view else ())
        if found.name == pair
        for member in found.members
        if member.role == role
    }
    return undo_open_calls(session, call, pods)
