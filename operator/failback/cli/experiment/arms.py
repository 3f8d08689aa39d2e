"""One arm of an experiment on a cluster of its own: start, run, stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from failback.cli.shared.output import Board
from failback.protocol.errors import FailbackError

if TYPE_CHECKING:
    from failback.chaos.experiment.spec import ChaosExperiment
    from failback.chaos.run.outcome import RunOutcome
    from failback.operator.kinds.base import Resource


_LONG_SECONDS: Final = 5.0


class Interrupted(FailbackError):
    """The user asked to stop before the arm began."""

    exit_code = 3


class ArmRun(threading.Thread):
    """Runs one arm; afterwards either ``outcome`` or ``error`` is set.

    The cluster is this arm's own and is always brought down at the end.
    """

    def __init__(
        self,
        experiment: ChaosExperiment,
        arm: str,
        items: Sequence[Resource],
        *,
        secrets: Mapping[str, Mapping[str, str]],
        root: Path,
        run_dir: Path,
        board: Board,
    ) -> None:
        super().__init__(name=f"arm {arm}")
        self.arm = arm
        self.run_dir = run_dir
        self.outcome: RunOutcome | None = None
        self.error: Exception | None = None
        self.closed = threading.Event()
        """The run has ended, well or not; the cluster may still be stopping."""
        self.ended = threading.Event()
        """Wait for this, not with join(): Ctrl-C in a join() of Python 3.11 takes a live thread
        for a dead one (bpo-45274)."""
        self._experiment = experiment
        self._items = items
        self._secrets = secrets
        self._root = root
        self._board = board
        self._cancelled = threading.Event()
        self._told_at = 0.0

    def run(self) -> None:
        try:
            self._run()
        except Exception as error:
            # A thread's own boundary: whoever joins it raises the error.
            self.error = error
            self._tell(f"failed: {error}")
        finally:
            self.closed.set()
            self._board.end(self.arm)
            self.ended.set()

    def cancel(self) -> None:
        """Ask the arm to undo what it did and end."""
        self._cancelled.set()
        self._abort()

    def _abort(self) -> None:
        from failback.chaos.errors import RunFolderError
        from failback.chaos.run.abort_and_heal import abort

        with suppress(RunFolderError):  # it has not begun, or is over
            abort(self.run_dir, "interrupted")

    def _run(self) -> None:
        from failback.chaos.run.run import run_arm
        from failback.chaos.targets.location import Location
        from failback.operator.local.background import (
            start_in_background,
            stop_background,
            wait_ready,
        )
        from failback.operator.local.root import Root

        root = Root(self._root)
        self._tell("starting the cluster")
        pid = start_in_background(root, self._items, self._secrets)
        try:
            wait_ready(root, pid, self._while_starting)
            self.outcome = run_arm(
                self._experiment,
                self.arm,
                location=Location(root=str(root.path.absolute())),
                run_dir=self.run_dir,
                progress=self._while_running,
            )
            self._tell(f"run ended: {self.outcome.verdict}")
            self.closed.set()
        finally:
            stop_background(root, pid)

    def _while_starting(self, status: dict[str, Any]) -> None:
        if self._cancelled.is_set():
            raise Interrupted("interrupted")
        waiting: dict[str, str] = status.get("waiting", {})
        if time.monotonic() - self._told_at >= _LONG_SECONDS and waiting:
            name, state = next(iter(waiting.items()))
            self._tell(f"starting the cluster: {name} {state}")

    def _while_running(self, line: str) -> None:
        if self._cancelled.is_set():  # the run may have begun after we were told
            self._abort()
        self._tell(line)

    def _tell(self, line: str) -> None:
        self._told_at = time.monotonic()
        self._board.tell(self.arm, line)
