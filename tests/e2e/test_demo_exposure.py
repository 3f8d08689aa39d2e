"""What the dashboard showed before the demo's kill is what was re-consumed after it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.e2e.demo_run import Demo, run_demo
from tests.e2e.exposure_checks import agreement, risks_while_away
from tests.e2e.exposure_watch import Look, watched_runs


@pytest.mark.soak  # a busy machine kills before two samples give a rate
def test_exposure_before_the_kill_and_duplicates_after_it_agree(
    watched_demo: tuple[Demo, Sequence[Look]],
) -> None:
    """At a tenth of the timers a pause of the machine counts ten times: the band is widened."""
    demo, looks = watched_demo
    found = agreement(demo.run_dir("handover"), "handover", looks)
    print(found)
    found.check(lower=1 / 10, upper=3)


@pytest.mark.soak
def test_a_member_that_stays_is_exposed_too_and_asks_nobody(
    watched_demo: tuple[Demo, Sequence[Look]],
) -> None:
    """Exposure is what a new member would repeat; the one that runs on repeats nothing."""
    demo, looks = watched_demo
    found = agreement(demo.run_dir("stay"), "stay", looks)
    assert found.shown.after_return
    assert found.observed == 0


@pytest.mark.sample
def test_what_is_at_risk_while_the_master_is_away_comes_again(
    watched_demo: tuple[Demo, Sequence[Look]],
) -> None:
    demo, looks = watched_demo
    shown = risks_while_away(demo.run_dir("handover"), "handover", looks)
    assert shown, "nothing was shown while the master was down"
    assert shown == sorted(shown), "what is consumed from the slave only adds to it"
    assert 0 < shown[-1] <= demo.report("handover")["totals"]["dup"]


@pytest.mark.soak
def test_at_real_timers_the_bands_are_narrow(tmp_path: Path) -> None:
    """The consumer has stopped long before the return: then what is at risk is all that comes."""
    with watched_runs(tmp_path) as (runs, looks):
        demo = run_demo(runs, "--no-spark", seconds=900)
    assert demo.done.code == 0, demo.done.output[-4000:] + demo.done.errors[-4000:]
    run_dir = demo.run_dir("handover")
    found = agreement(run_dir, "handover", looks)
    print(found)
    found.check(lower=1 / 4, upper=1.5)
    duplicates = demo.report("handover")["totals"]["dup"]
    assert risks_while_away(run_dir, "handover", looks)[-1] == duplicates
