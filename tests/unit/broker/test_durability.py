"""When an answer may go: role, flush type, state of the slave."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from failback.broker.config.config import BrokerConfig
from failback.broker.processors.sending.durability import DurabilityGate
from failback.broker.remoting.connection import BrokerConnection


class Lab:
    """A gate with an imaginary slave and disk; time moves when told."""

    def __init__(self, **settings: str) -> None:
        self.now = 0.0
        self.codes: list[int] = []
        self.flushes: list[tuple[int, Callable[[bool], None]]] = []
        self.ha = SimpleNamespace(slave_ok=True, push2slave_max_offset=0)
        self.ha.is_slave_ok = lambda _end: self.ha.slave_ok
        store = SimpleNamespace(request_flush=lambda end, done: self.flushes.append((end, done)))
        self.gate = DurabilityGate(
            config=BrokerConfig.from_properties(settings),
            store=cast(Any, store),
            ha=cast(Any, self.ha),
            clock=lambda: self.now,
        )

    def answer(self, end_offset: int) -> None:
        connection = SimpleNamespace(push=lambda data: self.codes.append(int(data)))
        self.gate.answer_later(
            cast(BrokerConnection, connection), lambda code: b"%d" % code, (), end_offset
        )


def test_an_asynchronous_master_holds_nothing_back() -> None:
    assert Lab().gate.is_open
    assert not Lab(flushDiskType="SYNC_FLUSH").gate.is_open
    assert not Lab(brokerRole="SYNC_MASTER").gate.is_open


def test_one_flush_is_asked_for_the_whole_run() -> None:
    lab = Lab(flushDiskType="SYNC_FLUSH")
    for end in (100, 200, 300):
        lab.answer(end)
    assert lab.flushes == []
    lab.gate.after_commit()
    lab.gate.after_commit()
    ((end, done),) = lab.flushes
    assert end == 300
    done(True)
    assert lab.codes == [0, 0, 0]


def test_a_failed_flush_says_so_and_the_next_run_is_its_own() -> None:
    lab = Lab(flushDiskType="SYNC_FLUSH")
    lab.answer(100)
    lab.gate.after_commit()
    lab.answer(200)
    lab.flushes[0][1](False)
    assert lab.codes == [10]


def test_without_a_slave_the_answer_is_11_at_once() -> None:
    lab = Lab(brokerRole="SYNC_MASTER")
    lab.ha.slave_ok = False
    lab.answer(100)
    assert lab.codes == [11]


def test_what_a_slave_has_already_is_answered_at_once() -> None:
    lab = Lab(brokerRole="SYNC_MASTER")
    lab.ha.push2slave_max_offset = 100
    lab.answer(100)
    assert lab.codes == [0]
    lab.answer(101)
    assert lab.codes == [0]
    lab.gate.waiting.replicated(101)
    assert lab.codes == [0, 0]


@pytest.mark.parametrize(
    ("settings", "seconds", "code"),
    [
        ({"brokerRole": "SYNC_MASTER"}, 3.0, 12),
        ({"flushDiskType": "SYNC_FLUSH"}, 5.0, 10),
        ({"brokerRole": "SYNC_MASTER", "failbackTimeScale": "0.1"}, 0.3, 12),
        ({"brokerRole": "SYNC_MASTER", "slaveTimeout": "700"}, 0.7, 12),
    ],
)
def test_the_deadlines_are_the_configured_ones(
    settings: dict[str, str], seconds: float, code: int
) -> None:
    lab = Lab(**settings)
    lab.answer(100)
    lab.now = seconds - 0.01
    lab.gate.expire()
    assert lab.codes == []
    lab.now = seconds + 0.01
    lab.gate.expire()
    assert lab.codes == [code]


def test_the_role_may_change_while_running() -> None:
    lab = Lab()
    lab.gate.set_role("SYNC_MASTER")
    assert not lab.gate.is_open
    lab.gate.set_role("ASYNC_MASTER")
    assert lab.gate.is_open


def test_the_oldest_wait_is_known() -> None:
    lab = Lab(flushDiskType="SYNC_FLUSH", brokerRole="SYNC_MASTER")
    assert lab.gate.head_wait_ms() == 0
    lab.answer(100)
    lab.now = 0.5
    lab.answer(200)
    lab.now = 0.75
    assert lab.gate.head_wait_ms() == pytest.approx(750)
