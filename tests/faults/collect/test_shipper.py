"""The shipper against a real collector: away, killed, and killed itself."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from failback.client.consumelog.upload.beside import ShipperBeside
from failback.client.consumelog.upload.collector_client import CollectorClient
from failback.client.consumelog.upload.upload import REFUSED, UploadShipper
from failback.client.consumelog.writer import ConsumeLog
from tests.support.analytics.collector_lab import (
    RUN,
    CollectorLab,
    check_lake,
    files_of,
    running_collector,
    uploads_of,
    write_log,
)
from tests.support.clients.consumelog import begin, processes_in_lake
from tests.support.common.polling import SCALE, wait_until
from tests.support.processes.child_process import failback_environment

# Writes deliveries through a log with a shipper beside it until it is killed, and says each seq
# after it was stored.
MEMBER = """
import os, sys
from pathlib import Path
from failback.client.consumelog.upload.beside import ShipperBeside
from failback.client.consumelog.writer import ConsumeLog
from tests.support.clients.consumelog import begin
hot, url, token = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
beside = ShipperBeside(hot, url, token_file=token, linger_seconds=300)
log = ConsumeLog(hot, run="lab", proc_no=1, role="consumer", host="h", segment_bytes=65536)
os.write(1, b"shipper %d\\n" % beside.pid)
n = 0
while True:
    log.deliver_end(begin(log, n), "SUCCESS", True, n)
    os.write(1, b"%d\\n" % log.last_seq)
    n += 1
"""


def shipping_command(hot: Path, lab: CollectorLab, *options: str) -> list[str]:
    return [
        *(sys.executable, "-m", "failback.client.consumelog.upload", "--hot", str(hot)),
        *("--to", lab.url, "--token-file", str(lab.token_file), *options),
    ]


def environment() -> dict[str, str]:
    return {**os.environ, **failback_environment()}


def has_ended(pid: int) -> bool:
    """Gone, or a zombie that whoever inherited it does not care for."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"


def test_nothing_is_lost_while_the_collector_is_away(tmp_path: Path) -> None:
    hot = tmp_path / "hot"
    last = write_log(hot, deliveries=200)
    truth = uploads_of(hot)
    files = len(list(hot.glob("*.fblog")))
    lab = CollectorLab(tmp_path / "lab")
    client = lab.client()
    shipper = UploadShipper(hot, client)
    report = shipper.ship_all()
    assert (report.left, report.shipped) == (files, ())
    assert report.wait_seconds is not None
    try:
        lab.start()
        wait_until(lambda: shipper.ship_all().left == 0, "all is shipped", 120)
        assert not list(hot.glob("*.fblog"))
        check_lake(lab.lake, truth)
        assert client.close_run(RUN, {1: last}).status == 200
    finally:
        client.close()
        lab.process.dispose()


@pytest.mark.sample
def test_a_collector_that_is_killed_under_a_shipper_has_each_segment_once(tmp_path: Path) -> None:
    hot = tmp_path / "hot"
    last = write_log(hot, deliveries=800)
    truth = uploads_of(hot)
    with running_collector(tmp_path / "lab") as lab:
        stop, drawn = threading.Event(), random.Random(3)
        client = lab.client()
        shipper = UploadShipper(hot, client)
        emptied: list[bool] = []

        def ship() -> None:
            emptied.append(
                shipper.run(
                    stop, period_seconds=0.01, linger_seconds=300 * SCALE, now=time.monotonic
                )
            )

        def ships(before: int) -> bool:
            return len(list(hot.glob("*.fblog"))) < before or before == 0

        thread = threading.Thread(target=ship)
        thread.start()
        for _ in range(3):
            before = len(list(hot.glob("*.fblog")))
            wait_until(partial(ships, before), "it ships", 120)
            time.sleep(drawn.uniform(0, 0.1))
            lab.kill()
            lab.start()
        stop.set()
        thread.join()
        client.close()
        assert emptied == [True]
        check_lake(lab.lake, truth)
        check = lab.client()
        assert check.close_run(RUN, {1: last}).document == {"gaps": []}
        check.close()


def kill_shipper_at_random(folder: Path, lab: CollectorLab, run: str, seed: int) -> None:
    """Kill a shipper after a seeded while, let another finish: every segment once, same hashes."""
    hot = folder / "hot"
    last = write_log(hot, deliveries=120, run=run)
    truth = uploads_of(hot)
    child = subprocess.Popen(
        shipping_command(hot, lab), env=environment(), stderr=subprocess.DEVNULL
    )
    files = len(list(hot.glob("*.fblog")))
    wait_until(lambda: len(list(hot.glob("*.fblog"))) < files, "it ships", 120)
    time.sleep(random.Random(seed).uniform(0.0, 0.05))
    child.send_signal(signal.SIGKILL)
    child.wait()
    client = lab.client()
    report = UploadShipper(hot, client).ship_all()
    assert (report.left, report.refused, list(hot.glob("*.fblog"))) == (0, (), [])
    check_lake(lab.lake, truth, run)
    assert client.close_run(run, {1: last}).document == {"gaps": []}
    client.close()


def test_a_killed_shipper_begins_again_where_it_was(tmp_path: Path) -> None:
    with running_collector(tmp_path / "lab") as lab:
        for seed in range(3):
            kill_shipper_at_random(tmp_path / str(seed), lab, f"killed-{seed}", seed)


@pytest.mark.soak
def test_a_killed_shipper_begins_again_where_it_was_200_times(tmp_path: Path) -> None:
    with running_collector(tmp_path / "lab") as lab:
        for seed in range(200):
            kill_shipper_at_random(tmp_path / str(seed), lab, f"killed-{seed}", seed)


def test_the_rows_of_a_killed_writer_are_shipped_to_the_last(tmp_path: Path) -> None:
    hot = tmp_path / "hot"
    with running_collector(tmp_path / "lab") as lab:
        child = subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(hot), lab.url, str(lab.token_file)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert child.stdout is not None
        with child.stdout as pipe:
            shipper = int(pipe.readline().split()[1])
            announced = b""
            deadline = time.monotonic() + 120 * SCALE
            while not files_of(lab.lake) and time.monotonic() < deadline:
                announced = pipe.readline()
            child.send_signal(signal.SIGKILL)
            announced += pipe.read()
        assert child.wait() == -signal.SIGKILL
        told = int(announced[: announced.rfind(b"\n")].rsplit(b"\n", 1)[-1])
        try:
            wait_until(lambda: has_ended(shipper), "the shipper ends by itself", 120)
        finally:
            if not has_ended(shipper):
                os.kill(shipper, signal.SIGKILL)
        assert not list(hot.glob("*.fblog"))
        process = processes_in_lake(lab.lake, RUN)[1]
        assert process.missing == 0
        assert told <= process.last_seq <= told + 2
        client = lab.client()
        assert client.close_run(RUN, {1: process.last_seq}).document == {"gaps": []}
        client.close()


def test_a_shipper_that_dies_beside_a_writer_is_started_again(tmp_path: Path) -> None:
    hot = tmp_path / "hot"
    with running_collector(tmp_path / "lab") as lab:
        beside = ShipperBeside(
            hot, lab.url, token_file=lab.token_file, linger_seconds=300, restart_seconds=0.1
        )
        try:
            with ConsumeLog(hot, run=RUN, proc_no=1, role="consumer", host="h") as log:
                begin(log, 0)
                first = beside.pid
                os.kill(first, signal.SIGKILL)
                wait_until(lambda: beside.pid != first, "another one runs", 60)
                last = log.last_seq
        finally:
            assert beside.end(120 * SCALE)
        assert processes_in_lake(lab.lake, RUN)[1].last_seq == last
        assert not list(hot.glob("*.fblog"))


def test_what_is_refused_for_good_is_kept_and_named(tmp_path: Path) -> None:
    with running_collector(tmp_path / "lab") as lab:
        write_log(tmp_path / "other", deliveries=20)
        assert lab.send(uploads_of(tmp_path / "other")[0])[0] == 201
        hot = tmp_path / "hot"
        write_log(hot, deliveries=90)
        client = lab.client()
        report = UploadShipper(hot, client).ship_all()
        client.close()
        assert (len(report.refused), report.left, len(report.shipped) > 1) == (1, 0, True)
        kept = {path.suffix for path in (hot / REFUSED).iterdir()}
        assert kept == {".fblog", ".json"}


def test_a_wrong_token_loses_nothing(tmp_path: Path) -> None:
    hot = tmp_path / "hot"
    write_log(hot, deliveries=20)
    with running_collector(tmp_path / "lab") as lab:
        wrong = tmp_path / "wrong"
        wrong.write_text("nonsense")
        client = CollectorClient(lab.url, token_file=wrong)
        shipper = UploadShipper(hot, client)
        files = len(list(hot.glob("*.fblog")))
        assert shipper.ship_all().left == files
        wrong.write_text(lab.token)  # put right, while it runs
        assert shipper.ship_all().left == 0
        client.close()
        check = subprocess.run(
            shipping_command(hot, lab, "--once"),
            env=environment(),
            check=False,
            timeout=120 * SCALE,
        )
        assert check.returncode == 0
