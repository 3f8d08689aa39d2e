"""The JSON dialect of fastjson 1.2, which every Java peer writes and reads.

It differs from the standard in the keys of objects: integers stand there without quotes
(``{0:5}``), and whole objects may (``{{"queueId":3}:5}``). :func:`loads` understands both,
:func:`dumps` writes keys in alphabetical order without blanks, and with ``pretty`` the form of
the broker's configuration files (PrettyFormat of MapSerializer and JavaBeanSerializer: a line
per entry, except before entries whose key is an integer).

Object keys become and are written from tuples of sorted ``(name, value)`` pairs, or Structs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

import msgspec

from failback.protocol.errors import ProtocolError

MAX_DEPTH: Final = 100
"""Deepest nesting read; the deepest real body has seven levels."""

_TOKEN: Final = re.compile(
    r'[ \t\r\n]*+(?:([{}\[\]:,])|("[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+")'
    r"|([A-Za-z0-9_$.+-]++))",
    re.ASCII,
)
"""Possessive: what may be given back is remembered, at 170 bytes for each character."""
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})", re.ASCII)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
_INTEGER_KEY: Final = re.compile(r"(?<=[{,])(-?[0-9]+)(?=:)", re.ASCII)
_BREAK: Final = "\x00"
"""Stands in no JSON."""
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}

_decode = msgspec.json.Decoder().decode
_decode_string = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode


def loads(data: bytes | str) -> Any:
    """Read one document.

    Unquoted integer keys become ``int``, object keys tuples of sorted pairs, quoted keys stay
    ``str``. The last of equal keys wins. Numbers are ``int`` or ``float``.

    Raises:
        ProtocolError: It is neither standard JSON nor this dialect, or it uses ``$ref``.
    """
    try:
        text = data if isinstance(data, str) else bytes(data).decode()
        if '"$ref"' not in text:
            return _decode(text)  # nearly every body is standard JSON: 20 times faster
    except (msgspec.MsgspecError, RecursionError):
        pass
    except UnicodeError as error:
        raise ProtocolError(f"JSON that is no UTF-8: {error}") from error
    return _Reader(text).document()


def with_quoted_keys(data: bytes | str) -> str | None:
    """Put integer keys into quotes, for readers that know the types of what they read.

    Those with blanks beside them stay, which Java does not write.

    A table of a hundred thousand offsets is ten times as quick to read so.

    Returns:
        The text, or ``None`` where a string holds a backslash: its end is not found so simply.

    Raises:
        UnicodeDecodeError: It is no UTF-8.
    """
    text = data if isinstance(data, str) else bytes(data).decode()
    if "\\" in text or _BREAK in text:
        return None
    parts = text.split('"')  # every second one is the content of a string
    outside = '"'.join(_INTEGER_KEY.split(_BREAK.join(parts[::2])))
    parts[::2] = outside.split(_BREAK)
    return '"'.join(parts)


class _Reader:
    """Recursive descent over the tokens; an object's key is a string, word or object."""

    __slots__ = ("_position", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def document(self) -> Any:
        value = self._value(*self._token(), depth=0)
        if self._text[self._position :].strip(" \t\r\n"):
            raise self._error("text behind the document")
        return value

    def _token(self) -> tuple[str, str]:
        """Return the next token as (punctuation or "", string or word)."""
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            raise self._error("no token")
        self._position = match.end()
        return match[1] or "", match[2] or match[3] or ""

    def _value(self, mark: str, text: str, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise self._error(f"nested deeper than {MAX_DEPTH}")
        if mark == "{":
            return self._object(depth + 1)
        if mark == "[":
            return self._array(depth + 1)
        if mark:
            raise self._error(f"unexpected {mark}")
        return self._scalar(text)

    def _scalar(self, text: str) -> Any:
        if text[0] == '"':
            return self._string(text)
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            return int(text)
        if _NUMBER.fullmatch(text):
            return float(text)
        raise self._error(f"unexpected {text[:20]}")

    def _string(self, text: str) -> str:
        try:
            return _decode_string(text)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise self._error(str(error)) from error

    def _array(self, depth: int) -> list[Any]:
        values: list[Any] = []
        mark, text = self._token()
        if mark == "]":
            return values
        while True:
            values.append(self._value(mark, text, depth))
            mark, _ = self._token()
            if mark == "]":
                return values
            if mark != ",":
                raise self._error("no comma between values")
            mark, text = self._token()

    def _object(self, depth: int) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        mark, text = self._token()
        if mark == "}":
            return entries
        while True:
            key = self._key(mark, text, depth)
            if self._token()[0] != ":":
                raise self._error("no colon behind a key")
            if key == "$ref":
                raise self._error("a $ref, which is not resolved")
            entries[key] = self._value(*self._token(), depth=depth)
            mark, _ = self._token()
            if mark == "}":
                return entries
            if mark != ",":
                raise self._error("no comma between entries")
            mark, text = self._token()

    def _key(self, mark: str, text: str, depth: int) -> Any:
        if mark == "{":
            return _frozen(self._value(mark, text, depth))
        if mark:
            raise self._error(f"{mark} for a key")
        if text[0] == '"':
            return self._string(text)
        return int(text) if _INTEGER.fullmatch(text) else text

    def _error(self, what: str) -> ProtocolError:
        return ProtocolError(f"undecodable JSON at character {self._position}: {what}")


def _frozen(value: Any) -> Any:
    """Make a value usable as a key."""
    if isinstance(value, dict):
        return tuple(sorted(((key, _frozen(part)) for key, part in value.items()), key=repr))
    if isinstance(value, list):
        return tuple(map(_frozen, value))
    return value


def dumps(value: Any, *, unquoted_int_keys: bool = False, pretty: bool = False) -> bytes:
    """Write ``value``: Structs, mappings, sequences, strings, numbers, booleans, ``None``.

    ``None`` members of objects are left out, as fastjson does; sets are sorted. Integer keys
    are quoted, which every Java reader accepts, unless ``unquoted_int_keys`` or ``pretty``.
    """
    pieces: list[str] = []
    _Writer(pieces, unquoted_int_keys or pretty, pretty).write(value, 0)
    return "".join(pieces).encode()


class _Writer:
    __slots__ = ("_pieces", "_pretty", "_unquoted")

    def __init__(self, pieces: list[str], unquoted: bool, pretty: bool) -> None:
        self._pieces = pieces
        self._unquoted = unquoted
        self._pretty = pretty

    def write(self, value: Any, depth: int) -> None:
        if value is None or isinstance(value, str | int | float):
            self._pieces.append(_encode(value).decode())
        elif isinstance(value, msgspec.Struct):
            members = ((name, getattr(value, part)) for name, part in _members(type(value)))
            self._write_object(members, depth)
        elif isinstance(value, Mapping):
            self._write_object(sorted(value.items(), key=_key_order), depth)
        elif isinstance(value, set | frozenset):
            self._write_array(sorted(value), depth)
        else:
            self._write_array(value, depth)

    def _write_object(self, members: Iterable[tuple[Any, Any]], depth: int) -> None:
        pieces = self._pieces
        pieces.append("{")
        first = True
        for key, value in members:
            if value is None:
                continue
            if not first:
                pieces.append(",")
            first = False
            self._write_key(key, depth + 1)
            pieces.append(":")
            self.write(value, depth + 1)
        if not first:
            self._break_line(depth)
        pieces.append("}")

    def _write_key(self, key: Any, depth: int) -> None:
        if isinstance(key, str):
            self._break_line(depth)
            self._pieces.append(_encode(key).decode())
        elif isinstance(key, int):
            self._pieces.append(str(key) if self._unquoted else f'"{key}"')
        else:
            self.write(dict(key) if isinstance(key, tuple) else key, depth)

    def _write_array(self, values: Iterable[Any], depth: int) -> None:
        self._pieces.append("[")
        first = True
        for value in values:
            if not first:
                self._pieces.append(",")
            first = False
            self._break_line(depth + 1)
            self.write(value, depth + 1)
        if not first:
            self._break_line(depth)
        self._pieces.append("]")

    def _break_line(self, depth: int) -> None:
        if self._pretty:
            self._pieces.append("\n" + "\t" * depth)


def _key_order(entry: tuple[Any, Any]) -> tuple[int, Any]:
    """Strings by text, integers by number, object keys by what they say."""
    key = entry[0]
    if isinstance(key, str):
        return 1, key
    return (0, key) if isinstance(key, int) else (2, repr(key))


@cache
def _members(cls: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    """Wire name and attribute of a Struct's fields, alphabetically by wire name."""
    return tuple(sorted(zip(cls.__struct_encode_fields__, cls.__struct_fields__, strict=True)))
