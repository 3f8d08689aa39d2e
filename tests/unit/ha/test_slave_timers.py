"""When a slave registers, copies its master's tables and persists: 4.9.8's one scheduler thread."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.broker.cluster.outer_api import RegisterResult
from tests.support.brokers.broker_lab import BrokerLab, broker_lab

MASTER, MASTER_HA = "10.0.0.1:10911", "10.0.0.1:10912"


def jobs(lab: BrokerLab) -> dict[str, tuple[float, float]]:
    """Return first delay and period, seconds, of what the scheduler of slow things does."""
    scheduler = lab.controller.scheduler
    scheduler._clock = lambda: 0.0
    lab.controller._schedule()
    return {job.name: (job.due_seconds, job.period_seconds) for job in scheduler._jobs}


async def test_a_slave_copies_after_3_s_and_every_10_s_between_its_other_jobs(
    tmp_path: Path,
) -> None:
    async with broker_lab(tmp_path, brokerRole="SLAVE", brokerId=1) as lab:
        assert jobs(lab) == {
            "persist consumer offsets": (10.0, 5.0),
            "register": (10.0, 30.0),
            "synchronise": (3.0, 10.0),
        }


async def test_a_master_copies_from_nobody(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        assert set(jobs(lab)) == {"persist consumer offsets", "register"}


def registered(lab: BrokerLab, ha_address: str | None, master: str | None) -> tuple[object, object]:
    """Let a registration answer this; return whom the slave copies from and replicates from."""
    controller = lab.controller
    controller._registered(RegisterResult("ns:9876", ha_address, master, None))
    return controller.slave_synchronize.master_addr, controller.ha.client.master_address


async def test_an_absent_master_is_copied_from_no_more_but_still_dialled(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, brokerRole="SLAVE", brokerId=1) as lab:
        assert registered(lab, None, None) == (None, None)
        assert registered(lab, MASTER_HA, MASTER) == (MASTER, MASTER_HA)
        assert registered(lab, None, None) == (None, MASTER_HA)
        assert registered(lab, "10.0.0.2:10912", "10.0.0.2:10911") == (
            "10.0.0.2:10911",
            "10.0.0.2:10912",
        )


@pytest.mark.parametrize(
    ("given", "dialled"), [("10.9.9.9:10912", "10.9.9.9:10912"), ("x:1", MASTER_HA)]
)
async def test_a_configured_address_wins_if_it_can_be_one(
    tmp_path: Path, given: str, dialled: str
) -> None:
    settings = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": given}
    async with broker_lab(tmp_path, **settings) as lab:
        assert registered(lab, MASTER_HA, MASTER) == (MASTER, dialled)


async def test_a_master_that_is_told_of_a_master_does_not_dial_it(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        assert registered(lab, MASTER_HA, MASTER) == (None, None)
