"""A canary on Apache brokers: its counts are what its log says, and nothing of it is left."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from failback.analytics.lake.lake import open_lake
from failback.analytics.observe.canary.ledger import Ledger, Names
from failback.analytics.observe.folder import looks_in
from failback.client.admin.admin import AdminClient
from tests.support.common.polling import wait_until
from tests.support.java.java_lab import Lab
from tests.support.observe.cluster import Observed
from tests.support.observe.truth import ON_4_AND_5, holds, returned, settled

pytestmark = ON_4_AND_5


def names_of(run: Path, broker: str = "broker-a") -> Names:
    """What the canary is called on the pair of this name."""
    ledger = Ledger.read(run)
    assert ledger is not None
    (pair,) = (each for each in ledger.numbers if each.endswith(f"/{broker}"))
    return ledger.at(pair)


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
        found = set()
        for broker in (*observed.keepers, observed.master, observed.slave):
            address = broker.address
            found |= {
                *(await admin.all_groups(address)).subscription_group_table,
                *(await admin.all_topic_config(address)).topic_config_table,
                *(await admin.all_offsets(address) if broker.broker_id == 0 else ()),
            }
        found |= set(await admin.topics_at(observed.namesrv.address))
    return {name for name in found if "failback-canary" in name}


def said(observed: Observed, words: str) -> bool:
    return any(words in line for line in observed.observer.lines())


@pytest.mark.soak
def test_a_kill_and_a_return_are_counted_and_nothing_is_left(lab: Lab) -> None:
    observed = Observed(lab, "apache", options=("--canary", "--max-rto", "1s"))
    observed.start_brokers()
    observed.begin()
    names = names_of(observed.out)
    file = observed.master.store / "config" / "consumerOffset.json"
    wait_until(lambda: is_copied(observed, names), "the canary on both brokers' disks", 150)
    killed = time.monotonic()
    observed.master.kill()
    wait_until(
        lambda: said(observed, f"the member of {names.moves} leaves"), "the canary handed over", 90
    )
    away = time.monotonic() - killed
    observed.master.start()
    wait_until(lambda: said(observed, f"{names.moves} has a new member"), "its new member", 60)
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


@pytest.mark.soak
def test_of_two_pairs_that_of_the_one_that_returned_is_counted(lab: Lab) -> None:
    observed = Observed(lab, "apache", options=("--canary", "--ask-clients"))
    observed.keepers += [
        lab.broker("apache", observed.namesrv, name="broker-b"),
        lab.broker("apache", observed.namesrv, name="broker-b", broker_id=1, role="SLAVE"),
    ]
    observed.start_brokers()
    observed.begin()
    names, others = names_of(observed.out), names_of(observed.out, "broker-b")
    wait_until(lambda: is_copied(observed, names), "the canary on both brokers' disks", 150)
    observed.master.kill()
    wait_until(
        lambda: said(observed, f"the member of {names.moves} leaves"), "the canary handed over", 90
    )
    observed.leave()
    observed.master.start()
    observed.wait_listed(observed.master)
    observed.join()
    wait_until(lambda: said(observed, f"{names.moves} has a new member"), "its new member", 60)
    report = settled(observed)
    assert returned(report)["broker"] == "broker-a"
    groups = {(each["group"], each["topic"]): each for each in returned(report)["groups"]}
    for group in names.groups:
        check(groups[group, names.topic], again_by_hand(observed.out, group))
    assert groups[names.moves, names.topic]["lo"] > 0
    assert not {others.topic, *others.groups} & {name for key in groups for name in key}
    for group in others.groups:
        assert again_by_hand(observed.out, group).total() == 0
    holds(report, observed.again())
    told = [each.queues for look in looks_in(observed.out) for each in look.clients]
    assert any({"broker-a", "broker-b"} <= set(each) for each in told)
    assert not said(observed, f"left {others.moves}")
    time.sleep(20)  # pulls that were held have ended, and the slaves have copied once more
    assert asyncio.run(traces_of(observed)) == set()


def is_copied(observed: Observed, names: Names) -> bool:
    """Whether offsets of the canary are on the disks of master and slave."""
    files = (
        each.store / "config" / "consumerOffset.json" for each in (observed.master, observed.slave)
    )
    return all(file.exists() and names.moves_key in file.read_text() for file in files)


def check(row: dict[str, Any], again: Counter[int]) -> None:
    assert row["exact"]
    assert "E5" in row["basis"]
    assert row["lo"] == row["hi"] == again.total()
    for queue in row["queues"]:
        assert queue["lo"] == queue["hi"] == again[queue["qid"]]
