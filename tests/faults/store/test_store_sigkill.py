"""A real process that appends is killed with SIGKILL: what it said it committed is there."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.store.store_kit import (
    assert_queues_agree_with_log,
    log_messages,
    make_store,
    put,
)

FILE_BYTES = 1 << 20
WRITER = """
import random, sys
from pathlib import Path
from tests.support.store.store_kit import open_store, put

root, flush, seed = Path(sys.argv[1]), sys.argv[2] == "flush", int(sys.argv[3])
rng = random.Random(seed)
store = open_store(root, mapped_file_bytes=1 << 20, consume_queue_file_bytes=20_000)
number = store.max_queue_offset("Count", 0)
while True:
    for _ in range(rng.choice([1, 1, 5, 64])):
        put(store, number.to_bytes(4, "big"), topic="Count", tag="A")
        put(store, bytes(rng.randrange(2000)), queue_id=number % 4, tag="B")
        number += 1
    store.commit_pending()
    if flush:
        store.flush()
    if rng.random() < 0.02:
        store.flush_queues()
    print(number, flush=True)
"""


@pytest.mark.sample
@pytest.mark.parametrize("flush", ["flush", "no flush"])
def test_a_killed_writer_loses_nothing_it_reported(tmp_path: Path, flush: str) -> None:
    rng = random.Random(7)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for seed in range(4):
        command = [sys.executable, "-c", WRITER, str(tmp_path), flush, str(seed)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            reported = int(writer.stdout.readline())
            for _ in range(rng.randrange(150)):
                reported = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read().split(b"\n")[:-1]
            reported = int(rest[-1]) if rest else reported
        assert writer.returncode == -signal.SIGKILL

        store = make_store(tmp_path, mapped_file_bytes=FILE_BYTES, consume_queue_file_bytes=20_000)
        report = store.load()
        assert not report.clean
        counted = [m.body for m in log_messages(store) if m.topic == "Count"]
        assert counted == [number.to_bytes(4, "big") for number in range(len(counted))]
        assert len(counted) >= reported
        assert_queues_agree_with_log(store)
        put(store, b"after", topic="After")
        store.commit_pending()
        assert store.max_queue_offset("After", 0) == seed + 1
        store.close()
