"""The frame of every action: the session it belongs to, and errors as Chaos Toolkit wants them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

from chaoslib.exceptions import ActivityFailed
from chaoslib.types import Configuration, Secrets

from failback.chaos import session as sessions
from failback.chaos.session import Session
from failback.protocol.errors import FailbackError

_T = TypeVar("_T")
_P = ParamSpec("_P")


def session_of(configuration: Configuration) -> Session:
    """Return the open session that an action belongs to. Raises ``ActivityFailed``."""
    session = sessions.find(configuration)
    if session is None or session.recorder is None:
        raise ActivityFailed("no run is open for this experiment: use failback experiment run")
    return session


def guarded(act: Callable[[], _T]) -> _T:
    """Every error of ours as ActivityFailed, with its own sentence."""
    try:
        return act()
    except FailbackError as error:
        raise ActivityFailed(str(error)) from error


def action(act: Callable[Concatenate[Session, _P], _T]) -> Callable[..., _T]:
    """Make an action of a function that takes the session first.

    Chaos Toolkit sees the other arguments, and passes ``configuration``, which names the session.
    """

    @functools.wraps(act)
    def run(
        *args: Any, configuration: Configuration = None, secrets: Secrets = None, **given: Any
    ) -> _T:
        session = session_of(configuration)
        return guarded(lambda: act(session, *args, **given))

    shown = list(inspect.signature(act).parameters.values())[1:]
    for name, annotation in (("configuration", "Configuration"), ("secrets", "Secrets")):
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        shown.append(inspect.Parameter(name, kind, default=None, annotation=annotation))
    returns = inspect.signature(act).return_annotation
    run.__signature__ = inspect.Signature(shown, return_annotation=returns)  # type: ignore[attr-defined]
    return run
