"""What was acknowledged and not deleted is delivered, whatever can't be delivered beside it.

A failure names the seed and the steps; ``FAILBACK_HISTORY_SEED`` plays it again.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.store.delivery_histories import History
from tests.faults.store.delivery_pair import DeliveryPair
from tests.faults.store.fork_server import ForkServer
from tests.support.java.apache import NameServer

RULES = ("compat", "guarded")


async def run_histories(folder: Path, seeds: range) -> None:
    given = os.environ.get("FAILBACK_HISTORY_SEED")
    namesrv = NameServer("failback", folder / "namesrv")
    steps = Counter[str]()
    namesrv.start()
    try:
        with ForkServer() as forks:
            for seed in [int(given)] if given else seeds:
                own = folder / f"broker-{seed}"
                pair = DeliveryPair(own, forks, namesrv.address, RULES[seed % 2])
                history = History(pair, seed)
                try:
                    await history.run()
                except Exception as error:
                    told = f"FAILBACK_HISTORY_SEED={seed}: {' '.join(history.told)}"
                    raise AssertionError(f"{told}: {error}") from error
                finally:
                    await pair.close()
                steps.update(history.told)
                shutil.rmtree(own)
    finally:
        namesrv.process.dispose()
    print(dict(sorted(steps.items())))


@pytest.mark.long
@pytest.mark.parametrize("first", [0, 20])
async def test_what_was_acknowledged_and_not_deleted_is_delivered(
    tmp_path: Path, first: int
) -> None:
    await run_histories(tmp_path, range(first, first + 20))


@pytest.mark.soak
async def test_many_histories_deliver_all(tmp_path: Path) -> None:
    await run_histories(tmp_path, range(1000, 1200))
