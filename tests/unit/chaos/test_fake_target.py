"""The fake target keeps the promises of the protocol that tests rely on."""

from __future__ import annotations

import pytest

from failback.chaos.cluster.clock import now
from failback.chaos.cluster.target import Deadline, Target
from failback.chaos.cluster.view import DeathRecord, ProcessIdentity
from failback.chaos.errors import TargetError
from tests.support.chaos.fake_target import FakeTarget


def test_it_is_a_target() -> None:
    target: Target = FakeTarget()
    view = target.view()
    assert (view.pair("demo-0"), view.pair("pair-0")) == (view.pairs[0], None)


def test_it_signals_only_the_process_that_is_meant() -> None:
    target = FakeTarget()
    master = target.view().members[0]
    identity = target.identity(master)
    target.signal(identity, 9)
    with pytest.raises(TargetError, match="REPLACED"):
        target.signal(ProcessIdentity(identity.pod, identity.pid, identity.ticks + 1), 9)
    assert target.calls == [("signal", "demo-0-0", 9)]


def test_it_waits_for_a_death_only_when_there_is_one() -> None:
    target = FakeTarget()
    identity = target.identity(target.members[0])
    with pytest.raises(TargetError, match="lives at the deadline"):
        target.await_gone(identity, Deadline.after(0))
    target.death = DeathRecord(identity.pid, identity.ticks, 9, None, now())
    assert target.await_gone(identity, Deadline.after(0)).signal == 9


def test_it_holds_until_released() -> None:
    target = FakeTarget()
    target.hold(target.members[0], "u1")
    assert target.pod_state("demo-0-0") == "Held"
    target.release(target.members[0])
    target.release(target.members[0])
    assert target.pod_state("demo-0-0") == "Ready"
