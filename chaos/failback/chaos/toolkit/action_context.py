"""The frame of actions and probes: the session they are of, errors as Chaos Toolkit wants them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from chaoslib.exceptions import ActivityFailed
from chaoslib.types import Configuration, Secrets

from failback.chaos import session as sessions
from failback.chaos.session import Session
from failback.protocol.errors import FailbackError

_C = TypeVar("_C")
_T = TypeVar("_T")
_P = ParamSpec("_P")
_Act = Callable[Concatenate[_C, _P], _T]
NO_RUN: Final = "no run is open for this experiment: use failback experiment run"


def session_of(configuration: Configuration) -> Session:
    """Return the open session that an action belongs to. Raises ``ActivityFailed``."""
    session = sessions.find(configuration)
    if session is None or session.recorder is None:
        raise ActivityFailed(NO_RUN)
    return session


def activity(
    find: Callable[[Configuration], _C],
) -> Callable[[_Act[_C, _P, _T]], Callable[..., _T]]:
    """Make an action or a probe of a function that takes first what ``find`` returns.

    Chaos Toolkit sees the other arguments, and passes ``configuration``, which names the session.
    Every error of ours becomes an ``ActivityFailed`` with its own sentence.
    """

    def make(act: _Act[_C, _P, _T]) -> Callable[..., _T]:
        @functools.wraps(act)
        def run(
            *args: Any, configuration: Configuration = None, secrets: Secrets = None, **given: Any
        ) -> _T:
            try:
                return act(find(configuration), *args, **given)
            except FailbackError as error:
                raise ActivityFailed(str(error)) from error

        shown = list(inspect.signature(act).parameters.values())[1:]
        for name, annotation in (("configuration", "Configuration"), ("secrets", "Secrets")):
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            shown.append(inspect.Parameter(name, kind, default=None, annotation=annotation))
        returns = inspect.signature(act).return_annotation
        run.__signature__ = inspect.Signature(shown, return_annotation=returns)  # type: ignore[attr-defined]
        return run

    return make


def action(act: _Act[Session, _P, _T]) -> Callable[..., _T]:
    """Make an action of a function that takes the session first."""
    return activity(session_of)(act)
