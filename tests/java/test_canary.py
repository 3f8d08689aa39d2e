"""A canary on Apache brokers: its counts are what its log says, and nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from failback.analytics.lake.lake import open_lake
from failback.analytics.live.observe.canary.ledger import Ledger, Names
from failback.client.admin.admin import AdminClient
from tests.support.common.polling import wait_until
from tests.support.java.java_lab import Lab
from tests.support.observe.cluster import Observed


def names_of(run: Path) -> Names:
    ledger = Ledger.read(run)
    assert ledger is not None
    (names,) = ledger.all
    return names


def again_by_hand(run: Path, group: str) -> Counter[int]:
    """By queue, how many records the group got more than once, of its log's rows one by one."""
    times: Counter[tuple[int, int]] = Counter()
    for row in open_lake(run / "lake", "run").records("deliver"):
        if row["grp"] == group:
            times[row["qid"], row["qoff"]] += 1
    return Counter(queue for (queue, _), count in times.items() if count > 1)


async def traces_of(observed: Observed) -> set[str]:
    """Every name on brokers and the name server that has a canary's in it.

    Offsets of a slave are left out: it copies those of its master and drops none.
    """
    async with AdminClient([observed.namesrv.address], timeout_ms=10_000) as admin:
        found = set(await admin.all_offsets(observed.master.address))
        for address in (observed.master.address, observed.slave.address):
            found |= {
                *(await admin.all_groups(address)).subscription_group_table,
                *(await admin.all_topic_config(address)).topic_config_table,
            }
        found |= set(await admin.topics_at(observed.namesrv.address))
    return {name for name in found if "failback-canary" in name}


def said(observed: Observed, words: str) -> bool:
    return any(words in line for line in observed.observer.lines())


def test_a_kill_and_a_return_are_counted_and_nothing_is_left(lab: Lab) -> None:
    observed = Observed(lab, "apache", options=("--canary", "--max-rto", "1s"))
    observed.start_brokers()
    observed.begin()
    names = names_of(observed.out)
    file = observed.master.store / "config" / "consumerOffset.json"
    wait_until(lambda: names.moves_key in file.read_text(), "the canary on the master's disk", 60)
    time.sleep(12)  # the slave copies offsets every 10 s
    killed = time.monotonic()
    observed.master.kill()
    wait_until(lambda: said(observed, f"left {names.moves}"), "the canary handed over", 90)
    observed.master.start()
    away = time.monotonic() - killed
    wait_until(lambda: said(observed, f"joined {names.moves}"), "its new member", 60)
    time.sleep(30)
    report = observed.stop_observing(codes=(1,))
    (back,) = report["observation"]["returns"]
    groups = {(each["group"], each["topic"]): each for each in back["groups"]}
    for group in names.groups:
        check(groups[group, names.topic], again_by_hand(observed.out, group))
    assert groups[names.moves, names.topic]["lo"] > 0
    assert groups[names.moves, names.topic]["owner_changed"]
    assert not groups["billing", "orders"]["exact"]
    recovery = back["recovery"]
    assert away <= recovery["produce_s"] <= away + 40
    assert 0 < recovery["consume_s"] <= 45
    assert report["verdict"]["value"] == "Fail"  # no client recovers within a second
    assert json.loads((observed.out / "canary.json").read_text())["left"] == []
    time.sleep(20)  # pulls that were held have ended, and the slave has copied once more
    assert asyncio.run(traces_of(observed)) == set()
    assert "failback-canary" not in file.read_text()


def check(row: dict[str, Any], again: Counter[int]) -> None:
    assert row["exact"]
    assert "E5" in row["basis"]
    assert row["lo"] == row["hi"] == again.total()
    for queue in row["queues"]:
        assert queue["lo"] == queue["hi"] == again[queue["qid"]]
