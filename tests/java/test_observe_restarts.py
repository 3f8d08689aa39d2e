"""``failback observe`` beside Apache brokers that it does not run: restarts.

The truth is what unmodified Java consumers print. Outages are short; no timer is scaled.
"""

from __future__ import annotations

import time

import pytest

from tests.support.java.java_lab import Lab
from tests.support.observe.truth import AWAY_SECONDS, ON_4_AND_5, begun, holds, kinds, settled

pytestmark = ON_4_AND_5


@pytest.mark.soak
def test_4_a_clean_restart(lab: Lab) -> None:
    observed = begun(lab)
    assert observed.master.stop() in (0, 143)
    time.sleep(AWAY_SECONDS)
    observed.master.start()
    report = settled(observed)
    holds(report, observed.again())


@pytest.mark.soak
@pytest.mark.parametrize("first", ["slave", "master"])
def test_5_a_rolling_upgrade(lab: Lab, first: str) -> None:
    observed = begun(lab)
    brokers = [observed.slave, observed.master]
    for broker in brokers if first == "slave" else reversed(brokers):
        broker.stop()
        time.sleep(5)
        broker.start()
        time.sleep(8)
    report = settled(observed)
    holds(report, observed.again())
    assert "MasterBack" in kinds(report)


@pytest.mark.soak
def test_7_a_slave_is_killed(lab: Lab) -> None:
    observed = begun(lab)
    observed.slave.kill()
    time.sleep(AWAY_SECONDS)
    observed.slave.start()
    report = settled(observed)
    assert kinds(report) <= {"SlaveOverwritten"}
    assert report["observation"]["returns"] == []
    assert observed.again().total() == 0


@pytest.mark.soak
def test_8_the_name_server_restarts(lab: Lab) -> None:
    observed = begun(lab)
    observed.namesrv.process.stop()
    time.sleep(5)
    observed.namesrv.start()
    time.sleep(35)
    report = settled(observed)
    assert kinds(report) == set()
    assert report["observation"]["returns"] == []
