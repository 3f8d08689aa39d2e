"""What every JSON body has in common, and the message queue, which many have as a key.

A body is a Struct with Python names; ``to_json`` and ``from_json`` speak fastjson's dialect.
Unknown members are ignored, missing ones keep their defaults, ``None`` is not written. A
``Literal`` is an enum of Java, its names in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, Self, cast

import msgspec

from failback.protocol import fastjson
from failback.protocol.errors import ProtocolError
from failback.protocol.headers import Int32


class Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """Base of all bodies. Members that the fast way does not know are looked at by the other."""

    def to_json(self, *, unquoted_int_keys: bool = False, pretty: bool = False) -> bytes:
        """Write the body; see :func:`failback.protocol.fastjson.dumps`."""
        return fastjson.dumps(self, unquoted_int_keys=unquoted_int_keys, pretty=pretty)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Read a body, in whichever form fastjson takes it.

        What Java writes takes the fast way, in C.

        Raises:
            ProtocolError: It is no JSON, or not the JSON of this body: names the member. Or it
                has so many small parts that it would take many times its size in memory.
        """
        if len(data) > _LIGHT_BYTES:
            check_weight(data, _SLACK_BYTES + _TIMES * len(data))
        if (decode := _decode(cls)) is not None:
            try:
                return cast(Self, decode(data))
            except (msgspec.MsgspecError, RecursionError, UnicodeError):
                pass
            try:
                if quoted := fastjson.with_quoted_keys(data):
                    return cast(Self, decode(quoted))
            except (msgspec.MsgspecError, RecursionError, UnicodeError):
                pass
        return fastjson.read(data, cls)


def check_weight(data: bytes | str, most_bytes: int) -> None:
    """Compare what a document may take in memory, roughly, with a limit.

    Raises:
        ProtocolError: It may take more.
    """
    weight = 2 * len(data)
    for sign, part_bytes in _PART_BYTES:
        weight += part_bytes * (
            data.count(sign) if isinstance(data, str) else data.count(sign.encode())
        )
    if weight > most_bytes:
        raise ProtocolError(f"JSON of {len(data)} bytes with too many small parts")


@cache
def _decode(cls: type[Body]) -> Callable[[bytes | str], Any] | None:
    """Return the decoder in C; it has none for tables whose keys are objects."""
    try:
        return msgspec.json.Decoder(cls, strict=False).decode
    except TypeError:
        return None


_LIGHT_BYTES: Final = 256 * 1024
"""Smaller bodies are not weighed: decoded, they need a few MiB at most."""
_SLACK_BYTES: Final = 16 * 1024**2
_TIMES: Final = 16
"""A table of offsets with short names takes ten times its size."""
_PART_BYTES: Final = (("{", 250), ("[", 80), (",", 60))


class MessageQueue(
    msgspec.Struct, frozen=True, order=True, rename="camel", gc=False, forbid_unknown_fields=True
):
    """One queue of a topic on one broker; sorts as Java's does."""

    topic: str
    broker_name: str
    queue_id: Int32

    def __str__(self) -> str:
        """As logs name it."""
        return f"{self.topic} {self.broker_name}/{self.queue_id}"
