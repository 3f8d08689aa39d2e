"""Which member of a kept pair the local runtime opens; where that is unclear, none."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from failback.operator.kinds.broker_cluster import BrokerCluster
from failback.operator.local.masters import mark, masters_of, with_masters
from failback.operator.local.root import Root, write_json
from failback.operator.schema.decoding import decode
from failback.protocol.errors import ConfigError
from tests.support.store.damaged_logs import some_log

MEMBERS = ("demo-0-0", "demo-0-1")


def cluster(order: str = "", **spec: Any) -> BrokerCluster:
    metadata: dict[str, Any] = {"name": "demo"}
    if order:
        metadata["annotations"] = {"failback.dev/open-member": order}
    found = decode(
        {
            "apiVersion": "failback.dev/v1alpha1",
            "kind": "BrokerCluster",
            "metadata": metadata,
            "spec": {"nameServerAddresses": ["127.0.0.1:9876"], **spec},
        }
    )
    assert isinstance(found, BrokerCluster)
    return found


def first(member: int) -> dict[str, Any]:
    return {"pairOverrides": [{"index": 0, "masterMember": member}]}


def stored(root: Root, *members: int) -> None:
    """Put a log where members keep theirs."""
    for member in members:
        folder = root.claim_dir(f"data-{MEMBERS[member]}-0") / "commitlog"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "00000000000000000000").write_bytes(b"log")


def opened(root: Root, found: BrokerCluster) -> int:
    """Do what ``up`` does; return who is master."""
    known = masters_of([found], root)
    [shown] = with_masters([found], known, lambda line: None)
    mark([shown], known, root)
    stored(root, 0, 1)
    mark([shown], known, root, slaves_follow=True)
    assert isinstance(shown, BrokerCluster)
    return shown.pair(0).master_member


@pytest.fixture
def root(tmp_path: Path) -> Root:
    found = Root(tmp_path)
    found.create()
    return found


def marks(root: Root) -> list[tuple[str, int]]:
    found = [json.loads((root.claim_dir(f"data-{m}-0") / "mark.json").read_text()) for m in MEMBERS]
    return [(item["role"], item["epoch"]) for item in found]


def test_an_edited_master_member_opens_no_stale_copy(root: Root) -> None:
    assert opened(root, cluster(**first(1))) == 1
    assert marks(root) == [("slave", 1), ("master", 1)]
    told: list[str] = []
    again = cluster(**first(0))
    [shown] = with_masters([again], masters_of([again], root), told.append)
    assert isinstance(shown, BrokerCluster)
    assert shown.pair(0).master_member == 1
    assert told == ["demo-0: masterMember 0 names the first master only, it is 1"]
    assert opened(root, cluster()) == 1, "nor does a file that names none"


def test_kept_stores_that_say_nothing_start_nothing_until_one_is_named(root: Root) -> None:
    stored(root, 0, 1)
    with pytest.raises(ConfigError, match=r"MasterUnclear.*demo-0-1@1 is data-demo-0-1-0"):
        masters_of([cluster()], root)
    assert opened(root, cluster("demo-0-1@1")) == 1
    assert marks(root) == [("slave", 1), ("master", 1)]
    assert opened(root, cluster("demo-0-0@2")) == 0
    assert marks(root)[0] == ("master", 2)


def test_a_store_that_is_lost_is_not_replaced_by_an_empty_master(root: Root) -> None:
    assert opened(root, cluster()) == 0
    folder = root.claim_dir("data-demo-0-0-0")
    for file in sorted(folder.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    with pytest.raises(ConfigError, match="the claim of the master of epoch 1 is missing"):
        masters_of([cluster()], root)


def test_stores_without_marks_open_who_their_status_says(root: Root) -> None:
    stored(root, 0, 1)
    status = {"BrokerCluster/demo": {"pairs": [{"index": 0, "masterMember": 1}]}}
    write_json(root.status_file, status)
    assert opened(root, cluster()) == 1


def test_a_master_that_has_less_than_its_slave_does_not_start(root: Root) -> None:
    assert opened(root, cluster()) == 0
    logs = [root.claim_dir(f"data-{name}-0") / "commitlog" / f"{0:020}" for name in MEMBERS]
    log = some_log(Random(1), 2)
    first_end = int.from_bytes(log[:4], "big")
    logs[0].write_bytes(log)
    logs[1].write_bytes(log[:first_end])
    assert opened_as_is(root) == 0
    logs[0].write_bytes(log[:first_end])
    logs[1].write_bytes(log)
    told = r"data-demo-0-1-0 has more than data-demo-0-0-0, .* its log ends at "
    with pytest.raises(ConfigError, match=rf"MasterUnclear.*{told}{first_end}"):
        opened_as_is(root)
    assert opened_as_is(root, "demo-0-1@2") == 1


def opened_as_is(root: Root, order: str = "") -> int:
    return masters_of([cluster(order)], root)["demo", 0].member
