"""Brokers that accept and never answer hold up nobody's questions but their own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from failback.operator.brokers.peers import Peers, Target
from failback.operator.metrics import Metrics
from tests.support.brokers.namesrv_process import NamesrvProcess
from tests.support.common.polling import SCALE

SILENT = 200
"""Brokers without an answer: more than are asked at the same time."""
PATIENCE_SECONDS = 600.0


@pytest.fixture
def silence() -> Iterator[int]:
    """A port of all loopback addresses behind which connections are accepted and nobody reads."""
    with socket.create_server(("0.0.0.0", 0), backlog=4 * SILENT) as server:
        yield server.getsockname()[1]


def results(metrics: Metrics) -> list[str]:
    """Return how questions have ended: one line for each kind that there was."""
    lines = metrics.text().decode().splitlines()
    return [line for line in lines if line.startswith("failback_operator_admin_requests_total{")]


async def test_many_silent_brokers_delay_no_other_question(tmp_path: Path, silence: int) -> None:
    metrics = Metrics(version="0", kopf="0", kubernetes="0")
    peers = Peers(metrics, timeout_seconds=PATIENCE_SECONDS)
    targets = [
        Target(f"127.9.{number // 250}.{1 + number % 250}:{silence}", "uid", is_master=True)
        for number in range(SILENT)
    ]
    with NamesrvProcess(tmp_path) as server:
        waiting = [
            asyncio.create_task(peers.refresh_pair([target], fast=False)) for target in targets
        ]
        try:
            for _ in range(20):  # turns of the loop: their questions are in the queue before ours
                await asyncio.sleep(0)
            async with asyncio.timeout(60 * SCALE):
                await peers.refresh_routes([server.addr], fast=False)
            assert peers.route(server.addr).brokers == {}
            assert not any(task.done() for task in waiting)
            assert results(metrics) == [
                'failback_operator_admin_requests_total{code="106",result="ok"} 1.0'
            ]
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await peers.close()
