"""Answers to 307 as clients in other languages write them."""

from __future__ import annotations

import pytest

from failback.protocol.body import MessageQueue
from failback.protocol.errors import ProtocolError
from failback.protocol.stats import ConsumerRunningInfo, HeldQueues

CPP = (
    b'{"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:'
    b'{"cachedMsgCount":0,"commitOffset":"12","droped":false},'
    b'{"brokerName":"broker-a","queueId":1,"topic":"orders"}:'
    b'{"commitOffset":"18446744073709551615","droped":false}},'
    b'"properties":{"PROP_CONSUMER_START_TIMESTAMP":"1764374400000"}}'
)


@pytest.mark.parametrize("cls", [HeldQueues, ConsumerRunningInfo])
def test_an_unknown_offset_of_cpp_hides_no_other_queue(cls: type[HeldQueues]) -> None:
    held = cls.from_json(CPP).mq_table
    assert {queue.queue_id: info.commit_offset for queue, info in held.items()} == {0: 12, 1: -1}
    assert MessageQueue("orders", "broker-a", 0) in held


def test_a_member_of_cpp_without_queues_holds_none() -> None:
    assert HeldQueues.from_json(b'{"jstack":"","mqTable":,"properties":{}}').mq_table == {}
    assert HeldQueues.from_json('{"jstack":"","mqTable":}').mq_table == {}


def test_a_dump_of_stacks_beside_the_table_is_passed_over() -> None:
    dump = rb'"jstack":"goroutine 1 [running]:\n\t{\"mqTable\":}",'
    held = HeldQueues.from_json(CPP.replace(b'"mqTable"', dump + b'"mqTable"', 1)).mq_table
    assert len(held) == 2


def test_what_is_broken_otherwise_is_refused() -> None:
    with pytest.raises(ProtocolError):
        HeldQueues.from_json(CPP[:-20])
    with pytest.raises(ProtocolError):
        HeldQueues.from_json(CPP.replace(b'"12"', b'"99999999999999999999999"'))
