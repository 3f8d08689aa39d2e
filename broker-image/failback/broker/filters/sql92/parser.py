"""From the text of a SQL92 filter to its tokens, and to a function over properties.

    or          := and (OR and)*
    and         := equality (AND equality)*
    equality    := comparison (= comparison | <> comparison | IS [NOT] NULL)*
    comparison  := unary (< unary | ... | [NOT] BETWEEN unary AND unary | [NOT] IN (text, ...))*
    unary       := + unary | - unary | NOT unary | literal | name | ( or )

Text behind a whole expression is ignored, as in the original.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from failback.broker.filters.sql92.expressions import (
    INT_MAX,
    LONG_MAX,
    Condition,
    Constant,
    Equal,
    Expression,
    In,
    Incomparable,
    Logic,
    Negated,
    Not,
    Ordered,
    Properties,
    Property,
    check_equal,
    check_ordered,
    compare,
)
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
MAX_DEPTH: Final = 100
"""Parentheses and signs within each other."""
MAX_CHARACTERS: Final = 32_767
_HOLDS: Final[dict[str, Callable[[int], bool]]] = {
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
}


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


Filter = Callable[[Properties], bool]


@lru_cache(maxsize=100)
def compile_filter(expression: str) -> Filter:
    """Return the function that tells whether a message with these properties matches.

    Raises:
        ProtocolError: It is no condition.
    """
    if len(expression) > MAX_CHARACTERS:
        raise ProtocolError(f"a filter of {len(expression)} characters")
    root = _Parser(expression).parse()

    def matches(properties: Properties) -> bool:
        try:
            return root.evaluate(properties) is True
        except Incomparable:
            return False

    return matches


class _Parser:
    """Recursive descent with one token of look-ahead, two where NOT may begin two things."""

    def __init__(self, expression: str) -> None:
        self._tokens: Iterator[Token] = tokens(expression)
        self._ahead: list[Token] = []
        self._depth = 0
        self._chained = 0

    def parse(self) -> Expression:
        return _as_condition(self._or())

    # --- tokens ---------------------------------------------------------------------------

    def _peek(self, distance: int = 0) -> Token:
        while len(self._ahead) <= distance:
            last = self._ahead[-1] if self._ahead else None
            is_end = last is not None and last.kind == "end"
            self._ahead.append(last if is_end and last else next(self._tokens))
        return self._ahead[distance]

    def _take(self, kind: str | None = None) -> Token:
        token = self._peek()
        if kind is not None and token.kind != kind:
            found = token.text or "the end"
            raise ProtocolError(f"expected {kind}, found {found} at {token.position}")
        if token.kind != "end":
            self._ahead.pop(0)
        return token

    def _accept(self, *kinds: str) -> bool:
        """Take the next tokens if they are of these kinds."""
        if all(self._peek(distance).kind == kind for distance, kind in enumerate(kinds)):
            for kind in kinds:
                self._take(kind)
            return True
        return False

    # --- rules ----------------------------------------------------------------------------

    def _or(self) -> Expression:
        parts = [self._and()]
        while self._accept("OR"):
            parts.append(self._and())
        return parts[0] if len(parts) == 1 else Logic(tuple(map(_as_condition, parts)), True)

    def _and(self) -> Expression:
        parts = [self._equality()]
        while self._accept("AND"):
            parts.append(self._equality())
        return parts[0] if len(parts) == 1 else Logic(tuple(map(_as_condition, parts)), False)

    def _equality(self) -> Expression:
        left = self._comparison()
        while True:
            before = left
            if self._accept("="):
                left = _equal(left, self._comparison())
            elif self._accept("<>"):
                left = Not(_equal(left, self._comparison()))
            elif self._accept("IS", "NULL"):
                left = Equal(left, Constant(None))
            elif self._accept("IS"):
                self._take("NOT")
                self._take("NULL")
                left = Not(Equal(left, Constant(None)))
            else:
                return left
            self._bound(before)

    def _comparison(self) -> Expression:
        left = self._unary()
        while True:
            before, token = left, self._peek()
            if token.kind in _HOLDS:
                self._take()
                left = _ordered(left, self._unary(), token.kind)
            elif self._accept("BETWEEN"):
                left = self._between(left, is_negated=False)
            elif self._accept("NOT", "BETWEEN"):
                left = self._between(left, is_negated=True)
            elif self._accept("IN"):
                left = self._in(left, is_negated=False)
            elif self._accept("NOT", "IN"):
                left = self._in(left, is_negated=True)
            elif token.kind == "NOT":
                raise ProtocolError(f"NOT at {token.position} is followed by no test")
            else:
                return left
            self._bound(before)

    def _bound(self, left: Expression) -> None:
        """Bound how many results are compared again: they nest as parentheses do."""
        self._chained += left.is_boolean
        if self._chained > MAX_DEPTH:
            raise ProtocolError(f"more than {MAX_DEPTH} results of comparisons are compared")

    def _between(self, value: Expression, *, is_negated: bool) -> Expression:
        low = self._unary()
        self._take("AND")
        high = self._unary()
        if is_negated:
            return Logic((_ordered(value, low, "<"), _ordered(value, high, ">")), True)
        _check_range(low, high)
        return Logic((_ordered(value, low, ">="), _ordered(value, high, "<=")), False)

    def _in(self, value: Expression, *, is_negated: bool) -> Expression:
        self._take("(")
        texts = [_text(self._take("text"))]
        while self._accept(","):
            texts.append(_text(self._take("text")))
        self._take(")")
        if not isinstance(value, Property):
            raise ProtocolError("IN needs a property on its left")
        return In(value, frozenset(texts), is_negated)

    def _unary(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ProtocolError(f"a filter nested more than {MAX_DEPTH} deep")
        try:
            if self._accept("+"):
                return self._unary()
            if self._accept("-"):
                return Negated(self._unary())
            if self._accept("NOT"):
                return Not(_as_condition(self._unary()))
            return self._primary()
        finally:
            self._depth -= 1

    def _primary(self) -> Expression:
        token = self._take()
        match token.kind:
            case "text":
                return Constant(_text(token))
            case "whole":
                return _whole(token)
            case "float":
                return _float(token)
            case "TRUE" | "FALSE":
                return Constant(token.kind == "TRUE")
            case "NULL":
                return Constant(None)
            case "name":
                return Property(token.text)
            case "(":
                inner = self._or()
                self._take(")")
                return inner
            case _:
                found = token.text or "the end"
                raise ProtocolError(f"expected a value, found {found} at {token.position}")


def _as_condition(value: Expression) -> Expression:
    if value.is_boolean:
        return value
    if isinstance(value, Property):
        return Condition(value)
    raise ProtocolError("a number or a text stands where a condition is needed")


def _equal(left: Expression, right: Expression) -> Expression:
    check_equal(left, right)
    return Equal(left, right)


def _ordered(left: Expression, right: Expression, mark: str) -> Expression:
    check_ordered(left, right)
    return Ordered(left, right, _HOLDS[mark])


def _check_range(low: Expression, high: Expression) -> None:
    if isinstance(low, Constant) and isinstance(high, Constant):
        if low.value is None or high.value is None:
            raise ProtocolError("BETWEEN needs two values, not NULL")
        try:
            is_reversed = compare(high.value, low.value) < 0
        except Incomparable as error:
            raise ProtocolError(f"BETWEEN cannot compare its ends: {error}") from error
        if is_reversed:
            raise ProtocolError(f"BETWEEN {low.value} AND {high.value} holds nothing")


def _text(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _whole(token: Token) -> Constant:
    digits = token.text.rstrip("lL")
    if len(digits) > 19 or int(digits) > LONG_MAX:
        raise ProtocolError(f"{token.text} is above {LONG_MAX}")
    return Constant(int(digits), is_long=int(digits) > INT_MAX)


def _float(token: Token) -> Constant:
    value = float(token.text)
    if math.isinf(value):
        raise ProtocolError(f"{token.text} is above {sys.float_info.max}")
    if value < 5e-324:  # the original's Double.MIN_VALUE, so 0.0 is refused as well
        raise ProtocolError(f"{token.text} is below the smallest double")
    return Constant(value)
