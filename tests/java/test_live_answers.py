"""What every surface says around a kill, each second, against what consumers printed.

Five kills of a real master with unmodified Java groups: ``billing``, whose member changes, and
``audit``, which runs through. No timer is scaled. What ``observe`` and its report say of the whole
is held against the same.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tools.setup_java import SERVER_VERSION

from failback.analytics.report.make_report import report as make_report
from tests.support.dashboard.dashboard_lab import running_dashboard
from tests.support.java.java_lab import Lab
from tests.support.observe.answers import PRINT_SECONDS, counted, false_answers
from tests.support.observe.cluster import Observed
from tests.support.observe.surfaces import AnswerWatch, SampleWatch
from tests.support.observe.truth import cost, holds
from tests.support.processes.child_process import failback_command, failback_environment
from tests.support.processes.exporter_process import Exporter

BEFORE_SECONDS, SERVED_SECONDS, AFTER_SECONDS = 60, 50, 180
STARTS_AFTER_SECONDS: Final = {SERVER_VERSION: 60, "5.3.3": 110}
"""Of a new member, after the master's return: the slave has copied by then."""


def handed_over(observed: Observed) -> None:
    """The member reads on at the slave and leaves; another starts long after the return."""
    observed.outage(SERVED_SECONDS, during=observed.leave)
    time.sleep(STARTS_AFTER_SECONDS[observed.lab.version])
    observed.join("billing")


def set_by_hand(observed: Observed) -> None:
    """As before, and the kept offsets are given back before the new member starts."""
    observed.outage(SERVED_SECONDS, during=observed.leave)
    time.sleep(STARTS_AFTER_SECONDS[observed.lab.version])
    words = ("offsets", "restore", str(observed.out), "--group", "billing", "--yes")
    options = observed.lab.cluster_options(observed.namesrv)
    done = subprocess.run(
        failback_command("cli", *words, *options),
        env=failback_environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    time.sleep(15)
    observed.join("billing")


def run_through(observed: Observed) -> None:
    observed.outage(SERVED_SECONDS)


def restarted_on_the_slave(observed: Observed) -> None:
    """Another member takes over while only the slave is there, and stays."""

    def restart() -> None:
        observed.leave()
        observed.join("billing")
        time.sleep(10)

    observed.outage(SERVED_SECONDS, during=restart)


def observer_ended_first(observed: Observed) -> None:
    """The same, and the observer is stopped while the master is down."""

    def restart_and_stop() -> None:
        observed.leave()
        observed.join("billing")
        time.sleep(10)
        assert observed.observer.stop() in (0, 3), observed.observer.errors()

    observed.outage(SERVED_SECONDS, during=restart_and_stop)


KILLS: Final[dict[str, tuple[Callable[[Observed], None], tuple[str, ...]]]] = {
    "handed over": (handed_over, ()),
    "set by hand": (set_by_hand, ()),
    "run through": (run_through, ("--canary",)),
    "restarted on the slave": (restarted_on_the_slave, ()),
    "observer ended first": (observer_ended_first, ()),
}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("lab", "kill"),
    [*((SERVER_VERSION, kill) for kill in KILLS), ("5.3.3", "handed over")],
    indirect=["lab"],
)
def test_no_answer_is_false_from_before_the_kill_until_long_after_the_return(
    lab: Lab, kill: str, tmp_path: Path
) -> None:
    act, options = KILLS[kill]
    # Half as fast as what is sent, so that there is something to read at the slave.
    observed = Observed(
        lab, "apache", groups=("billing", "audit"), options=options, consumers={"handler": 400}
    )
    observed.start_brokers()
    observed.begin(interval=10)
    exporter = Exporter(tmp_path, observed.namesrv.address)
    try:
        with (
            running_dashboard(
                tmp_path / "dashboard", "--namesrv", observed.namesrv.address, with_runs=False
            ) as dashboard,
            SampleWatch(observed) as samples,
        ):
            with AnswerWatch(observed, dashboard, exporter) as asked:
                time.sleep(BEFORE_SECONDS)
                act(observed)
                time.sleep(AFTER_SECONDS)
            time.sleep(2 * PRINT_SECONDS)  # what the last answers are held against
    finally:
        exporter.process.dispose()
    found = list(false_answers(samples.truth, asked.answers))
    table = counted(asked.answers, found)
    again = {group: observed.again(group) for group in observed.members}
    killed = samples.truth.samples[0].at + BEFORE_SECONDS
    shown = [f"{each.at - killed:.0f} {each[1:]}: {why}" for each, why in found]
    print(
        lab.version, kill, "re-consumed:", again["billing"].total(), again["audit"].total(), table
    )
    print("\n".join(shown))
    check_observer(observed, kill)
    assert set(table) == {"explain-offset", "dashboard", "exporter"}
    if kill == "handed over":
        assert again["billing"].total() > 0, "nothing was re-consumed: the kill tried nothing"
    assert found == [], "\n".join(shown)


def check_observer(observed: Observed, kill: str) -> None:
    """Hold the report, and what the observer printed, against the consumers."""
    if kill == "observer ended first":
        text = Path(make_report(observed.out).summary).read_text()
        said = "\n".join([*observed.observer.lines(), text])
        assert "not known yet" in said
        assert "0 re-consumed" not in said
        assert "Re-consumed 0" not in said
        return
    status = Path(f"/proc/{observed.observer.pid}/status").read_text()
    print("   observer's memory:", re.findall(r"(?:VmHWM|RssAnon):\s+\d+ kB", status))
    report = observed.stop_observing()
    for group in observed.members:
        holds(report, observed.again(group), group)
        print("  ", group, [cost(report, group)[end] for end in ("lo", "hi")])
