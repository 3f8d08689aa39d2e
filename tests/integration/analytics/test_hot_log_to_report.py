"""From real hot logs of several processes, one of them killed, to a report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from failback.analytics.report import make_report
from failback.analytics.report.make_report import read_report, report
from failback.client.consumelog.upload.sealing import Shipper
from failback.client.consumelog.writer import ConsumeLog
from tests.support.analytics.run_builder import RunBuilder, write_manifest
from tests.support.clients.consumelog import begin, processes_in_lake

# Handles 50 messages, begins the 51st, tells so, and then hangs until it is killed.
MEMBER = """
import sys, time
from pathlib import Path
from failback.client.consumelog.writer import ConsumeLog
from tests.support.clients.consumelog import begin, processes_in_lake
log = ConsumeLog(Path(sys.argv[1]), run="hot", proc_no=1, role="consumer", host="h",
                 segment_bytes=8192)
log.write("assign", grp="billing", inc=1, pqe=1, broker="broker-a", ptopic="orders", qid=0,
          t=time.monotonic_ns(), start_off=0, src="STORE", src_bid=0, src_binc=1, client_id="c1")
for n in range(50):
    log.deliver_end(begin(log, n), "SUCCESS", True, n + 1)
begin(log, 50)
print("begun", flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _without_html(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make_report, "_html_can_be_made", lambda: False)


def test_a_killed_members_rows_reach_the_report(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    hot = folder / "hot"
    zero = {"wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns()}
    child = subprocess.Popen(
        [sys.executable, "-c", MEMBER, str(hot)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    with child.stdout as pipe:
        assert pipe.readline() == b"begun\n"
        child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    died = time.monotonic_ns()

    with ConsumeLog(hot, run="hot", proc_no=2, role="consumer", host="h") as log:
        place = {"grp": "billing", "broker": "broker-a", "ptopic": "orders", "qid": 0}
        log.write("commit", **place, inc=2, off=40, kind="TIMER", bid=0, binc=1, sent=True, t=died)
        log.write("assign", **place, inc=2, pqe=1, t=time.monotonic_ns(), start_off=38,
                  src="STORE", src_bid=0, src_binc=1, client_id="c2")  # fmt: skip
        for n in range(38, 60):
            log.deliver_end(begin(log, n), "SUCCESS", True, n + 1)
        for n in range(60):
            t = time.monotonic_ns()
            log.write("produce", lane=1, lseq=n, att=1, topic="orders", broker="broker-a", due=t,
                      t0=t, t1=t, res="OK")  # fmt: skip
            log.write("scan", broker="broker-a", bid=0, ptopic="orders", qid=0, qoff=n,
                      omid=n.to_bytes(16, "big"), lane=1, lseq=n, rt=0, store_ms=0)  # fmt: skip

    shipped = Shipper(hot, folder / "lake").seal_all(final=True)
    assert (len(shipped.sealed) > 2, shipped.held, shipped.bad) == (True, (), ())
    processes = processes_in_lake(folder / "lake", "hot")
    assert {number: p.missing for number, p in processes.items()} == {1: 0, 2: 0}

    b = RunBuilder("hot")
    run = b.run | {
        "zero": zero,
        "groups": [{**b.run["groups"][0], "name": "billing", "topic": "orders"}],
    }
    assert b.closed is not None
    closed = b.closed | {
        "procs": {str(number): p.last_seq for number, p in processes.items()},
        "exits": {"1": {"signal": 9, "t_ns": died - zero["mono_ns"]}},
    }
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "closed.json").write_text(json.dumps(closed))
    write_manifest(folder)

    document = read_report(report(folder, "local").json)
    (group,) = document["groups"]
    # 38 and 39 were committed; 40..49 were finished only; 50 was begun and never ended.
    assert group["causes"] == {"ROLLBACK_OVERWRITTEN": 2, "TAIL_CRASH": 11}
    assert (group["dup_after_success"], group["abandoned"]) == (12, 1)
    assert (group["delivered"], group["distinct"]) == (73, 60)
    assert document["loss"]["fates"]["OK"] == document["totals"]["produced"] == 60
    assert document["evidence"]["gaps"] == []
    (rollback,) = document["rollbacks"]
    assert (rollback["d_commit"], rollback["d_proc"], rollback["redelivered"]) == (2, 12, 13)
    assert document["verdict"]["value"] == "Pass", document["verdict"]
