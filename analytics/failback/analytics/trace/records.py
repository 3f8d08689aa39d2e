"""Bodies of the message-trace topic, as Java clients write them. Pure.

A body is a row of records, each ended by 0x02; the fields of a record are separated by 0x01 and
its first one is the type:

    Pub             time ms, region, group, topic, message id, tags, keys, store host, body length,
                    cost ms, message type, [offset message id,] success[, client host]
    SubBefore       time ms, region, group, request id, message id, retry times[, keys]
    SubAfter        request id, message id, cost ms, success[, keys[, code[, time ms[, group]]]]
    EndTransaction  time ms, region, group, topic, message id, tags, keys, store host, message type,
                    transaction id, state, from check

A client with the access channel CLOUD ends a SubAfter behind the code, with 0x01 alone: the next
record follows at once, and the last of a body may have no end.

The message id is the UNIQ_KEY, or the offset id of a message without one; a Pub of a batch has
them all, with commas in between. Java writes null as ``null``. What is in brackets, older
clients leave out; newer ones may add fields behind, which are counted and not read. Source:
TraceDataEncoder, apache/rocketmq 4.9.8.

Nothing is dropped in silence: a record that can't be read becomes a :class:`Damaged`, with its
number and what is wrong with it, and the records around it are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec

TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Where clients write it by default."""
RECORD_END: Final = b"\x02"
FIELD_END: Final = "\x01"
PUB: Final = "Pub"
SUB_BEFORE: Final = "SubBefore"
SUB_AFTER: Final = "SubAfter"
END_TRANSACTION: Final = "EndTransaction"
RETURN_TYPES: Final = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
"""What SubAfter's code says; ConsumeReturnType of the client."""

_CLOUD_END_BEGINS: Final = b"SubAfter\x01"
_CLOUD_END: Final = re.compile(
    rb"(SubAfter(?:\x01[^\x01\x02]*+){6})\x01(?:\x02|$|(?=(?:Pub|SubBefore|SubAfter|EndTransaction)\x01))"
)
"""A SubAfter of such a client, and its end."""
_LONGEST_SHOWN: Final = 40
_MOST_DAMAGED: Final = 1000
"""In one body. What has more is no trace."""
_MAX_NUMBER: Final = 1 << 62


class TraceRecord(msgspec.Struct, frozen=True, gc=False):
    """One record, in the names of ``pages.RECORDS``. What its type doesn't have is ``None``."""

    kind: str
    number: int
    """Place in its body, from 0."""
    copy: int
    """How many records of this body, before it, have the same kind, request and message."""
    message_id: str
    time_ms: int | None = None
    group: str | None = None
    traced_topic: str | None = None
    request_id: str | None = None
    retry_times: int | None = None
    keys: str | None = None
    cost_ms: int | None = None
    success: bool | None = None
    code: int | None = None
    store_host: str | None = None
    offset_message_id: str | None = None
    unread_fields: int = 0
    """Fields behind those that this version knows."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """A record that can't be read."""

    number: int
    problem: str


@dataclass(frozen=True, slots=True)
class Body:
    """Everything that a body says."""

    records: tuple[TraceRecord, ...]
    damaged: tuple[Damaged, ...]


class _Unreadable(ValueError):
    """What is wrong with a record."""


def decode_body(body: bytes) -> Body:
    """Take a body apart; whatever is in it, this returns.

    A body that is cut off inside a record ends with a :class:`Damaged`: the cut may have taken the
    end of a number, so the rest isn't guessed.
    """
    records: list[TraceRecord] = []
    damaged: list[Damaged] = []
    seen: dict[tuple[str, str | None, str], int] = {}
    for number, (piece, is_whole) in enumerate(_pieces(body)):
        if len(damaged) >= _MOST_DAMAGED:
            damaged.append(Damaged(number, "and all behind it are not read: too many are damaged"))
            break
        if not is_whole:
            damaged.append(Damaged(number, f"is cut off after {len(piece)} bytes"))
            continue
        try:
            found = _decode_record(piece.decode(), number)
        except UnicodeDecodeError as error:
            damaged.append(Damaged(number, f"is no UTF-8: {error.reason} at byte {error.start}"))
            continue
        except _Unreadable as error:
            damaged.append(Damaged(number, str(error)))
            continue
        key = (found.kind, found.request_id, found.message_id)
        copy = seen.get(key, 0)
        seen[key] = copy + 1
        records.append(msgspec.structs.replace(found, copy=copy) if copy else found)
    return Body(tuple(records), tuple(damaged))


def _pieces(body: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield the bytes of each record, and whether it has its end."""
    start = 0
    while start < len(body):
        if body.startswith(_CLOUD_END_BEGINS, start):
            match = _CLOUD_END.match(body, start)
            if match is not None:
                yield match[1], True
                start = match.end()
                continue
        end = body.find(RECORD_END, start)
        if end < 0:
            yield body[start:], False
            return
        yield body[start:end], True
        start = end + 1


def _decode_record(text: str, number: int) -> TraceRecord:
    fields = text.split(FIELD_END)
    kind = fields[0]
    layout = _LAYOUTS.get(kind)
    if layout is None:
        known = ", ".join(_LAYOUTS)
        raise _Unreadable(f"has type {_shown(kind)}, not one of {known}")
    found = _Fields(kind, fields)
    found.need(layout.least)
    message_id = found.needed(layout.message_id_at, "message id")
    unread = max(0, found.count - layout.known)
    return TraceRecord(kind, number, 0, message_id, **layout.rest(found), unread_fields=unread)


class _Fields:
    """The fields of one record, by number; the type is 0."""

    def __init__(self, kind: str, fields: list[str]) -> None:
        self.kind = kind
        self.count = len(fields)
        self._fields = fields

    def need(self, least: int) -> None:
        if self.count < least:
            raise _Unreadable(f"is a {self.kind} of {self.count} fields, not of {least} or more")

    def text(self, at: int) -> str | None:
        """``None`` where there is no such field, and for Java's null."""
        if at >= self.count or self._fields[at] in ("", "null"):
            return None
        return self._fields[at]

    def needed(self, at: int, name: str) -> str:
        found = self.text(at)
        if found is None:
            raise _Unreadable(f"is a {self.kind} without {name}")
        return found

    def integer(self, at: int, name: str) -> int:
        text = self._fields[at]
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            raise _Unreadable(f"has {name} {_shown(text)}, which is no number")
        value = int(text) if len(digits) < 20 else _MAX_NUMBER
        if abs(value) >= _MAX_NUMBER:
            raise _Unreadable(f"has {name} {_shown(text)}, which is too large")
        return value

    def flag(self, at: int, name: str) -> bool:
        text = self._fields[at]
        if text not in ("true", "false"):
            raise _Unreadable(f"has {name} {_shown(text)}, which is neither true nor false")
        return text == "true"


def _shown(text: str) -> str:
    short = text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
    return ascii(short)


def _pub(fields: _Fields) -> dict[str, Any]:
    with_offset_id = fields.count > 13
    return {
        "time_ms": fields.integer(1, "time"),
        "group": fields.text(3),
        "traced_topic": fields.needed(4, "topic"),
        "keys": fields.text(7),
        "store_host": fields.text(8),
        "cost_ms": fields.integer(10, "cost"),
        "offset_message_id": fields.text(12) if with_offset_id else None,
        "success": fields.flag(13 if with_offset_id else 12, "success"),
    }


def _sub_before(fields: _Fields) -> dict[str, Any]:
    return {
        "time_ms": fields.integer(1, "time"),
        "group": fields.needed(3, "group"),
        "request_id": fields.needed(4, "request id"),
        "retry_times": fields.integer(6, "retry times"),
        "keys": fields.text(7),
    }


def _sub_after(fields: _Fields) -> dict[str, Any]:
    return {
        "request_id": fields.needed(1, "request id"),
        "cost_ms": fields.integer(3, "cost"),
        "success": fields.flag(4, "success"),
        "keys": fields.text(5),
        "code": fields.integer(6, "code") if fields.text(6) is not None else None,
        "time_ms": fields.integer(7, "time") if fields.text(7) is not None else None,
        "group": fields.text(8),
    }


def _end_transaction(fields: _Fields) -> dict[str, Any]:
    return {
        "time_ms": fields.integer(1, "time"),
        "group": fields.text(3),
        "traced_topic": fields.text(4),
        "keys": fields.text(7),
        "store_host": fields.text(8),
    }


class _Layout(NamedTuple):
    """What the records of a type have."""

    least: int
    """Fields of the shortest one."""
    known: int
    """Fields that this version knows."""
    message_id_at: int
    rest: Callable[[_Fields], dict[str, Any]]


_LAYOUTS: Final = {
    PUB: _Layout(13, 15, 5, _pub),
    SUB_BEFORE: _Layout(7, 8, 5, _sub_before),
    SUB_AFTER: _Layout(5, 9, 2, _sub_after),
    END_TRANSACTION: _Layout(13, 13, 5, _end_transaction),
}
