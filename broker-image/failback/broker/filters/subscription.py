"""Which messages a consumer wants of a topic: tag hashes, or a filter over properties."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from failback.broker.filters.sql92 import compile_filter
from failback.protocol.clients import SubscriptionData
from failback.protocol.errors import ProtocolError
from failback.protocol.headers import PullMessageRequestHeader
from failback.protocol.message import tags_code

logger = logging.getLogger(__name__)

SUBSCRIBE_ALL = "*"
TAG = "TAG"
SQL92: Final = "SQL92"
NO_FILTER: Final = "The broker does not support consumer to filter message by "
"""What a broker says that has ``enablePropertyFilter=false``; the type follows."""
NO_FILTER_DATA: Final = (
    "The broker's consumer filter data is not exist!Your expression may be wrong!"
)
PropertyFilter = Callable[[Mapping[str, str]], bool]


class Subscription(msgspec.Struct, frozen=True):
    """A subscription as a client stated it, with what the read path needs of it."""

    data: SubscriptionData
    tags: frozenset[int] | None
    """Hashes that pass; ``None`` = every message."""
    matches: PropertyFilter | None = None
    """What a message's properties must pass; ``None`` = none, or one that is no filter."""

    @property
    def is_tag(self) -> bool:
        return is_tag_type(self.data.expression_type)


def is_tag_type(expression_type: str | None) -> bool:
    """Whether the broker can filter by hashes alone; absent means TAG."""
    return not expression_type or expression_type == TAG


def of_heartbeat(data: SubscriptionData) -> Subscription:
    """Take a heartbeat's subscription; its hashes were made by the client."""
    if not is_tag_type(data.expression_type):
        try:
            return with_filter(data)
        except ProtocolError as error:
            logger.warning("subscription to %s: %s", data.topic, error)
            return Subscription(data, None)
    everything = data.sub_string == SUBSCRIBE_ALL
    return Subscription(data, None if everything else frozenset(data.code_set))


def with_filter(data: SubscriptionData) -> Subscription:
    """Compile the expression of a subscription that is no tag subscription.

    Raises:
        ProtocolError: It is no filter, or one of an unknown kind.
    """
    if data.expression_type != SQL92:
        raise ProtocolError(f"{data.expression_type} is no kind of filter")
    if not data.sub_string:
        raise ProtocolError("a SQL92 subscription without an expression")
    return Subscription(data, None, compile_filter(data.sub_string))


def carried_filter(header: PullMessageRequestHeader) -> Subscription:
    """Return the subscription of a pull that brings its own filter.

    Raises:
        ProtocolError: As :func:`with_filter`.
    """
    expression, kind = header.subscription or "", header.expression_type or ""
    return with_filter(
        SubscriptionData(
            header.topic, expression, sub_version=header.sub_version, expression_type=kind
        )
    )


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
