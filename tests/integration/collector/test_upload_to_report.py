"""A run that went through a collector is reported as one that was sealed where it was written."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.report import make_report
from failback.analytics.report.make_report import read_report, report
from failback.client.consumelog.upload.sealing import Shipper
from failback.client.consumelog.upload.upload import UploadShipper
from failback.client.consumelog.writer import ConsumeLog
from tests.support.analytics.collector_lab import CollectorLab, running_collector, uploads_of
from tests.support.analytics.run_builder import RunBuilder, write_manifest
from tests.support.clients.consumelog import begin, processes_in_lake

RUN = "collected"


@pytest.fixture(autouse=True)
def _without_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)


def write_run(hot: Path) -> None:
    """Two members: the second handles 12 messages again that the first had handled."""
    for number, first, last in ((1, 0, 50), (2, 38, 60)):
        with ConsumeLog(
            hot, run=RUN, proc_no=number, role="consumer", host="h", segment_bytes=8192
        ) as log:
            place = {"grp": "billing", "broker": "broker-a", "ptopic": "orders", "qid": 0}
            log.write("assign", **place, inc=number, pqe=1, t=number * 10**9, start_off=first,
                      src="STORE", src_bid=0, src_binc=1, client_id=f"c{number}")  # fmt: skip
            for n in range(first, last):
                log.deliver_end(begin(log, n), "SUCCESS", True, n + 1)


def report_of(folder: Path) -> dict[str, Any]:
    b = RunBuilder(RUN)
    run = b.run | {"groups": [{**b.run["groups"][0], "name": "billing", "topic": "orders"}]}
    assert b.closed is not None
    last = {
        str(number): each.last_seq
        for number, each in processes_in_lake(folder / "lake", RUN).items()
    }
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "closed.json").write_text(json.dumps(b.closed | {"procs": last}))
    write_manifest(folder)
    return dict(read_report(report(folder, "local").json))


def ship(hot: Path, lab: CollectorLab) -> None:
    client = lab.client()
    assert UploadShipper(hot, client).ship_all().left == 0
    client.close()


@pytest.mark.sample
def test_the_report_is_the_same_and_a_contradiction_makes_it_inconclusive(tmp_path: Path) -> None:
    write_run(tmp_path / "hot")
    shutil.copytree(tmp_path / "hot", tmp_path / "copy")
    Shipper(tmp_path / "copy", tmp_path / "direct" / "lake").seal_all(final=True)
    (first, *_) = uploads_of(tmp_path / "hot")
    with running_collector(tmp_path / "lab") as lab:
        ship(tmp_path / "hot", lab)
        direct, collected = report_of(tmp_path / "direct"), report_of(lab.root)
        assert direct["groups"][0]["dup"] == 12
        for part in ("groups", "totals", "queues", "rollbacks", "loss"):
            assert collected[part] == direct[part], part
        assert collected["evidence"]["changed"] == []
        other = first.body[:-1]
        status, _ = lab.send(first, body=other, X_Content_SHA256=hashlib.sha256(other).hexdigest())
        assert status == 409
        changed = report_of(lab.root)
        assert changed["evidence"]["changed"] == [f"segment {first.id}"]
        assert changed["verdict"]["value"] == "Inconclusive"
        assert "EVIDENCE_CHANGED" in json.dumps(changed["verdict"])
