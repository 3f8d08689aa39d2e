"""Starts experiments as processes of their own, and ends them in order.

An experiment outlives the dashboard: it has its own session and log file, undoes what it did by
itself, and is found again by its run folders. The audit log has the user of each start and abort.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.dashboard.settings import Scenario
from failback.analytics.dashboard.sources.runs import RunEntry, rfc3339
from failback.common.files import append_line
from failback.protocol.errors import ConfigError

Json = dict[str, Any]
Abort = Callable[[Path], None]
"""Ask the run in a folder to end; raises when none is going on there."""
_LAST_LINES: Final = 40
_TAIL_BYTES: Final = 16_384


@dataclass(slots=True)
class Job:
    """One start of a scenario."""

    scenario: str
    number: int
    process: subprocess.Popen[bytes]
    log: Path
    started: float
    started_by: str
    options: Mapping[str, str]
    aborted_by: str = ""
    ended: float | None = None
    code: int | None = field(default=None)

    @property
    def state(self) -> str:
        if self.code is None:
            return "aborting" if self.aborted_by else "running"
        if self.aborted_by:
            return "aborted"
        return "ended" if self.code in (0, 1) else "failed"

    def document(self) -> Json:
        return {
            "number": self.number,
            "state": self.state,
            "started": rfc3339(round(self.started * 1e9)),
            "started_ns": round(self.started * 1e9),
            "started_by": self.started_by,
            "aborted_by": self.aborted_by or None,
            "seconds": round((self.ended or time.time()) - self.started, 1),
            "exit_code": self.code,
            "options": dict(self.options),
            "lines": last_lines(self.log),
        }


class Experiments:
    """The scenarios, and what was started of them. Thread-safe."""

    def __init__(
        self, scenarios: Sequence[Scenario], folder: Path, audit: Path, abort_run: Abort
    ) -> None:
        self.scenarios = {each.name: each for each in scenarios}
        self._folder = folder
        self._audit = audit
        self._abort_run = abort_run
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def job(self, name: str) -> Job | None:
        return self._jobs.get(name)

    def live(self) -> None:
        """Note the end of those that do not run any more."""
        with self._lock:
            for job in self._jobs.values():
                if job.code is None and (code := job.process.poll()) is not None:
                    job.code, job.ended = code, time.time()
                    self._note("ended", job.scenario, "", exit_code=code)

    def document(self, name: str) -> Json:
        """One scenario with its last start."""
        scenario = self._scenario(name)
        job = self.job(name)
        return {
            "name": scenario.name,
            "title": scenario.title,
            "what_happens": scenario.what_happens,
            "needs_cluster": scenario.needs_cluster,
            "arms": list(scenario.arms),
            "faults": list(scenario.faults),
            "options": {key: option.document() for key, option in scenario.options.items()},
            "takes": scenario.takes,
            "job": job.document() if job is not None else None,
        }

    def start(self, name: str, options: Mapping[str, str], who: str) -> Json:
        """Start a scenario.

        Raises:
            DashboardProblem: There is none of that name, an option is wrong, or it runs already.
        """
        scenario = self._scenario(name)
        chosen = scenario.chosen(options)
        try:
            command = scenario.command_for(options)
        except ConfigError as error:
            raise DashboardProblem("bad-request", str(error)) from error
        self.live()
        with self._lock:
            running = [job for job in self._jobs.values() if job.code is None]
            if running:
                what = f"{running[0].scenario} is running; wait for it or abort it"
                raise DashboardProblem("already-running", what)
            previous = self._jobs.get(name)
            number = previous.number + 1 if previous else 1
            self._note("started", name, who, options=chosen)  # or nothing starts
            try:
                self._jobs[name] = self._launch(scenario, command, number, chosen, who)
            except DashboardProblem as problem:
                self._note("did not start", name, who, why=problem.detail)
                raise
        return self.document(name)

    def _launch(
        self,
        scenario: Scenario,
        command: Sequence[str],
        number: int,
        options: Mapping[str, str],
        who: str,
    ) -> Job:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        log = self._folder / f"{scenario.name}-{stamp}-{number}.log"
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("wb") as output:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise DashboardProblem("failed", f"cannot start {scenario.name}: {error}") from error
        return Job(scenario.name, number, process, log, time.time(), who, options)

    def abort(self, name: str, who: str) -> Json:
        """Ask a scenario to undo what it did and end. Raises ``DashboardProblem``."""
        self._scenario(name)
        self.live()
        with self._lock:
            job = self._jobs.get(name)
            if job is None or job.code is not None:
                raise DashboardProblem("not-running", f"{name} is not running")
            if not job.aborted_by:
                job.aborted_by = who
                job.process.send_signal(signal.SIGINT)
                self._note("aborted", name, who)
        return self.document(name)

    def abort_run(self, entry: RunEntry, who: str) -> None:
        """Ask one run to end, of any starter. Raises ``DashboardProblem``."""
        if entry.state != "running":
            raise DashboardProblem("not-running", f"{entry.run} is {entry.state}")
        if entry.is_observed:
            what = f"{entry.run} only observes: end the failback observe that writes it"
            raise DashboardProblem("not-running", what)
        try:
            self._abort_run(entry.path)
        except Exception as error:
            # A boundary: for every failure of the harness, the caller gets one sentence.
            raise DashboardProblem("not-running", str(error)) from error
        self._note("aborted run", entry.run, who)

    def _scenario(self, name: str) -> Scenario:
        found = self.scenarios.get(name)
        if found is None:
            raise DashboardProblem("not-found", f"there is no experiment {name}")
        return found

    def _note(self, what: str, name: str, who: str, **more: Any) -> None:
        """Write a line to the audit log and sync it. If the disk refuses, the action is refused."""
        row = {"at": rfc3339(time.time_ns()), "what": what, "experiment": name, "by": who, **more}
        try:
            append_line(self._audit, json.dumps(row).encode())
        except OSError as error:
            raise DashboardProblem("failed", f"the audit log: {error}") from error

    def require_audit(self) -> None:
        """Raise ``OSError`` when the audit log cannot be written."""
        self._audit.parent.mkdir(parents=True, exist_ok=True)
        with self._audit.open("ab"):
            pass


def last_lines(path: Path) -> list[str]:
    """Return the end of a process's output."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-_LAST_LINES:]
