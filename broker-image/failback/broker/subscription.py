"""Which messages a consumer wants of a topic: subscription expressions as tag hashes."""

from __future__ import annotations

import msgspec

from failback.protocol.errors import ProtocolError
from failback.protocol.message import tags_code
from failback.protocol.route import SubscriptionData

SUBSCRIBE_ALL = "*"
TAG = "TAG"


class Subscription(msgspec.Struct, frozen=True):
    """A subscription as a client stated it, with what the read path needs of it."""

    data: SubscriptionData
    tags: frozenset[int] | None
    """Hashes that pass; ``None`` = every message."""

    @property
    def is_tag(self) -> bool:
        return is_tag_type(self.data.expression_type)


def is_tag_type(expression_type: str | None) -> bool:
    """Whether the broker can filter by hashes alone; absent means TAG."""
    return not expression_type or expression_type == TAG


def of_heartbeat(data: SubscriptionData) -> Subscription:
    """Take a heartbeat's subscription; its hashes were made by the client."""
    everything = data.sub_string == SUBSCRIBE_ALL or not is_tag_type(data.expression_type)
    return Subscription(data, None if everything else frozenset(data.code_set))


def parse(topic: str, expression: str | None, sub_version: int = 0) -> Subscription:
    """Parse ``TagA || TagB``; nothing and ``*`` mean everything.

    FilterAPI.buildSubscriptionData, apache/rocketmq 4.9.8.

    Raises:
        ProtocolError: The expression holds separators only.
    """
    if not expression or expression == SUBSCRIBE_ALL:
        return Subscription(SubscriptionData(topic, SUBSCRIBE_ALL, sub_version=sub_version), None)
    parts = expression.split("||")
    if not any(parts):
        raise ProtocolError(f"subscription {expression!r} names no tag")
    tags = list(dict.fromkeys(part.strip() for part in parts if part.strip()))
    codes = [tags_code(tag) for tag in tags]
    data = SubscriptionData(topic, expression, tags, codes, sub_version)
    return Subscription(data, frozenset(codes))
