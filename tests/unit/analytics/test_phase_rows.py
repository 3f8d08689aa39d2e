"""Every phase of a recovery names the row that gave it its instant."""

from __future__ import annotations

from pathlib import Path

from failback.analytics.report.measures.lookups import Figures
from failback.analytics.report.measures.recovery import rto_figures
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import MS, RunBuilder

MASTER, SLAVE = "127.0.0.1:10911", "127.0.0.1:10920"


def test_rows_of_all_phases(tmp_path: Path) -> None:
    b = RunBuilder("phases")
    b.assign(0, 0)
    b.fault("KILL", 100)
    b.fault("PEER", 101)
    b.fault("ACCEPT", 500)
    b.fault("REGISTERED", 510)
    b.fault("SLAVE_SYNC", 700)
    b.produce(0, 150, 151, "CONN", addr=MASTER)
    b.produce(1, 520, 530, addr=MASTER)
    b.produce(2, 540, 550, addr=MASTER)
    b.pull(90, 95, addr=MASTER)
    b.pull(110, 120, "CONN", addr=MASTER)
    b.pull(200, 210, bid=1, addr=SLAVE)
    b.pull(220, 230, bid=1, addr=SLAVE)
    b.pull(600, 610, addr=MASTER)
    (rto,) = rto_figures(Figures(analysed(b.write(tmp_path / "r", parts=2))))
    assert {name: t / MS for name, t in rto["phases"].items()} == {
        "kill": 100,
        "peer_closed": 101,
        "last_old_route_use": 150,
        "first_pull_on_slave": 210,
        "accept": 500,
        "registered": 510,
        "first_send_ok": 530,
        "first_pull_on_master": 610,
        "first_fresh_slave_sync": 700,
    }
    assert rto["phase_rows"] == {
        "kill": "fault/f1/KILL",
        "peer_closed": "fault/f1/PEER",
        "last_old_route_use": row(b, "produce", 0),
        "first_pull_on_slave": row(b, "pull", 2),
        "accept": "fault/f1/ACCEPT",
        "registered": "fault/f1/REGISTERED",
        "first_send_ok": row(b, "produce", 1),
        "first_pull_on_master": row(b, "pull", 4),
        "first_fresh_slave_sync": "fault/f1/SLAVE_SYNC",
    }


def row(b: RunBuilder, table: str, number: int) -> str:
    found = b.rows[table][number]
    return f"{table}/{found['proc_no']}/{found['seq']}"


def test_a_phase_that_never_was_has_no_row(tmp_path: Path) -> None:
    b = RunBuilder("none")
    b.fault("KILL", 100)
    (rto,) = rto_figures(Figures(analysed(b.write(tmp_path / "r"))))
    assert rto["phase_rows"] == {"kill": "fault/f1/KILL"}
    assert rto["phases"]["first_send_ok"] is None
