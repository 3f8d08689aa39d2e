"""Who serves the next pull: every combination of role, switches, status and distance."""

from __future__ import annotations

import itertools

import pytest

from failback.broker.processors.pulling.pull_routing import PullVerdict, route_pull
from failback.broker.store.log.results import GetStatus
from failback.protocol.route import SubscriptionGroupConfig

FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21
GROUP = SubscriptionGroupConfig("CG", broker_id=3, which_broker_when_consume_slowly=7)


def as_4_9_8(
    status: GetStatus,
    offset: int,
    is_slave: bool,
    slave_read_enable: bool,
    offset_check_in_slave: bool,
    suggest_slave: bool,
) -> PullVerdict:
    """PullMessageProcessor.processRequest in its own order, overwriting included."""
    code = -1
    suggested = 7 if suggest_slave else 0
    if is_slave and not slave_read_enable:
        code, suggested = RETRY, 0
    suggested = (7 if suggest_slave else 3) if slave_read_enable else 0
    if status == GetStatus.FOUND:
        code = FOUND
    elif status in (GetStatus.MESSAGE_WAS_REMOVING, GetStatus.NO_MATCHED_MESSAGE):
        code = RETRY
    elif status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
        code = MOVED if offset != 0 else NOT_FOUND
    elif status in (GetStatus.OFFSET_FOUND_NULL, GetStatus.OFFSET_OVERFLOW_ONE):
        code = NOT_FOUND
    elif status in (GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_TOO_SMALL):
        code = MOVED
    event = False
    if code == MOVED:
        if not is_slave or offset_check_in_slave:
            event = True
        else:
            suggested, code = 3, RETRY
    return PullVerdict(code, suggested, event)


SWITCHES = list(itertools.product([False, True], repeat=4))


@pytest.mark.parametrize("status", GetStatus)
@pytest.mark.parametrize("offset", [0, 5])
def test_every_combination_is_that_of_4_9_8(status: GetStatus, offset: int) -> None:
    for is_slave, slave_read_enable, offset_check, suggest_slave in SWITCHES:
        verdict = route_pull(
            status,
            offset,
            GROUP,
            is_slave=is_slave,
            slave_read_enable=slave_read_enable,
            offset_check_in_slave=offset_check,
            suggest_slave=suggest_slave,
        )
        assert verdict == as_4_9_8(
            status, offset, is_slave, slave_read_enable, offset_check, suggest_slave
        )


def test_a_slave_that_may_not_be_read_hands_out_messages_all_the_same() -> None:
    verdict = route_pull(
        GetStatus.FOUND,
        0,
        GROUP,
        is_slave=True,
        slave_read_enable=False,
        offset_check_in_slave=False,
        suggest_slave=False,
    )
    assert verdict == PullVerdict(FOUND, 0, False)
