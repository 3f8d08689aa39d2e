"""What opens a run, ends it before its time and closes it: the control ``failback-recorder``.

It is the one control of every Failback experiment. Chaos Toolkit itself neither stops at a failed
action nor notices a silent instrument, so this control does: it opens the run before the
hypothesis, interrupts when an action failed, a fault was not proved or the recorder has a gap, and
closes the run folder at the end. Under ``chaos run`` it also takes the lease and gives it back. It
fails closed: when it did not run to its end there is no
``closed.json``, and no analysis will say Pass.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import Any

from chaoslib.exceptions import InterruptExecution
from chaoslib.types import Activity, Configuration, Experiment, Journal, Run

from failback.chaos import session as sessions
from failback.chaos.errors import Aborted, GuardRefused
from failback.chaos.failpoints import crash_point
from failback.chaos.run.closing import close_run
from failback.chaos.run.prepare import prepare
from failback.chaos.run.repetition import finish, opened_again
from failback.chaos.session import Session
from failback.protocol.errors import ConfigError, FailbackError

logger = logging.getLogger(__name__)
_say = logging.getLogger("chaostoolkit").info
_again: dict[str, ExitStack] = {}
"""What is held for runs of ``chaos run``, by the run's name."""

__all__ = [
    "after_activity_control",
    "after_experiment_control",
    "before_experiment_control",
    "before_rollback_control",
]


def before_experiment_control(
    context: Experiment, configuration: Configuration = None, **kwargs: Any
) -> None:
    """Open the run folder, start recorder and workload, wait for the warm-up.

    A raise here interrupts before the method: every error becomes ``InterruptExecution``,
    because Chaos Toolkit swallows everything else.
    """
    session = sessions.find(configuration) or _open_again(context, configuration)
    try:
        session.take_signals()
        if not session.folder.is_open_here:
            session.folder.open()
        prepare(session)
        crash_point("prepared")
    except (GuardRefused, ConfigError) as error:
        session.refused = error
        raise InterruptExecution(str(error)) from error
    except (Aborted, FailbackError, OSError) as error:
        _note_stop(session, str(error))
        raise InterruptExecution(str(error)) from error
    except Exception as error:
        logger.exception("the run could not be prepared")
        _note_stop(session, f"internal error: {error}")
        raise InterruptExecution(str(error)) from error


def before_rollback_control(
    context: Experiment, configuration: Configuration = None, **kwargs: Any
) -> None:
    """From here on nothing may be interrupted: the remaining rollbacks would be lost."""
    session = sessions.find(configuration)
    if session is not None:
        session.in_rollback = True


def after_activity_control(
    context: Activity, state: Run = None, configuration: Configuration = None, **kwargs: Any
) -> None:
    """Interrupt when an action failed or the recorder has a gap; never during rollbacks."""
    session = sessions.find(configuration)
    if session is None or session.in_rollback or context.get("type") != "action":
        return
    name = context.get("name")
    if state is None or state.get("status") != "succeeded":
        why = _last_line((state or {}).get("exception"))
        _note_stop(session, f"{name}: {why}")
        raise InterruptExecution(f"{name} failed: {why}")
    gaps = session.recorder.gaps() if session.recorder else ["the recorder is not open"]
    if gaps:
        raise InterruptExecution(f"the recorder has a gap: {gaps[0]}")


def after_experiment_control(
    context: Experiment, state: Journal = None, configuration: Configuration = None, **kwargs: Any
) -> None:
    """Close the run: stop, seal, count, write closed.json, tell the journal."""
    session = sessions.find(configuration)
    if session is None or not session.folder.is_open_here:
        return
    try:
        close_run(session)
    except Exception as error:
        # Fails closed: a run without closed.json is not complete.
        logger.exception("the run could not be closed")
        session.close_error = str(error)
    if isinstance(state, dict):
        state["x-failback"] = {"run": session.run, "verdict_inputs": session.verdict_inputs()}
    held = _again.pop(session.run, None)
    if held is not None:
        with held:
            outcome = finish(session, state)
            _say(" ".join(filter(None, (outcome.run_dir, outcome.verdict, outcome.message))))


def _open_again(context: Experiment, configuration: Configuration) -> Session:
    with ExitStack() as held:
        try:
            session = held.enter_context(opened_again(context, configuration, _say))
        except (FailbackError, OSError, KeyError) as error:
            raise InterruptExecution(str(error)) from error
        _again[session.run] = held.pop_all()
    return session


def _note_stop(session: Session, why: str) -> None:
    if not session.results.aborted:
        session.results.aborted = session.stop_reason() or why


def _last_line(exception: Any) -> str:
    lines = [str(line).strip() for line in exception or [] if str(line).strip()]
    text = lines[-1] if lines else "no result"
    return text.rsplit("ActivityFailed: ", 1)[-1]
