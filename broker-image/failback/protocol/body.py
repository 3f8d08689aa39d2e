"""What every JSON body has in common, and the message queue, which many have as a key.

A body is a Struct with Python names; ``to_json`` and ``from_json`` speak fastjson's dialect.
Unknown members are ignored, missing ones keep their defaults, ``None`` is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Self, TypeVar, cast

import msgspec

from failback.protocol import fastjson
from failback.protocol.errors import ProtocolError


class Body(msgspec.Struct, rename="camel"):
    """Base of all bodies."""

    def to_json(self, *, unquoted_int_keys: bool = False, pretty: bool = False) -> bytes:
        """Write the body; see :func:`failback.protocol.fastjson.dumps`."""
        return fastjson.dumps(self, unquoted_int_keys=unquoted_int_keys, pretty=pretty)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Read a body.

        Raises:
            ProtocolError: It is no JSON, or not the JSON of this body: names the member.
        """
        decode = _decoder(cls).decode
        try:
            return cast(Self, decode(data))
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            pass
        try:
            if quoted := fastjson.with_quoted_keys(data):
                return cast(Self, decode(quoted))
        except (msgspec.MsgspecError, RecursionError, UnicodeError):
            pass
        return cls.from_builtins(fastjson.loads(data))

    @classmethod
    def from_builtins(cls, value: Any) -> Self:
        """Convert what :func:`failback.protocol.fastjson.loads` returned."""
        return cast(Self, convert(value, cls))


class QueueKeyedBody(Body):
    """Base of the bodies that hold a table keyed by message queue, which JSON cannot type."""

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        return cls.from_builtins(fastjson.loads(data))


@cache
def _decoder(cls: type[Body]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(cls, strict=False)


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel", gc=False):
    """One queue of a topic on one broker; sorts as Java's does."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """As logs name it."""
        return f"{self.topic} {self.broker_name}/{self.queue_id}"


T = TypeVar("T")


def convert(value: Any, target: Any) -> Any:
    """Convert untyped JSON to ``target``.

    Raises:
        ProtocolError: A member has the wrong type: names it.
    """
    try:
        return msgspec.convert(value, target, strict=False)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise ProtocolError(f"unexpected JSON: {error}") from error


def members(value: Any) -> Mapping[Any, Any]:
    """Return ``value`` if it is a JSON object.

    Raises:
        ProtocolError: It is something else.
    """
    if not isinstance(value, dict):
        raise ProtocolError(f"expected a JSON object, not {type(value).__name__}")
    return value


def queue_of(key: Any) -> MessageQueue:
    """Make a message queue of a table's key: an object key, or a string that holds one.

    Raises:
        ProtocolError: It is neither.
    """
    if isinstance(key, str):
        return cast(MessageQueue, convert(fastjson.loads(key), MessageQueue))
    if not isinstance(key, tuple):
        raise ProtocolError(f"{key!r} is no message queue")
    return cast(MessageQueue, convert(dict(key), MessageQueue))


def queue_table(value: Any, read: Callable[[Any], T]) -> dict[MessageQueue, T]:
    """Convert a table keyed by message queue, its values with ``read``."""
    return {queue_of(key): read(part) for key, part in members(value).items()}


def read_int(value: Any) -> int:
    """Convert a number, or a string that holds one."""
    return cast(int, convert(value, int))
