"""Writing the dialect: keys in alphabetical order without blanks, or as configuration files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode


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
