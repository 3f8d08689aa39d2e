"""The benchmarks' load generator does what it says, against our broker."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from failback.client.admin.admin import AdminClient
from tests.benchmarks.broker.generator import GeneratorError, LoadGenerator
from tests.support.java.java_lab import Lab

TOPIC = "Load"


async def test_it_sends_and_consumes_as_many_as_it_says(lab: Lab, tmp_path: Path) -> None:
    ns = lab.namesrv()
    broker = lab.broker("failback", ns)
    broker.start()
    with LoadGenerator(tmp_path / "generator") as generator:
        before = time.time()
        accepted_at = generator.first(ns.address, TOPIC)
        assert before - 1 <= accepted_at <= time.time() + 1
        pids = [broker.process.pid]
        single = generator.send(
            ns.address, TOPIC, pids, threads=2, size=100, count=200, millis=60_000
        )
        batched = generator.send(
            ns.address, TOPIC, pids, threads=2, batch=8, size=100, count=400, millis=60_000
        )
        for window, least in ((single, 200), (batched, 400)):
            assert window.messages >= least
            assert window.unsure == 0
            assert 0 < window.p50_ms <= window.p99_ms <= window.p999_ms
            assert len(window.cpu_us) == 1
        async with AdminClient([ns.address]) as admin:
            stats = await admin.topic_stats(broker.address, TOPIC)
        stored = sum(queue.max_offset for queue in stats.offset_table.values())
        # Those that were on their way when the window ended are stored, but not counted.
        assert 1 + single.messages + batched.messages <= stored
        consumed = generator.consume(ns.address, TOPIC, "readers", pids, count=500, skip=50)
        assert consumed.messages == 450
        assert consumed.rate > 0


def test_what_fails_is_told_and_the_next_command_works(lab: Lab, tmp_path: Path) -> None:
    ns = lab.namesrv()
    with LoadGenerator(tmp_path / "generator") as generator:
        with pytest.raises(GeneratorError, match="not accepted"):
            generator.first(ns.address, TOPIC, seconds=1)
        generator.begin_first(ns.address, TOPIC, seconds=1)  # whose answer nobody reads
        broker = lab.broker("failback", ns)
        broker.start()
        generator.close_producers()
        window = generator.send(
            ns.address, TOPIC, topics=3, threads=1, size=10, count=30, millis=60_000
        )
        assert window.messages >= 30
