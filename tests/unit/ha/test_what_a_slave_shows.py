"""What a guarded slave that stopped replicating shows, and what it compares with its master."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from failback.broker.ha.client import MasterUnknown
from failback.broker.ha.guard import _asked, _refusal
from failback.broker.ha.join import Refusal
from failback.broker.ha.prefix import Prefix, Verdict
from failback.protocol.codes import RequestCode
from tests.support.brokers.broker_lab import BrokerLab, broker_lab
from tests.support.store.store_kit import log_messages, open_store, put, put_all

STOPPED = Refusal(4711, "Diverged", "the master has another record")


def shown(lab: BrokerLab) -> dict[str, str]:
    """Return the metrics of replication."""
    lines = lab.controller._endpoints.metrics("GET").body.decode().splitlines()
    return {
        line.partition("{")[0]: line.rpartition(" ")[2]
        for line in lines
        if line.startswith("failback_ha_")
    }


async def test_a_slave_that_stopped_says_so_everywhere(tmp_path: Path) -> None:
    async with broker_lab(tmp_path, brokerRole="SLAVE", brokerId=1) as lab:
        controller = lab.controller
        controller.phase.name = "running"
        assert controller._endpoints.readyz("GET").status == 200
        assert "replicationStopped" not in controller.parts.runtime_table()
        assert shown(lab) == {
            "failback_ha_connections": "0.0",
            "failback_ha_acknowledged_offset": "0.0",
            "failback_ha_refused_reports_total": "0.0",
            "failback_ha_connected": "0.0",
            "failback_ha_stopped": "0.0",
            "failback_ha_differs_at_offset": "-1.0",
        }
        controller.ha.client.refusal = STOPPED
        ready = controller._endpoints.readyz("GET")
        assert (ready.status, ready.body.decode()) == (503, f"replication stopped: {STOPPED}\n")
        assert controller._endpoints.livez("GET").status == 200
        assert shown(lab)["failback_ha_stopped"] == "1.0"
        assert shown(lab)["failback_ha_differs_at_offset"] == "4711.0"
        answer = await lab.connect().ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        assert json.loads(answer.body)["table"]["replicationStopped"] == str(STOPPED)


async def test_a_master_shows_what_it_refused(tmp_path: Path) -> None:
    async with broker_lab(tmp_path) as lab:
        lab.controller.ha.refused_reports = 3
        assert shown(lab)["failback_ha_refused_reports_total"] == "3.0"
        assert "failback_ha_stopped" not in shown(lab)


@pytest.mark.parametrize(
    ("settings", "is_asked"),
    [
        ({"brokerRole": "SLAVE", "brokerId": 1, "failbackGuardReplication": "true"}, True),
        ({"brokerRole": "SLAVE", "brokerId": 1, "failbackRules": "guarded"}, True),
        ({"brokerRole": "SLAVE", "brokerId": 1}, False),
        ({"failbackRules": "guarded"}, False),
    ],
)
async def test_only_a_guarded_slave_compares_logs(
    tmp_path: Path, settings: dict[str, object], is_asked: bool
) -> None:
    async with broker_lab(tmp_path, **settings) as lab:
        assert (lab.controller.ha.client.judge is not None) == is_asked


@pytest.mark.parametrize(
    ("ha_address", "registered", "asked"),
    [
        ("10.0.0.1:10912", "10.1.0.1:10911", "10.1.0.1:10911"),
        ("10.0.0.1:10912", "10.1.0.1:10921", "10.0.0.1:10911"),
        ("10.0.0.1:10912", None, "10.0.0.1:10911"),
    ],
)
def test_the_master_is_asked_where_it_serves(
    ha_address: str, registered: str | None, asked: str
) -> None:
    assert _asked(ha_address, registered) == asked


def test_no_address_is_no_master() -> None:
    with pytest.raises(MasterUnknown):
        _asked("nonsense", None)


@pytest.mark.parametrize(
    ("verdict", "offset"),
    [
        (Verdict(Prefix.VERIFIED, own_end=900, master_end=1000), None),
        (Verdict(Prefix.SLAVE_AHEAD, own_end=900, master_end=700, differs_at=650), 650),
        (Verdict(Prefix.SLAVE_AHEAD, own_end=900, master_end=700), 700),
        (Verdict(Prefix.DIVERGED, own_end=900, master_end=1000, differs_at=300), 300),
        (Verdict(Prefix.TOO_FAR_BEHIND, own_end=900, master_start=1000, master_end=2000), 900),
        (Verdict(Prefix.TOO_FAR_BEHIND, own_end=900, master_start=900, master_end=2000), None),
    ],
)
def test_a_refusal_names_the_first_byte_that_is_not_the_masters(
    verdict: Verdict, offset: int | None
) -> None:
    refusal = _refusal(verdict, 900)
    assert (None if refusal is None else refusal.offset) == offset


@pytest.mark.parametrize("most", [1, 3, 8, 500])
def test_the_last_records_of_all_queues_are_found(tmp_path: Path, most: int) -> None:
    store = open_store(tmp_path, mapped_file_bytes=4096)
    assert store.last_records(most) == []
    for number in range(60):
        put(store, b"%d" % number, queue_id=number % 3, topic=f"T{number % 2}")
    store.commit_pending()
    put_all(store, b"the last one", topic="Other")
    expected = [message.physical_offset for message in log_messages(store)][-most:]
    found = store.last_records(most)
    assert [offset for offset, _ in found] == expected
    assert all(record == store.record_at(offset) for offset, record in found)
    store.close()
