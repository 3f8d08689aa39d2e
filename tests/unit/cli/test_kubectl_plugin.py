"""What the kubectl plugin says of conditions, and how it takes pages out of a pod's log."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer

from failback.analytics.dashboard.sources.clusters import ClusterRef, MemberRef, PairRef
from failback.analytics.dashboard.sources.kube_clusters import clusters_of_resources
from failback.cli.kubectl import artifacts, exposure, hold
from failback.cli.kubectl.access import kind_of, member_at, pair_at
from failback.cli.kubectl.conditions import advice, is_well, unwell, waits
from failback.cli.kubectl.status import operation_lines
from failback.cli.kubectl.why import lines
from failback.protocol.errors import ConfigError
from tests.support.common.polling import SCALE
from tests.support.net.two_pairs import FAULTS, TwoPairs
from tests.unit.operator.test_documented_reasons import documented_reasons


def condition(kind: str, value: str, reason: str = "Any") -> dict[str, str]:
    return {"type": kind, "status": value, "reason": reason}


def test_every_documented_reason_has_its_advice() -> None:
    found = documented_reasons()
    assert len(found) > 100
    for reason in found:
        told = advice("Ready", reason)
        assert told is not None, reason
        assert told.means
        assert told.do
        assert "](" not in told.means + told.do
        assert "`" not in told.means + told.do


def test_a_reason_of_several_conditions_has_the_advice_of_the_one_asked_about() -> None:
    beginnings = {
        ("RolesConsistent", "TwoMasters"): "two processes act as master",
        ("ReplicationHealthy", "Diverged"): "the slave's log is not its master's",
        ("Safe", "Diverged"): "the new master may lack the end",
    }
    for (kind, reason), begin in beginnings.items():
        told = advice(kind, reason)
        assert told is not None
        assert told.means.startswith(begin)
    assert advice("Ready", "NoSuchReason") is None


def test_what_is_not_well_is_told_ready_first() -> None:
    given = [
        *(condition("Paused", "False"), condition("Warning", "True"), condition("Synced", "True")),
        *(condition("Synced", "Unknown"), condition("Ready", "False"), condition("Failed", "True")),
    ]
    found = [(each["type"], each["status"]) for each in unwell(given)]
    assert found == [
        ("Ready", "False"),
        ("Warning", "True"),
        ("Synced", "Unknown"),
        ("Failed", "True"),
    ]
    assert is_well(condition("Stalled", "False"))


@pytest.mark.parametrize(
    ("predicate", "words"),
    [
        ("LagAcceptable", "lag acceptable"),
        ("PDBAllows", "PDB allows"),
        ("NoOtherOperation", "no other operation"),
        ("odd", "odd"),
        ("", ""),
    ],
)
def test_a_predicate_is_told_in_words(predicate: str, words: str) -> None:
    assert waits(predicate) == words


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("fbc", "BrokerCluster"),
        ("brokercluster", "BrokerCluster"),
        ("BrokerClusters.failback.dev", "BrokerCluster"),
        ("roleswitches", "RoleSwitch"),
        ("Topics", "Topic"),
        ("fbr", "ReconsumptionReport"),
    ],
)
def test_a_kind_is_named_as_for_kubectl(word: str, kind: str) -> None:
    assert kind_of(word) == kind
    with pytest.raises(ConfigError, match=r'"brokerclutser" is none.*"brokercluster"'):
        kind_of("brokerclutser")


CLUSTER: dict[str, Any] = {
    "metadata": {"name": "orders"},
    "status": {
        "pairs": [
            {"name": "shop-0", "index": 0, "members": [{"ordinal": 0}, {"ordinal": 2}]},
            {"name": "shop-1", "index": 1},
        ]
    },
}


def test_pairs_and_members_are_named_by_number_or_name() -> None:
    pair = pair_at(CLUSTER, "shop-0")
    assert pair == pair_at(CLUSTER, "0")
    for word in ("2", "shop-0-2", "orders-0-2", "orders-0-2-0"):
        assert member_at(CLUSTER, pair, word) == 2
    with pytest.raises(ConfigError, match=r'no member "1"; the pair has: 0 .shop-0-0., 2'):
        member_at(CLUSTER, pair, "1")
    assert member_at(CLUSTER, pair_at(CLUSTER, "1"), "3") == 3
    with pytest.raises(ConfigError, match=r'no pair "7"; the cluster has: 0 .shop-0., 1'):
        pair_at(CLUSTER, "7")


def test_a_member_is_held_by_the_name_that_the_annotation_has() -> None:
    """Which is that of its broker, where a cluster gives brokers names of their own."""
    for word in ("shop-0-2", "orders-0-2", "orders-0-2-0"):
        assert hold._checked(CLUSTER, word) == "shop-0-2"
    with pytest.raises(ConfigError, match='no member "shop-0-1"'):
        hold._checked(CLUSTER, "shop-0-1")


def test_members_that_a_status_leaves_out_are_asked_too() -> None:
    spec = {"pairs": 2, "slavesPerPair": 1, "brokerNamePrefix": "shop"}
    item = {**CLUSTER, "metadata": {"name": "orders", "namespace": "n"}, "spec": spec}
    (found,) = clusters_of_resources([], [item], "n")
    pairs = exposure.with_all_members(found, item).pairs
    assert [member.name for member in pairs[1].members] == ["orders-1-0-0", "orders-1-1-0"]
    assert {member.broker_name for member in pairs[1].members} == {"shop-1"}
    (address, _) = (member.address for member in pairs[1].members)
    assert address == "orders-1-0-0.orders-brokers.n.svc.cluster.local:10911"


@pytest.mark.foreign
@pytest.mark.parametrize("fault", [None, "frozen", "gone", "garbage"])
async def test_exposure_names_who_is_missing_and_ends_with_a_code_that_tells(
    fault: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exposure, "_ANSWER_MS", 800 * SCALE)
    with TwoPairs() as made:
        pairs = tuple(
            PairRef(each.name, (MemberRef(f"{each.name}-0", each.name, each.address, 0),))
            for each in (made.a, made.b)
        )
        cluster = ClusterRef("c", "c", "kubernetes", "n/c", "failback", (), pairs)
        if fault is not None:
            FAULTS[fault](made.b)
        found = await exposure._measured(cluster, 0.1)
    if fault is None:
        exposure.tell("c", found, {}, as_json=False)
        assert "does not answer" not in capsys.readouterr().err
        return
    with pytest.raises(typer.Exit) as ended:
        exposure.tell("c", found, {}, as_json=False)
    shown = capsys.readouterr()
    assert ended.value.exit_code == 3
    assert "broker-b-0 does not answer: " in shown.err
    assert "Not known, because no master answers: broker-b." in shown.out
    assert "broker-a" in shown.out
    assert "nothing would be re-consumed" not in shown.out


def test_what_runs_and_what_waits_is_a_line_each() -> None:
    found = {
        "operations": [
            {"type": "Roll", "pair": 1, "step": "DrainMaster", "blockedBy": ["RouteClosed"]},
            {"type": "ScaleUp"},
        ],
        "waiting": [{"kind": "RoleSwitch", "name": "s", "phase": "Pending", "blockedBy": []}],
        "pendingRestarts": [{"member": "orders-0-1", "reasons": ["ImageChanged"]}],
    }
    assert operation_lines(found) == [
        "Runs: Roll of pair 1, at DrainMaster; waits for: route closed (RouteClosed)",
        "Runs: ScaleUp",
        "Pending: RoleSwitch/s",
        "Waits for a restart: orders-0-1 (ImageChanged)",
    ]


def test_a_resource_that_nobody_looks_at_is_said_to_be_so() -> None:
    found = {"kind": "Topic", "name": "paid", "phase": None, "seen": False}
    (line,) = lines(found)
    assert line.startswith("Topic/paid: no operator has looked at it yet")


def test_pages_come_out_of_a_log_as_they_went_in(tmp_path: Path) -> None:
    pages = {"base-000/report/report.html": bytes(range(256)) * 50, "report.html": "é\n".encode()}
    for name, content in pages.items():
        path = tmp_path / "volume" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (tmp_path / "volume" / "report.json").write_text("{}")
    where = str(tmp_path / "volume")
    said = subprocess.run(
        ["sh", "-c", artifacts._SCRIPT, "sh", where], capture_output=True, text=True, check=True
    ).stdout
    found = artifacts.parse(said)
    assert {path.removeprefix(f"{where}/"): page for path, page in found.items()} == pages
    written = [artifacts._write(tmp_path / "out", where, *each) for each in found.items()]
    assert [path.read_bytes() for path in written] == list(found.values())
    outside = artifacts._write(tmp_path / "out", where, "/etc/../../x.html", b"")
    assert outside.resolve().is_relative_to(tmp_path / "out")
    assert artifacts.parse("find: no such file\n") == {}
