"""The rows of finished runs counted once more by Spark, and compared with their reports."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from failback.cli.shared.output import console, say

if TYPE_CHECKING:
    from failback.analytics.report.make_report import ReportPaths

_MOST_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class OnSpark:
    """What Spark found."""

    seconds: float
    differences: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        """The same for machines."""
        equal = not self.differences
        found = {"equal": equal, "seconds": round(self.seconds, 1)}
        return found if equal else {**found, "differences": list(self.differences)}

    def tell(self) -> None:
        """Say it to a person: equal, or exactly what differs."""
        if not self.differences:
            say(f"Spark: equal, {self.seconds:.0f} s")
            return
        count = len(self.differences)
        say(f"Spark: {count} differences (here, by Spark), {self.seconds:.0f} s")
        for line in self.differences[:_MOST_SHOWN]:
            say(f"  {line}")
        if count > _MOST_SHOWN:
            say(f"  and {count - _MOST_SHOWN} more")


def why_not_spark() -> str | None:
    """What to install before Spark can start here; ``None`` when it can."""
    import importlib

    importlib.invalidate_caches()  # it may have been installed since this process began
    from failback.analytics.analysis.engines.spark.session import why_not

    missing = why_not()
    return missing.removeprefix("--engine spark ") if missing else None


def fetch(command: str) -> None:
    """Run the command that installs Spark; its output goes to the terminal."""
    say("Spark: fetching it (some minutes the first time)")
    subprocess.run(shlex.split(command), check=False)


def count_on_spark(done: Sequence[ReportPaths], *, silent: bool) -> OnSpark:
    """Run the same pipeline on Spark, all runs in one session, and compare."""
    from failback.analytics.report.compare import differences
    from failback.analytics.report.make_report import read_report, report_many

    here = [read_report(each.json) for each in done]
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="failback-spark-report-") as folder:
        runs = [each.run_dir for each in done]
        if silent:
            made = report_many(runs, "spark", folder, pages=False)
        else:
            with console.status(f"Spark: counting {len(runs)} runs in one session"):
                made = report_many(runs, "spark", folder, pages=False)
        by_spark = [read_report(each.json) for each in made]
    seconds = time.monotonic() - started
    found = [
        f"{one['arm']}: {line}"
        for one, other in zip(here, by_spark, strict=True)
        for line in differences(one, other)
    ]
    return OnSpark(seconds, tuple(found))
