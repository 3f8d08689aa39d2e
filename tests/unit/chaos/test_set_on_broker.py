"""Faults of what is around a broker: proved by the broker, taken back twice, refused before."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster import probe
from failback.chaos.cluster.broker_clock import reached, uptime_seconds
from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import FileStat
from failback.chaos.cluster.view import Member
from failback.chaos.errors import NotProved
from failback.chaos.experiment.model import Fault as Written
from failback.chaos.experiment.spec import check_engine
from failback.chaos.faults import (
    clock_skew,
    disk_full,
    disk_read_only,
    limit_memory,
    set_on_broker,
)
from failback.chaos.faults.catalogue import FAULTS, parse_experiment, refuse_impossible
from failback.chaos.faults.undo import undo_open
from failback.protocol.errors import BrokerError, ConfigError
from tests.support.chaos.chaos_session import carry_out, inject, open_session
from tests.support.chaos.fake_target import FakeTarget

NAMES = (
    "slow-disk",
    "throttle-disk",
    "file-errors",
    "disk-full",
    "disk-read-only",
    "clock-skew",
    "limit-memory",
)


class Surroundings(FakeTarget):
    """A target that can change what is around a broker; ``lies``: it does nothing, and says so."""

    def __init__(self) -> None:
        super().__init__()
        self.possible = frozenset(
            {"clock", "files", "disk-full", "read-only", "few-writes", "memory"}
        )
        self.in_effect: set[str] = set()
        self.lies = False
        self.keeps = False

    def possible_faults(self, member: Member) -> frozenset[str]:
        return self.possible

    def set_fault(self, member: Member, fault: str, value: Mapping[str, Any]) -> None:
        self.calls.append(("set", member.pod, fault, dict(value)))
        if not self.lies:
            self.in_effect.add(fault)

    def end_faults(self, member: Member) -> None:
        self.calls.append(("end", member.pod))
        if not self.keeps:
            self.in_effect.clear()

    def stat_store(self, member: Member, path: str) -> FileStat:
        """The file of offsets is of this moment, unless something is in effect."""
        return FileStat(1, 1 if self.in_effect else now().wall_ns, "")


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """A broker that refuses messages while anything is in effect, and a clock that is 120 s off."""
    target = Surroundings()

    def send(address: str) -> int:
        if target.in_effect:
            raise BrokerError(14, "the broker's disk is full", address)
        return 7

    monkeypatch.setattr(probe, "make_topic", lambda address: None)
    monkeypatch.setattr(probe, "send", send)
    free = lambda _: limit_memory.MemoryGroup(1 if target.in_effect else None, 0)  # noqa: E731
    monkeypatch.setattr(limit_memory, "memory_group", free)
    shift = lambda _: 120_003.0 if target.in_effect else 3.0  # noqa: E731
    monkeypatch.setattr(clock_skew, "clock_shift_ms", shift)
    for name in ("EFFECT_SECONDS", "HEAL_SECONDS", "_LOOK_SECONDS"):
        monkeypatch.setattr(set_on_broker, name, 0)
    return target


def written(name: str, **fields: Any) -> Written:
    document = {"id": "f1", "fault": name, "target": {"pair": "demo-0", **fields}}
    return Written.model_validate(document)


def test_the_broker_proves_effect_and_heal(tmp_path: Path, target: Surroundings) -> None:
    with open_session(tmp_path, target) as session:
        evidence = inject(disk_full.FAULT, session, "demo-0", 0, ratio=0.93, duration_seconds=0)
        assert evidence["proof"]["EFFECT"] == {"refused": "the broker's disk is full"}
        assert ("set", "demo-0-0", "disk-full", {"ratio": 0.93}) in target.calls
        (entry,) = session.ledger.open_entries()
        assert (entry.call, dict(entry.args)) == ("free-disk", {"pod": "demo-0-0"})
        carry_out(session)
        assert target.calls[-1] == ("end", "demo-0-0")
        carry_out(session)
        assert session.ledger.open_entries() == []
        assert session.all_healed()


def test_a_clock_is_proved_by_itself(tmp_path: Path, target: Surroundings) -> None:
    with open_session(tmp_path, target) as session:
        evidence = inject(clock_skew.FAULT, session, "demo-0", 0, duration_seconds=0)
        assert evidence["proof"]["EFFECT"] == {"shift_ms": 120_003.0}
        carry_out(session)
        carry_out(session)
        assert session.ledger.entry("u0001").healed is not None


def test_a_step_that_is_another_one_is_not_proved(tmp_path: Path, target: Surroundings) -> None:
    with open_session(tmp_path, target) as session, pytest.raises(NotProved, match="no effect of"):
        inject(clock_skew.FAULT, session, "demo-0", 0, offset_seconds=60)


def test_an_action_that_does_nothing_is_caught(tmp_path: Path, target: Surroundings) -> None:
    target.lies = True
    for fault in FAULTS:
        if fault.kind.name not in NAMES:
            continue
        with (
            open_session(tmp_path / fault.kind.name, target) as session,
            pytest.raises(NotProved, match="demo-0-0 shows no effect of"),
        ):
            inject(fault, session, "demo-0", 0)


def test_a_fault_that_stays_is_not_healed(tmp_path: Path, target: Surroundings) -> None:
    target.keeps = True
    with open_session(tmp_path, target) as session:
        inject(disk_full.FAULT, session, "demo-0", 0, duration_seconds=0)
        for _ in range(3):
            carry_out(session)
        assert not session.all_healed()
        result = undo_open(session.ledger, target, seconds=0, faults_only=True)
        assert "not yet seen healed" in result["still_open"][0]


def test_undo_works_twice(tmp_path: Path, target: Surroundings) -> None:
    for fault in FAULTS:
        if fault.kind.name not in NAMES:
            continue
        assert fault.undo is not None
        target.in_effect = {"something"}
        with open_session(tmp_path / fault.kind.name, target) as session:
            for _ in range(2):
                entry = session.ledger.add(fault.undo.call, {"pod": "demo-0-0"}, "f1")
                result = undo_open(session.ledger, target, seconds=1)
                assert result == {"undone": [entry], "still_open": []}
                assert target.in_effect == set()


def test_a_broker_that_may_die_is_held_until_the_end(tmp_path: Path, target: Surroundings) -> None:
    with open_session(tmp_path, target) as session:
        inject(disk_read_only.FAULT, session, "demo-0", 0, duration_seconds=0)
        assert target.held == {"demo-0-0"}
        carry_out(session)
        assert (target.held, target.calls[-1]) == (set(), ("start", "demo-0-0"))


def test_what_a_cluster_is_not_prepared_for_is_refused_first(target: Surroundings) -> None:
    target.possible = frozenset()
    options = ("files", "disk", "files", "disk", "disk", "clock", "memory")
    for name, option in zip(NAMES, options, strict=True):
        with pytest.raises(ConfigError, match=f"failback up --faults {option}"):
            refuse_impossible([written(name)], target, target.view())
        with pytest.raises(ConfigError, match="a local target cannot change the"):
            refuse_impossible([written(name)], FakeTarget(), target.view())
    assert not [each for each in target.calls if each[0] == "set"]


def test_a_slave_is_refused_where_it_could_prove_nothing(target: Surroundings) -> None:
    with pytest.raises(ConfigError, match="disk-full hits masters"):
        refuse_impossible([written("disk-full", role="Slave")], target, target.view())
    refuse_impossible([written("clock-skew", role="Slave")], target, target.view())


def test_a_disk_is_throttled_only_where_the_kernel_can(target: Surroundings) -> None:
    target.possible -= {"few-writes"}
    with pytest.raises(
        ConfigError, match="no io controller of cgroups that can be written to; slow"
    ):
        refuse_impossible([written("throttle-disk")], target, target.view())


def test_a_limit_that_the_kernel_has_not_counted_yet_is_no_effect(
    tmp_path: Path, target: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = iter((5, 5, 6))
    counts = lambda _: limit_memory.MemoryGroup(4096, next(refusals))  # noqa: E731
    monkeypatch.setattr(limit_memory, "memory_group", counts)
    monkeypatch.setattr(set_on_broker, "EFFECT_SECONDS", 5)
    with open_session(tmp_path, target) as session:
        evidence = inject(limit_memory.FAULT, session, "demo-0", 0)
        assert evidence["proof"]["EFFECT"] == {"limit_bytes": 4096, "refusals": 1}
    assert next(refusals, None) is None


def test_a_slow_disk_needs_a_broker_that_syncs(target: Surroundings) -> None:
    with pytest.raises(ConfigError, match="needs flushDiskType SYNC_FLUSH"):
        refuse_impossible([written("slow-disk")], target, target.view())


EXPERIMENT = """
apiVersion: failback.dev/v1alpha1
kind: ChaosExperiment
metadata: {name: lab}
spec:
  clusterRef: {name: demo}
  workload:
    topics: [{name: orders}]
    groups: [{name: billing, topic: orders}]
  faults: [{id: f1, fault: FAULT, target: {pair: demo-0}, with: {WITH}}]
"""


def experiment(fault: str, parameters: str) -> str:
    return EXPERIMENT.replace("FAULT", fault).replace("WITH", parameters)


def test_parameters_that_change_nothing_are_refused() -> None:
    for fault, parameters, problem in (
        ("clock-skew", "offsetSeconds: 0", "must not be 0 without driftRatio"),
        ("clock-skew", "offsetSeconds: -90000", "from -86400 to 86400"),
        ("disk-full", "ratio: 1.5", "from 0 to 1"),
        ("throttle-disk", "delayMs: 1500", "must be at most 1000"),
        ("file-errors", "operation: sync", "Sync"),
        ("file-errors", "error: EPERM", "EIO"),
    ):
        with pytest.raises(ConfigError, match=problem):
            parse_experiment(experiment(fault, parameters))
    parse_experiment(experiment("clock-skew", "offsetSeconds: 0, driftRatio: 0.01"))


def test_apache_is_refused_with_the_reason() -> None:
    found = parse_experiment(experiment("file-errors", "operation: Rename"))
    with pytest.raises(ConfigError, match="Apache appends through mmap, which no preload sees"):
        check_engine(found, found.arms[0], "apache")


def test_uptimes_are_read_on_both_sides_of_the_start() -> None:
    assert uptime_seconds("[ 1 days, 1 hours, 1 minutes, 1 seconds ]") == 90_061
    assert uptime_seconds("[ 0 days, 0 hours, -1 minutes, -40 seconds ]") == -100
    assert uptime_seconds("") is None
    assert [reached(each) for each in (5, 1, 0, -99)] == [5, 1, -1, -100]
