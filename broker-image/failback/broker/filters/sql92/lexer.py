"""Tokens of a SQL92 filter."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from failback.protocol.errors import ProtocolError

KEYWORDS: Final = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})
_TOKEN: Final = re.compile(
    r"""(?P<skip> [ \t\n\r\f]+ | --[^\n\r]*(?:\r\n|\n|\r) | /\*.*?\*/ )
      | (?P<text> '(?:''|[^'])*' )
      | (?P<float> \d+\.\d*(?:E[+-]?\d+)? | \.\d+(?:E[+-]?\d+)? | \d+E[+-]?\d+ )
      | (?P<whole> [1-9]\d*L? | 0 )
      | (?P<name> [A-Z_$][A-Z0-9_$]* )
      | (?P<mark> <> | <= | >= | [=<>(),+-] )""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL | re.ASCII,
)


class Token(NamedTuple):
    """``kind``: text, float, whole, name, end, or the keyword or mark itself."""

    kind: str
    text: str
    position: int


def tokens(expression: str) -> Iterator[Token]:
    """Yield the tokens as they are asked for, at last one of kind ``end``.

    Raises:
        ProtocolError: The text goes on with something that is no token.
    """
    position = 0
    while position < len(expression):
        found = _TOKEN.match(expression, position)
        if found is None:
            raise ProtocolError(f"{expression[position]!r} at {position} begins no token")
        kind, text = str(found.lastgroup), found[0]
        if kind == "name" and text.upper() in KEYWORDS:
            kind = text.upper()
        elif kind == "mark":
            kind = text
        if kind != "skip":
            yield Token(kind, text, position)
        position = found.end()
    yield Token("end", "", position)
