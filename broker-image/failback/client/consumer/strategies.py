"""Which member gets which queues of a topic: the allocation strategies (pure).

All members compute the same function of the same lists, so the split is agreed without talking.
Vectors of the 4.9.8 classes are in the tests.

Source: AllocateMessageQueueAveragely, ...AveragelyByCircle, ...ConsistentHash,
AbstractAllocateMessageQueueStrategy, ConsistentHashRouter, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from failback.client.errors import ClientError
from failback.protocol.body import MessageQueue

Strategy = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""``(own client id, sorted queues, sorted member ids) -> own queues``. Own id missing from the
members gives an empty list, which is a result and not an error: the member gives up everything."""

VIRTUAL_NODES: Final = 10


class AllocationImpossible(ClientError):
    """An input of the strategy is empty: the topic is left as it is this round."""


def average(
    client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    """AVG: neighbouring queues, the first members one more when it does not divide evenly."""
    if not _is_member(client_id, queues, members):
        return []
    index, rest = members.index(client_id), len(queues) % len(members)
    if len(queues) <= len(members):
        size = 1
    else:
        size = len(queues) // len(members) + (1 if index < rest else 0)
    start = index * size if index < rest else index * size + rest
    return list(queues[start : start + size])


def average_by_circle(
    client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    """AVG_BY_CIRCLE: queues dealt out like cards."""
    if not _is_member(client_id, queues, members):
        return []
    return list(queues[members.index(client_id) :: len(members)])


def consistent_hash(
    client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    """CONSISTENT_HASH: ten points on a ring per member; a queue goes to the next point."""
    if not _is_member(client_id, queues, members):
        return []
    ring: dict[int, str] = {}
    for member in members:
        for replica in range(VIRTUAL_NODES):
            ring[_md5_prefix(f"{member}-{replica}")] = member
    points = sorted(ring)
    own = []
    for queue in queues:
        at = bisect_left(points, _md5_prefix(_queue_text(queue)))
        if ring[points[at % len(points)]] == client_id:
            own.append(queue)
    return own


STRATEGIES: Final[dict[str, Strategy]] = {
    "AVG": average,
    "AVG_BY_CIRCLE": average_by_circle,
    "CONSISTENT_HASH": consistent_hash,
}


def java_string_order(text: str) -> bytes:
    """Sort key of ``String.compareTo``: by UTF-16 code unit."""
    return text.encode("utf-16-be", "surrogatepass")


def _is_member(client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> bool:
    if not client_id or not queues or not members:
        raise AllocationImpossible("own id, queues or members are empty")
    return client_id in members


def _md5_prefix(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def _queue_text(queue: MessageQueue) -> str:
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name},"
        f" queueId={queue.queue_id}]"
    )
