"""Which code a pull gets and which broker the consumer is sent to next. Pure.

The rule looks odd and is kept on purpose. On a slave with ``slaveReadEnable=false`` the original
first sets PULL_RETRY_IMMEDIATELY and then overwrites it by the status. So a 4.9 slave serves every
consumer. Only the suggestion depends on the setting.

Source: PullMessageProcessor.processRequest, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from failback.broker.store.log.results import GetStatus
from failback.protocol.codes import ResponseCode
from failback.protocol.route import SubscriptionGroupConfig

MASTER_ID: Final = 0

_CODES: Final = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


class PullVerdict(NamedTuple):
    """The routing of an answer. ``offset_moved``: a master records an OFFSET_MOVED_EVENT."""

    code: int
    suggested_broker_id: int
    offset_moved: bool


def code_of(status: GetStatus, queue_offset: int) -> int:
    """Return the response code for what a read at ``queue_offset`` found."""
    code = _CODES.get(status)
    if code is not None:
        return int(code)
    # An empty or unknown queue: only offset 0 can be right.
    empty = ResponseCode.PULL_OFFSET_MOVED if queue_offset else ResponseCode.PULL_NOT_FOUND
    return int(empty)


def suggest_broker_id(
    group: SubscriptionGroupConfig, *, slave_read_enable: bool, suggest_slave: bool
) -> int:
    """Return ``suggestWhichBrokerId``.

    ``suggest_slave``: the read was further behind the log's end than the master keeps in memory
    (store/reading/reading.py, ``StoreConfig.in_memory_bytes``).
    """
    if not slave_read_enable:
        return MASTER_ID
    return group.which_broker_when_consume_slowly if suggest_slave else group.broker_id


def route_pull(
    status: GetStatus,
    queue_offset: int,
    group: SubscriptionGroupConfig,
    *,
    is_slave: bool,
    slave_read_enable: bool,
    offset_check_in_slave: bool,
    suggest_slave: bool,
) -> PullVerdict:
    """Decide the answer to a pull that was read with ``status``."""
    code = code_of(status, queue_offset)
    suggested = suggest_broker_id(
        group, slave_read_enable=slave_read_enable, suggest_slave=suggest_slave
    )
    if code != ResponseCode.PULL_OFFSET_MOVED:
        return PullVerdict(code, suggested, False)
    if is_slave and not offset_check_in_slave:
        # A slave may simply be behind: the consumer must not move its offset because of it.
        return PullVerdict(int(ResponseCode.PULL_RETRY_IMMEDIATELY), group.broker_id, False)
    return PullVerdict(code, suggested, True)
