"""The drain names what is left and ends at its deadline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from failback.chaos.run.drain import drain
from failback.chaos.run.scan import scan_stores
from failback.chaos.session import Session
from failback.protocol.headers import PullMessageResponseHeader
from tests.support.chaos.chaos_session import open_session
from tests.support.chaos.fake_target import FakeTarget
from tests.support.net.fake_remoting import FakeBroker


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        broker.queues = {"orders": {0: (0, 10), 1: (0, 10)}}
        broker.offsets = {"orders@billing": {0: 10, 1: 10}}
        yield broker


@pytest.fixture
def session(tmp_path: Path, broker: FakeBroker) -> Iterator[Session]:
    target = FakeTarget([broker.address, "127.0.0.1:2"])
    with open_session(tmp_path, target) as session:
        yield session


def attempt(session: Session) -> tuple[bool, str]:
    result = drain(session, timeout_seconds=0.3, quiet_seconds=0.05)
    return result.drained, "; ".join(result.open)


def test_everything_handled_is_drained(session: Session) -> None:
    assert attempt(session) == (True, "")


def test_a_stuck_handler_is_named(session: Session) -> None:
    supervisor: Any = session.supervisor
    supervisor.handlers = 2
    assert attempt(session) == (False, "billing: 2 messages in handlers")
    supervisor.handlers = 1
    assert attempt(session) == (False, "billing: 1 message in handlers")


def test_a_queue_with_messages_left_is_named(session: Session, broker: FakeBroker) -> None:
    broker.offsets["orders@billing"][1] = 7
    assert attempt(session) == (
        False,
        "billing: 3 messages left in orders queue 1 of demo-0",
    )


def test_a_growing_queue_is_never_drained(session: Session, broker: FakeBroker) -> None:
    commit = broker.answers[43]

    def grow(request: Any) -> Any:
        low, high = broker.queues["orders"][0]
        broker.queues["orders"][0] = (low, high + 1)
        return commit(request)

    broker.answers[43] = grow
    drained, left = attempt(session)
    assert not drained
    assert "left in orders queue 0" in left


def test_a_pending_retry_is_named(session: Session, broker: FakeBroker) -> None:
    broker.queues["%RETRY%billing"] = {0: (0, 1)}
    assert "1 message left in %RETRY%billing queue 0" in attempt(session)[1]


def test_a_delayed_message_is_named(session: Session, broker: FakeBroker) -> None:
    broker.queues["SCHEDULE_TOPIC_XXXX"] = {2: (0, 4)}
    broker.delays = {3: 1}
    assert "3 messages waiting for delay level 3" in attempt(session)[1]


def test_producers_that_do_not_stop_are_named(session: Session) -> None:
    supervisor: Any = session.supervisor
    supervisor.done = False
    assert attempt(session) == (False, "producers did not stop")


def test_an_unreachable_master_leaves_the_run_undrained(
    session: Session, broker: FakeBroker
) -> None:
    broker.close()
    assert "connect to" in attempt(session)[1]


def test_a_queue_that_does_not_give_what_it_has_is_not_scanned(
    session: Session, broker: FakeBroker
) -> None:
    broker.answers[11] = lambda r: r.response(19, header=PullMessageResponseHeader(0, 0, 0, 10))
    result = scan_stores(session, 5)
    assert not result.complete
    assert "orders queue 0 gives nothing at offset 0" in result.problems[0]


def test_members_of_a_broadcasting_group_are_asked_themselves(
    session: Session, broker: FakeBroker
) -> None:
    workload = session.arm.workload
    everything = workload.groups[0].model_copy(update={"message_model": "BROADCASTING"})
    groups = {"groups": (everything,)}
    session.arm = replace(session.arm, workload=workload.model_copy(update=groups))
    broker.offsets = {}
    ahead = SimpleNamespace(name="billing-0", stats={"offsets": {"demo-0": {"0": 10, "1": 10}}})
    behind = SimpleNamespace(name="billing-1", stats={"offsets": {"demo-0": {"0": 10, "1": 7}}})
    supervisor: Any = session.supervisor
    supervisor.of_role = lambda role, group="": [ahead, behind]
    said = "billing-1: 3 messages left in orders queue 1 of demo-0"
    assert attempt(session) == (False, said)
    behind.stats["offsets"]["demo-0"]["1"] = 10
    assert attempt(session) == (True, "")
