"""``failback observe`` beside Apache brokers that it does not run: resets, and a blind observer.

The truth is what unmodified Java consumers print. Outages are short; no timer is scaled.
"""

from __future__ import annotations

import asyncio
import time

import pytest

from tests.support.common.polling import wait_until
from tests.support.java.apache import mqadmin
from tests.support.java.java_lab import Lab
from tests.support.observe.cluster import TOPIC
from tests.support.observe.truth import (
    AWAY_SECONDS,
    ON_4_AND_5,
    begun,
    cost,
    kinds,
    nothing_is_written,
    settled,
)

pytestmark = ON_4_AND_5


@pytest.mark.soak
def test_9_an_admin_resets_the_offsets_in_the_middle(lab: Lab) -> None:
    observed = begun(lab)
    past = str(int((time.time() - 8) * 1000))
    mqadmin(
        lab.folder / "admin", "resetOffsetByTime", "-n", observed.namesrv.address,
        "-g", "billing", "-t", TOPIC, "-s", past,
    )  # fmt: skip
    # A client drops the queue for 10 s; that of a 5.x broker takes it again when it rebalances.
    time.sleep(25)
    wait_until(lambda: observed.again().total() > 0, "what the reset brings again", 60)
    time.sleep(10)
    before = observed.again()
    observed.outage(AWAY_SECONDS)
    report = settled(observed)
    assert "Reset" in kinds(report)
    assert (cost(report)["lo"], cost(report)["hi"]) == (0, 0)
    assert observed.again() == before


@pytest.mark.soak
def test_10_the_observer_stands_still_over_the_return(lab: Lab) -> None:
    observed = begun(lab)
    observed.master.kill()
    time.sleep(8)
    observed.leave()
    with observed.blind():
        observed.master.start()
        observed.join()
        time.sleep(10)
    report = settled(observed)
    assert report["verdict"]["value"] == "Inconclusive"
    assert any("did not look" in gap["what"] for gap in report["observation"]["gaps"])
    (found,) = report["observation"]["returns"]
    (group,) = (each for each in found["groups"] if each["topic"] == TOPIC)
    assert group["lo"] <= observed.again().total() <= group["hi"]


@pytest.mark.soak
async def test_nothing_is_written_to_the_cluster(lab: Lab) -> None:
    observed = await asyncio.to_thread(begun, lab)
    await nothing_is_written(observed, observed.master)
    observed.stop_observing()
