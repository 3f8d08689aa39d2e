"""What explain-offset, dashboard and exporter say around a kill, against what consumers printed.

One group is handed over: its member goes on at the slave, leaves, and another one starts long
after the slave has copied the old offsets. The other group runs through. No timer is scaled.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tools.setup_java import SERVER_VERSION

from tests.support.dashboard.dashboard_lab import running_dashboard
from tests.support.java.java_lab import Lab
from tests.support.observe.answers import PRINT_SECONDS, counted, false_answers
from tests.support.observe.cluster import Observed
from tests.support.observe.surfaces import AnswerWatch, SampleWatch
from tests.support.processes.exporter_process import Exporter

BEFORE_SECONDS, SERVED_SECONDS, AFTER_SECONDS = 60, 50, 180
STARTS_AFTER_SECONDS = {SERVER_VERSION: 60, "5.3.3": 110}
"""Of the new member, after the master's return: the slave has copied by then."""


@pytest.mark.soak
@pytest.mark.parametrize("lab", [SERVER_VERSION, "5.3.3"], indirect=True)
def test_no_answer_is_false_from_before_the_kill_until_long_after_the_return(
    lab: Lab, tmp_path: Path
) -> None:
    observed = Observed(lab, "apache", groups=("billing", "audit"))
    observed.start_brokers()
    observed.begin(interval=10, is_observed=False)
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
                observed.outage(SERVED_SECONDS, during=observed.leave)
                time.sleep(STARTS_AFTER_SECONDS[lab.version])
                observed.join("billing")
                time.sleep(AFTER_SECONDS - STARTS_AFTER_SECONDS[lab.version])
            time.sleep(2 * PRINT_SECONDS)  # what the last answers are held against
    finally:
        exporter.process.dispose()
    found = list(false_answers(samples.truth, asked.answers))
    table = counted(asked.answers, found)
    print(lab.version, "were re-consumed:", observed.again().total(), table)
    assert set(table) == {"explain-offset", "dashboard", "exporter"}
    assert observed.again().total() > 0, "nothing was re-consumed: the kill tried nothing"
    killed = samples.truth.samples[0].at + BEFORE_SECONDS
    shown = [f"{each.at - killed:.0f} {each[1:]}: {why}" for each, why in found]
    assert found == [], "\n".join(shown)
