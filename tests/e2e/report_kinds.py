"""A report page of each kind that the product makes, made of runs as the product makes it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from failback.analytics.report.make_report import ReportPaths, report, report_many
from tests.support.analytics.cases import CASES
from tests.support.analytics.run_builder import RunBuilder
from tests.support.analytics.trace_builder import TraceBuilder, made_id, pub
from tests.support.brokers.cluster_processes import ClusterProcesses
from tests.support.common.polling import SCALE, wait_until
from tests.support.observe.folders import written
from tests.support.observe.outages import at_work, come_back, serve, take_over
from tests.support.observe.stories import Story
from tests.support.processes.child_process import (
    TestProcess,
    failback_command,
    failback_environment,
)

CANARY_SECONDS: Final = 4
"""How long clients of a canary send and consume before the kill and after the return."""


def _page(made: ReportPaths, verdict: str) -> Path:
    assert made.verdict == verdict, made.sentence
    assert made.html is not None
    return made.html


def experiment(folder: Path) -> Path:
    """An experiment with a rollback."""
    return _page(report(CASES["c2"]()[0].write(folder / "run")), "Pass")


def several(folder: Path) -> Path:
    """Runs of two arms; the page is that of the second, with the comparison."""
    runs = []
    for name, arm in (("c1", "stay"), ("c2", "handover")):
        run = CASES[name]()[0]
        run.run |= {"experiment": "compared", "arm": arm}
        runs.append(run.write(folder / name))
    return _page(report_many(runs, out=folder / "reports")[1], "Pass")


def empty(folder: Path) -> Path:
    """A run in which nothing was sent or delivered."""
    return _page(report(RunBuilder("empty").write(folder / "run")), "Inconclusive")


def inconclusive(folder: Path) -> Path:
    """A partition that no witness saw."""
    run = CASES["c2"]()[0]
    run.fault("PARTITION", 700, fid="f2", honest=False)
    return _page(report(run.write(folder / "run")), "Inconclusive")


def observed(folder: Path) -> Path:
    story = at_work()
    serve(story, 1500)
    come_back(story, 900)
    take_over(story, 1600)
    return _page(report(written(story, folder / "run")), "Observed")


def observed_at_risk(folder: Path) -> Path:
    """No member has taken the queues of the returned master yet."""
    story = at_work()
    serve(story, 1500)
    come_back(story, 900)
    return _page(report(written(story, folder / "run")), "Observed")


def observed_nothing(folder: Path) -> Path:
    story = Story()
    story.commit(10)
    story.wait(3)
    return _page(report(written(story, folder / "run")), "Observed")


def observed_inconclusive(folder: Path) -> Path:
    """The returned master's table was not read in time."""
    story = at_work()
    serve(story, 1500)
    story.sleep(30)
    story.start(900)
    story.wait(3)
    return _page(report(written(story, folder / "run")), "Inconclusive")


def trace(folder: Path) -> Path:
    first, second = made_id(9, 1), made_id(9, 2)
    topic = TraceBuilder(folder / "traced")
    for message in (first, second):
        topic.copy(message)
    topic.trace(pub(first), pub(second))
    topic.handled(first, 10, 20)
    topic.handled(second, 10, 14)
    topic.handled(first, 1020, 1320, process=2)
    topic.write()
    return _page(report(topic.run_dir), "Inconclusive")


def canary(folder: Path) -> Path:
    """A real broker that is killed and started again below ``failback observe --canary``."""
    run = folder / "run"
    with ClusterProcesses(folder / "cluster") as cluster:
        words = ("observe", "-n", cluster.namesrv_addr, "--out", str(run), "--every", "500ms")
        observer = TestProcess(
            "observer", failback_command("cli", *words, "--canary"), folder,
            environment=failback_environment(),
        )  # fmt: skip
        observer.start()
        try:
            looks = run / "looks.jsonl"
            wait_until(
                lambda: looks.exists() and "-moves" in looks.read_text(), "a canary", 60 * SCALE
            )
            time.sleep(CANARY_SECONDS)
            cluster.broker.kill()
            observer.wait_for("MasterGone")
            cluster.start_broker()
            observer.wait_for("MasterBack")
            time.sleep(CANARY_SECONDS)
            os.kill(observer.pid, signal.SIGINT)
            assert observer.wait(90 * SCALE) in (0, 3), observer.errors()
        finally:
            observer.dispose()
    return run / "report" / "report.html"


KINDS: Final[tuple[Callable[[Path], Path], ...]] = (
    *(experiment, several, empty, inconclusive, trace, canary),
    *(observed, observed_at_risk, observed_nothing, observed_inconclusive),
)
