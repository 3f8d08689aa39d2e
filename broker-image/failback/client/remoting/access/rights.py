"""What a request needs the right to, and whether an account has it. Pure.

A group is a resource by the name of its retry topic. Source: PlainAccessValidator, Permission,
apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from failback.common.numbers import whole_or_0
from failback.protocol.clients import HeartbeatData, LockBatchRequestBody
from failback.protocol.codes import RequestCode
from failback.protocol.command import RemotingCommand
from failback.protocol.message import RETRY_PREFIX

DENY: Final = 1
ANY: Final = 2
PUB: Final = 4
SUB: Final = 8
Needs = tuple[tuple[str, int], ...]
"""Resources and the right that is needed to each."""
_Fields = Mapping[str, str]

_BY_NAME: Final = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB, "DENY": DENY}

ADMIN_CODES: Final = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
    }
)
"""Requests of administrators at 4.9.8."""


def parsed(text: str | None) -> int:
    """Return the rights that a file writes so; what is no right denies."""
    return _BY_NAME.get((text or "").strip(), DENY)


def is_right(text: str) -> bool:
    return text.strip() in _BY_NAME


def suffices(needed: int, owned: int) -> bool:
    """Tell whether owned rights are enough."""
    if owned & DENY:
        return False
    if needed & ANY:
        return bool(owned & (PUB | SUB))
    return bool(needed & owned)


def group(name: str) -> str:
    """Return the resource of a consumer group."""
    return f"{RETRY_PREFIX}{name}"


def in_words(resource: str) -> str:
    """Return a resource as refusals name it."""
    if resource.startswith(RETRY_PREFIX):
        return f"group:{resource.removeprefix(RETRY_PREFIX)}"
    return f"topic:{resource}"


def _sends(topic: str, owner: str) -> Callable[[_Fields], Needs]:
    def needs(fields: _Fields) -> Needs:
        name = fields.get(topic)
        if name is not None and name.startswith(RETRY_PREFIX):
            return _reads("", owner)(fields)
        return ((name, PUB),) if name is not None else ()

    return needs


def _reads(topic: str, owner: str) -> Callable[[_Fields], Needs]:
    def needs(fields: _Fields) -> Needs:
        found = []
        if (name := fields.get(topic)) is not None:
            found.append((name, SUB))
        if (name := fields.get(owner)) is not None:
            found.append((group(name), SUB))
        return tuple(found)

    return needs


_OF_HEADER: Final[Mapping[int, Callable[[_Fields], Needs]]] = {
    RequestCode.SEND_MESSAGE: _sends("topic", "group"),
    RequestCode.SEND_MESSAGE_V2: _sends("b", "a"),
    # 4.9.8 asks for no right to send a batch.
    RequestCode.SEND_BATCH_MESSAGE: _sends("b", "a"),
    RequestCode.CONSUMER_SEND_MSG_BACK: _reads("", "group"),
    RequestCode.PULL_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.LITE_PULL_MESSAGE: _reads("topic", "consumerGroup"),
    RequestCode.QUERY_MESSAGE: _reads("topic", ""),
    RequestCode.UNREGISTER_CLIENT: _reads("", "consumerGroup"),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: _reads("", "consumerGroup"),
    RequestCode.UPDATE_CONSUMER_OFFSET: _reads("topic", "consumerGroup"),
}

_GUARDED: Final[Mapping[int, Callable[[_Fields], Needs]]] = {
    RequestCode.QUERY_CONSUMER_OFFSET: _reads("topic", "consumerGroup"),
}
_LOCKS: Final = frozenset({RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ})
_OF_RECORD: Final = {
    RequestCode.VIEW_MESSAGE_BY_ID: ("offset", SUB),
    RequestCode.END_TRANSACTION: ("commitLogOffset", PUB),
}
"""The field that names a record, and the right to its topic."""
TopicAt = Callable[[int], str | None]
"""Takes the physical offset of a record; returns its topic, of a half message the real one."""


def needs_of(request: RemotingCommand, topic_at: TopicAt | None) -> Needs:
    """Return what a request needs.

    Args:
        topic_at: With it queue locks, a group's offsets and what names a record need a right, too;
            at 4.9.8 they do not.

    Raises:
        ProtocolError: Its body cannot be decoded.
    """
    code, fields = request.code, request.ext_fields or {}
    if of_header := _OF_HEADER.get(code) or (_GUARDED.get(code) if topic_at else None):
        return of_header(fields)
    if topic_at and code in _LOCKS:
        request.check_body()
        return ((group(LockBatchRequestBody.from_json(request.body).consumer_group), SUB),)
    if topic_at and code in _OF_RECORD:
        field, right = _OF_RECORD[RequestCode(code)]
        topic = topic_at(whole_or_0(fields.get(field, "")))
        return ((topic, right),) if topic is not None else ()
    if code != RequestCode.HEART_BEAT:
        return ()
    request.check_body()
    found: dict[str, int] = {}
    for consumer in HeartbeatData.from_json(request.body).consumer_data_set:
        names = [group(consumer.group_name)]
        names += [each.topic for each in consumer.subscription_data_set]
        found |= dict.fromkeys(names, SUB)
    return tuple(found.items())
