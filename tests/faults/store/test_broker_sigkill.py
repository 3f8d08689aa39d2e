"""Brokers under load of every kind are killed with SIGKILL: nothing acknowledged is lost.

In each of the three modes; a failure names the seed, ``FAILBACK_KILL_SEED`` plays it again.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.faults.store.broker_kills import MODES, KilledPair, table


async def kill_many_times(folder: Path, mode: str, seed: int, kills: int) -> None:
    seed = int(os.environ.get("FAILBACK_KILL_SEED", seed))
    began = time.monotonic()
    try:
        async with KilledPair(folder, mode, seed) as pair:
            await pair.kill_under_load(kills)
            await pair.settle()
        pair.check()
    except AssertionError as error:
        raise AssertionError(f"FAILBACK_KILL_SEED={seed}, {mode}: {error}") from error
    assert sum(pair.counts.values()) >= kills
    assert pair.acknowledged.count > 10 * kills, "hardly anything was acknowledged"
    print(table(pair, mode, time.monotonic() - began))


@pytest.mark.parametrize("mode", MODES)
async def test_kills_lose_nothing_acknowledged(tmp_path: Path, mode: str) -> None:
    await kill_many_times(tmp_path, mode, seed=20261, kills=20)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mode", MODES)
async def test_many_kills_lose_nothing_acknowledged(tmp_path: Path, mode: str, seed: int) -> None:
    await kill_many_times(tmp_path, mode, seed, kills=55)
