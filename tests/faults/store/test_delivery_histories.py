"""What was acknowledged and not deleted is delivered, whatever can't be delivered beside it.

A failure names the seed and the steps; ``FAILBACK_HISTORY_SEED`` plays it again.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from failback.protocol.route import SubscriptionGroupConfig, TopicConfig
from tests.faults.store.delivery_histories import History
from tests.faults.store.delivery_pair import DeliveryPair
from tests.faults.store.fork_server import ForkServer
from tests.support.brokers.replica_lab import eventually
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


@pytest.mark.soak
@pytest.mark.long
async def test_what_was_acknowledged_and_not_deleted_is_delivered(tmp_path: Path) -> None:
    await run_histories(tmp_path, range(10))


@pytest.mark.parametrize("rules", RULES)
async def test_a_deleted_group_begins_as_a_new_one(tmp_path: Path, rules: str) -> None:
    """Whoever comes back, and whoever is the master then (apache/rocketmq#7263)."""
    namesrv = NameServer("failback", tmp_path / "namesrv")
    namesrv.start()
    try:
        with ForkServer() as forks:
            pair = DeliveryPair(tmp_path / "broker", forks, namesrv.address, rules)
            try:
                await pair.start_both()
                await offsets_stay_deleted(pair)
            finally:
                await pair.close()
    finally:
        namesrv.process.dispose()


async def offsets_stay_deleted(pair: DeliveryPair) -> None:
    admin, group = pair.admin, SubscriptionGroupConfig("billing")
    await admin.create_topic(pair.master.address, TopicConfig("orders", 1, 1))
    await admin.create_group(pair.master.address, group)
    await admin.update_offset(pair.master.address, "billing", "orders", 0, 500)

    async def known() -> list[int]:
        return [await pair.offset(each, "billing", "orders") for each in pair.members]

    await eventually(known, lambda found: found == [500, 500], "both know the offset")
    await admin.delete_group(pair.master.address, "billing", remove_offset=True)
    await pair.kill(pair.master)
    await pair.until_equal()
    await eventually(known, lambda found: found == [0, 0], "nobody knows it")
    await admin.create_group(pair.master.address, group)
    await admin.update_offset(pair.master.address, "billing", "orders", 0, 3)
    await eventually(known, lambda found: found == [3, 3], "both know the new one")
    await pair.swap(by_kill=False)
    await eventually(known, lambda found: found == [3, 3], "both know it after a swap")


@pytest.mark.soak
async def test_many_histories_deliver_all(tmp_path: Path) -> None:
    await run_histories(tmp_path, range(1000, 1200))
