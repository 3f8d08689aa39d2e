"""A message of our own to one broker: whether it takes one.

It goes to a topic of its own, so that no group of the workload sees it.
"""

from __future__ import annotations

import time
from typing import Final

from failback.chaos.cluster.wire import WireConnection
from failback.protocol import headers
from failback.protocol.calls import TEMPLATE_TOPIC, Call, create_topic
from failback.protocol.codes import RequestCode, ResponseCode
from failback.protocol.command import RemotingCommand
from failback.protocol.route import TopicConfig

_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
"""Answers to a send that was stored: a slave that is late is no refusal."""
TOPIC: Final = "failback-chaos-probe"


def make_topic(address: str) -> None:
    """Create the topic; safe to repeat. Raises ``FailbackError``."""
    with WireConnection(address) as connection:
        connection.ask(create_topic(TopicConfig(TOPIC, 1, 1)))


def send(address: str) -> int:
    """Send one message; return its queue offset.

    Raises:
        BrokerError: The broker refuses it.
        FailbackError: It does not answer.
    """
    header = headers.SendMessageRequestHeader(
        "failback-chaos", TOPIC, TEMPLATE_TOPIC, 1, 0, 0, time.time_ns() // 1_000_000, 0
    )

    def offset_of(answer: RemotingCommand) -> int:
        found = headers.from_ext(headers.SendMessageResponseHeader, answer.ext_fields)
        return found.queue_offset

    call = Call(RequestCode.SEND_MESSAGE, offset_of, header, b"probe", _STORED)
    with WireConnection(address) as connection:
        return connection.ask(call)
