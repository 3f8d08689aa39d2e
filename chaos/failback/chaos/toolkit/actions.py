"""The actions that lead a run from its zero to the scan, and its last rollback.

Those of the faults and of their undos are made of the functions in the modules of the faults. An
action raises ``ActivityFailed`` only: Chaos Toolkit turns any other exception into that and goes on
with the method, so stopping is the control's business.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from chaoslib.exceptions import ActivityFailed
from chaoslib.types import Configuration, Secrets

from failback.chaos import session as sessions
from failback.chaos.cluster.clock import now
from failback.chaos.errors import TargetError
from failback.chaos.failpoints import crash_point
from failback.chaos.faults.catalogue import FAULTS
from failback.chaos.faults.undo import undo_action, undo_open
from failback.chaos.run.drain import drain as drain_groups
from failback.chaos.run.prepare import await_slaves
from failback.chaos.run.scan import scan_stores as scan
from failback.chaos.session import Session
from failback.chaos.toolkit import probes
from failback.chaos.toolkit.action_context import action
from failback.protocol.errors import FailbackError

logger = logging.getLogger(__name__)

_OF_FAULTS: Final[Mapping[str, Callable[..., dict[str, Any]]]] = {
    **{each.kind.action: each.inject for each in FAULTS if each.inject},
    **{each.undo.action: undo_action(each) for each in FAULTS if each.undo and each.undo.action},
}
__all__ = ["begin_faults", "drain", "recover", "scan_stores", "undo_outstanding", *_OF_FAULTS]

# Chaos Toolkit looks actions up as attributes of this module.
globals().update({name: action(act) for name, act in _OF_FAULTS.items()})


@action
def begin_faults(session: Session) -> dict[str, Any]:
    """Fix run zero: all ``at`` times of the schedule count from here."""
    await_slaves(session)
    zero = now()
    session.stage = sessions.INJECTING
    session.rec.zero = zero
    session.rec.log.write("life", state="RUN_ZERO")
    session.progress("run zero")
    return {"run": session.run, "zero": list(zero)}


@action
def recover(
    session: Session,
    hold_seconds: float = 10.0,
    cooldown_seconds: float = 60.0,
    timeout_seconds: float = 300.0,
) -> dict[str, Any]:
    """Wait until every fault is healed as observed and traffic is steady, then cool down.

    The result of the steady state is kept for the hypothesis after the method.
    """
    session.stage = sessions.RECOVERING
    session.progress("waiting for recovery")
    results = session.results
    if not session.wait_for(session.all_healed, timeout_seconds):
        results.recovered = False
        results.recovered_why = "; ".join(_not_healed(session))
        results.steady_now = {"steady": False, "why": [results.recovered_why]}
        raise TargetError(f"not recovered in {timeout_seconds:g} s", results.recovered_why)
    # A backlog after an outage is what is measured, not a fault that is left.
    unlimited = {"max_lag_messages": None, "max_sync_age_seconds": None}
    given = {"hold_seconds": hold_seconds, "timeout_seconds": timeout_seconds}
    steady = session.experiment.spec.steady_state.model_copy(update={**unlimited, **given})
    kept = probes.hold_steady(session, steady)
    results.recovered = bool(kept["steady"])
    results.recovered_why = "; ".join(kept["why"])
    results.steady_now = kept
    session.progress(f"recovered, cooling down {session.scaled(cooldown_seconds):g} s")
    session.sleep_until(time.monotonic_ns() + round(session.scaled(cooldown_seconds) * 1e9))
    return {"recovered": results.recovered, "steady": kept}


@action
def drain(
    session: Session, timeout_seconds: float = 120.0, quiet_seconds: float = 5.0
) -> dict[str, Any]:
    """Stop the producers and wait until every group has handled everything."""
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


@action
def scan_stores(session: Session, timeout_seconds: float = 300.0) -> dict[str, Any]:
    """Read every queue of every pair once into table ``scan``."""
    session.progress("scanning the stores")
    result = scan(session, timeout_seconds)
    session.results.scanned = result.complete
    return {"complete": result.complete, "rows": result.rows, "problems": list(result.problems)}


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


def _not_healed(session: Session) -> list[str]:
    waiting = []
    for fid, record in session.faults().items():
        if record.issued is None or "healed_ns" in record.observed:
            continue
        seen = [name.removesuffix("_ns") for name in record.observed if name.endswith("_ns")]
        where = f" ({record.victim.pair})" if record.victim else ""
        waiting.append(f"{fid}{where} is not healed, seen so far: {', '.join(seen) or 'nothing'}")
    return waiting
