"""Consumers that are ended and start again: what is proved, and when the fault began and healed."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.view import SignalReceipt
from failback.chaos.faults import kill_consumer
from failback.chaos.recorder.fault_record import FaultRecord
from failback.chaos.session import Session
from failback.chaos.workload.process import CONSUMER, Exit, WorkloadProcess
from tests.support.chaos.chaos_session import FakeSupervisor, carry_out, open_session
from tests.support.chaos.fake_target import FakeTarget


@dataclass
class Members(FakeSupervisor):
    """Consumers that die of what they are sent, unless they are told to die of something else."""

    members: list[WorkloadProcess] = field(default_factory=list)
    dies_of: int | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self.members = [self._born(number) for number in range(2)]

    def of_role(self, role: str, *, group: str = "") -> list[Any]:
        return [each for each in self.members if role == CONSUMER and each.exit is None]

    def signal_member(self, process: WorkloadProcess, signum: int) -> SignalReceipt:
        sent = now()
        process.exit = Exit(now(), self.dies_of or signum, None)
        return SignalReceipt(signum, sent, now())

    def await_end(self, process: WorkloadProcess, timeout: float) -> bool:
        return process.exit is not None

    def start_member(self, group: str, member: int) -> None:
        born = self._born(member)
        born.stats = {"assigned": True}
        self.members.append(born)

    def _born(self, number: int) -> WorkloadProcess:
        nowhere = Path("/nowhere")
        return WorkloadProcess(
            f"billing-{number}", CONSUMER, number, b"", nowhere, nowhere, "billing", number
        )


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with open_session(tmp_path, FakeTarget()) as session:
        session.supervisor = Members()  # type: ignore[assignment]
        yield session


def killed(session: Session) -> FaultRecord:
    members = kill_consumer.choose_members(session, "billing", "all", 0)
    record = kill_consumer.record_of(session, "f1", "group=billing mode=all", members, 0)
    kill_consumer.end_consumers(session, record, members, signal.SIGKILL)
    values = kill_consumer.KIND.values({"restartAfterSeconds": 0.0})
    kill_consumer.start_consumers_later(session, record, members, values)
    return record


def test_a_run_without_a_broker_fault_says_when_its_first_fault_began(session: Session) -> None:
    record = killed(session)
    assert record.issued is not None
    assert session.phases.first_fault == record.issued[0].mono_ns
    assert session.phases.last_heal is None


def test_new_processes_that_are_assigned_are_the_heal(session: Session) -> None:
    record = killed(session)
    assert (record.proved, record.proof["K3"]) == (True, "SIGKILL, SIGKILL")
    carry_out(session)  # starts them
    carry_out(session)  # sees them
    assert (record.proof["K7"], record.proof["K8"]) == ("new processes assigned", True)
    assert session.phases.last_heal == record.observed["healed_ns"].mono_ns
    assert session.ledger.open_entries() == []


def test_another_death_than_was_asked_for_is_doubted(session: Session) -> None:
    session.load.dies_of = signal.SIGSEGV  # type: ignore[attr-defined]
    assert killed(session).why.startswith("asked SIGKILL, but a consumer ended by SIGSEGV")


@pytest.mark.parametrize(
    ("mode", "value", "amount"),
    [("one", 0, 1), ("all", 0, 2), ("fixed", 1, 1), ("fixed", 9, 2), ("fixed-percent", 50, 1)],
)
def test_as_many_members_are_chosen_as_the_mode_says(
    session: Session, mode: str, value: float, amount: int
) -> None:
    chosen = kill_consumer.choose_members(session, "billing", mode, value)
    assert len({each.member for each in chosen}) == amount
