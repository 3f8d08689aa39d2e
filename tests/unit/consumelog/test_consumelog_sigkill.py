"""SIGKILL of a writer at random instants: no stored record is lost, seq has no hole."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.upload.sealing import Shipper
from tests.support.clients.consumelog import processes_in_lake

# A child writes as fast as it can and prints each seq *after* it was stored; so whatever the
# parent read from the pipe must be in the files.
WRITER = """
import os, sys
from pathlib import Path
from failback.client.consumelog.writer import ConsumeLog
from tests.support.clients.consumelog import begin
log = ConsumeLog(Path(sys.argv[1]), run="r", proc_no=1, role="consumer", segment_bytes=65536)
n = 0
while True:
    did = begin(log, n)
    os.write(1, b"%d\\n" % log.last_seq)
    log.deliver_end(did, "SUCCESS", True, n)
    os.write(1, b"%d\\n" % log.last_seq)
    n += 1
"""


def kill_at_random(folder: Path, seed: int) -> int:
    """Start the writer, kill it after a seeded while; the highest seq it had announced."""
    delay = random.Random(seed).uniform(0.0, 0.03)
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    with child.stdout as pipe:
        announced = pipe.readline()
        deadline = time.monotonic() + delay
        while time.monotonic() < deadline:
            announced = pipe.readline()
        child.send_signal(signal.SIGKILL)
        announced += pipe.read()
    assert child.wait() == -signal.SIGKILL
    whole = announced[: announced.rfind(b"\n")]
    return int(whole.rsplit(b"\n", 1)[-1])


def check_round(folder: Path, seed: int) -> None:
    announced = kill_at_random(folder / "hot", seed)
    logs = [read_hot(path) for path in sorted((folder / "hot").glob("*.fblog"))]
    seqs = [record[1] for log in logs for record in log.records]
    assert seqs == list(range(1, len(seqs) + 1))
    assert announced <= len(seqs) <= announced + 1
    assert sum(log.torn for log in logs) <= 1
    report = Shipper(folder / "hot", folder / "lake").seal_all(final=True)
    assert not report.held
    process = processes_in_lake(folder / "lake", "r")[1]
    assert (process.records, process.last_seq) == (len(seqs), len(seqs))


@pytest.mark.parametrize("seed", range(4))
def test_a_killed_writer_loses_no_stored_record(tmp_path: Path, seed: int) -> None:
    check_round(tmp_path, seed)


@pytest.mark.soak
def test_a_killed_writer_loses_no_stored_record_1000_times(tmp_path: Path) -> None:
    for seed in range(1000):
        check_round(tmp_path / str(seed), seed)
