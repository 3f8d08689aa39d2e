"""All arms of a demo at the same time: started, waited for, stopped in order."""

from __future__ import annotations

import contextlib
import importlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from failback.cli.experiment.arms import ArmRun

PRELOAD_SECONDS: Final = 8.0
"""By then the arms wait for the outage to pass, and a processor is free."""
_REPORTS: Final = (
    "failback.analytics.report.make_report",
    "failback.analytics.report.page.html",
    "failback.analytics.analysis.engines.local",
)
_POLL_SECONDS: Final = 0.2


@contextlib.contextmanager
def running(arms: Sequence[ArmRun], stopping: Callable[[], None]) -> Iterator[None]:
    """Run all arms; the block begins when their runs are closed, while their clusters stop.

    A failing arm, Ctrl-C or SIGTERM ends the others in order. No process of theirs is left behind
    the block.

    Args:
        stopping: Called once, when the user stops them.

    Raises:
        KeyboardInterrupt: After everything was undone and stopped.
    """
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    for arm in arms:
        arm.start()
    try:
        _wait_until_counted(arms, stopping)
        yield
    finally:
        _end(arms)
        signal.signal(signal.SIGTERM, before)
    _raise_errors(arms)


def _wait_until_counted(arms: Sequence[ArmRun], stopping: Callable[[], None]) -> None:
    began, interrupted = time.monotonic(), False
    preloaded = False
    while not all(arm.closed.is_set() for arm in arms):
        try:
            for arm in arms:
                arm.closed.wait(_POLL_SECONDS)
            if any(arm.error is not None for arm in arms):
                _cancel(arms)
            if not preloaded and time.monotonic() - began >= PRELOAD_SECONDS:
                preloaded = True
                _preload()
        except KeyboardInterrupt:
            if not interrupted:
                stopping()
            interrupted = True
            _cancel(arms)
    if interrupted:
        raise KeyboardInterrupt
    _raise_errors(arms)


def _preload() -> None:
    """Import what makes reports while the arms run."""
    for name in _REPORTS:
        with contextlib.suppress(ImportError):  # whoever needs it says what is missing
            importlib.import_module(name)


def _end(arms: Sequence[ArmRun]) -> None:
    """Wait until every cluster is down; a further Ctrl-C cannot leave one behind."""
    while not all(arm.ended.is_set() for arm in arms):
        try:
            for arm in arms:
                arm.ended.wait(_POLL_SECONDS)
        except KeyboardInterrupt:
            _cancel(arms)
    for arm in arms:
        arm.join()


def _cancel(arms: Sequence[ArmRun]) -> None:
    for arm in arms:
        if not arm.closed.is_set():
            arm.cancel()


def _raise_errors(arms: Sequence[ArmRun]) -> None:
    for arm in arms:
        if arm.error is not None:
            _cancel(arms)
            raise arm.error
