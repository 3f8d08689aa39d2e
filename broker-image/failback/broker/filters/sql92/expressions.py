"""What a SQL92 filter is made of, and how each part is evaluated.

Values are ``str`` (every property), ``int``, ``float``, ``bool`` and ``None``, which is the
unknown of three-valued logic: a property that is not there, and every result of it.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from failback.protocol.errors import ProtocolError

Value = str | int | float | bool | None
Properties = Mapping[str, str]

INT_MAX: Final = 2**31 - 1
INT_MIN: Final = -(2**31)
LONG_MAX: Final = 2**63 - 1
_WHOLE: Final = re.compile(r"[+-]?\d+", re.ASCII)
_FLOAT: Final = re.compile(
    r"\s*([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))[fFdD]?\s*", re.ASCII
)
_BEHIND: Final = -1
"""What comparing values of types that have nothing in common gives: the left is the smaller."""


class Incomparable(Exception):
    """A message has a value that can't be compared as asked: it does not match."""


class Expression(ABC):
    """One node. ``is_boolean`` tells whether it can be used as a condition."""

    is_boolean = False

    @abstractmethod
    def evaluate(self, properties: Properties) -> Value:
        """Return the value for a message.

        Raises:
            Incomparable: The message has a value of the wrong kind.
        """


@dataclass(frozen=True, slots=True)
class Constant(Expression):
    value: Value
    is_long: bool = False
    """A whole number that was written too large for 32 bits: texts are read as 64 bits then."""

    @property
    def is_boolean(self) -> bool:  # type: ignore[override]
        return self.value is None or isinstance(self.value, bool)

    @property
    def is_number(self) -> bool:
        return isinstance(self.value, int | float) and not isinstance(self.value, bool)

    def evaluate(self, _properties: Properties) -> Value:
        return self.value


@dataclass(frozen=True, slots=True)
class Property(Expression):
    name: str

    def evaluate(self, properties: Properties) -> Value:
        return properties.get(self.name)


@dataclass(frozen=True, slots=True)
class Negated(Expression):
    """A number with a minus before it; of anything else nothing is known."""

    right: Expression

    def evaluate(self, properties: Properties) -> Value:
        value = self.right.evaluate(properties)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value
        return None


@dataclass(frozen=True, slots=True)
class Condition(Expression):
    """A property where a condition is needed. It is a text, and no text is true."""

    right: Expression
    is_boolean = True

    def evaluate(self, properties: Properties) -> Value:
        value = self.right.evaluate(properties)
        if value is None:
            return None
        return value if isinstance(value, bool) else False


@dataclass(frozen=True, slots=True)
class Not(Expression):
    right: Expression
    is_boolean = True

    def evaluate(self, properties: Properties) -> Value:
        value = self.right.evaluate(properties)
        return None if value is None else not value


@dataclass(frozen=True, slots=True)
class Logic(Expression):
    """AND (``decisive`` false) or OR (``decisive`` true): the value that decides alone."""

    parts: tuple[Expression, ...]
    decisive: bool
    is_boolean = True

    def evaluate(self, properties: Properties) -> Value:
        is_known = True
        for part in self.parts:
            value = part.evaluate(properties)
            if value is self.decisive:
                return value
            is_known = is_known and value is not None
        return not self.decisive if is_known else None


@dataclass(frozen=True, slots=True)
class In(Expression):
    left: Property
    texts: frozenset[str]
    is_negated: bool
    is_boolean = True

    def evaluate(self, properties: Properties) -> Value:
        value = self.left.evaluate(properties)
        return None if value is None else (value in self.texts) is not self.is_negated


@dataclass(frozen=True, slots=True)
class Equal(Expression):
    """Two missing values are equal; a missing left one is unknown, a missing right one differs."""

    left: Expression
    right: Expression
    is_boolean = True

    def evaluate(self, properties: Properties) -> Value:
        left, right = self.left.evaluate(properties), self.right.evaluate(properties)
        if left is None or right is None:
            return True if left is right else None if left is None else False
        return compare(left, right, long=_is_long(self.left, self.right)) == 0


@dataclass(frozen=True, slots=True)
class Ordered(Expression):
    """``<``, ``<=``, ``>`` or ``>=``, by what ``holds`` says of the comparison's sign."""

    left: Expression
    right: Expression
    holds: Callable[[int], bool]
    is_boolean = True

    def evaluate(self, properties: Properties) -> Value:
        left = self.left.evaluate(properties)
        if left is None:
            return None
        right = self.right.evaluate(properties)
        if right is None:
            return None
        if isinstance(left, str) and isinstance(right, str):
            left, right = _double(left), _double(right)
        return self.holds(compare(left, right, long=_is_long(self.left, self.right)))


def compare(left: Value, right: Value, *, long: bool = False) -> int:
    """Return -1, 0 or 1; a text takes the type of what it is compared with.

    ``long``: whole numbers in texts have 64 bits instead of 32.

    Raises:
        Incomparable: A text does not have that type.
    """
    if isinstance(left, bool) or isinstance(right, bool):
        return _compare_truth(left, right)
    if isinstance(left, str) is not isinstance(right, str):
        if isinstance(left, str):
            left = _as_number(left, right, long)
        else:
            right = _as_number(right, left, long)
    assert left is not None
    assert right is not None
    return _sign(left, right)


def _compare_truth(left: Value, right: Value) -> int:
    if isinstance(left, str):
        left = left.lower() == "true"
    elif isinstance(right, str):
        # The original tries to read the left value as a text here, and fails.
        raise Incomparable("a truth value stands left of a text")
    if isinstance(left, bool) and isinstance(right, bool):
        return int(left) - int(right)
    return _BEHIND


def _as_number(text: Value, like: Value, long: bool) -> int | float:
    assert isinstance(text, str)
    if isinstance(like, float):
        return _double(text)
    low, high = (-LONG_MAX - 1, LONG_MAX) if long else (INT_MIN, INT_MAX)
    if _WHOLE.fullmatch(text) and len(text) <= 4000 and low <= int(text) <= high:
        return int(text)
    raise Incomparable(f"{text!r} is no whole number of {64 if long else 32} bits")


def _double(text: str) -> float:
    found = _FLOAT.fullmatch(text)
    if found is None:
        raise Incomparable(f"{text!r} is no number")
    return float(found[1])


def _sign(left: int | float | str, right: int | float | str) -> int:
    """Compare values of one kind; doubles as Java sorts them, where NaN is the largest."""
    if isinstance(left, float) or isinstance(right, float):
        first, second = _rank(float(left)), _rank(float(right))
        return (first > second) - (first < second)
    return int(left > right) - int(left < right)  # type: ignore[operator] # of one kind by now


def _rank(value: float) -> tuple[bool, float, float]:
    is_nan = math.isnan(value)
    return is_nan, 0.0 if is_nan else value, 0.0 if is_nan else math.copysign(1.0, value)


def _is_long(*sides: Expression) -> bool:
    for side in sides:
        inner = side
        while isinstance(inner, Negated):
            inner = inner.right
        if isinstance(inner, Constant) and inner.is_long:
            return True
    return False


def check_equal(left: Expression, right: Expression) -> None:
    """Refuse ``=`` and ``<>`` with NULL, and a truth value against a number or a text.

    Raises:
        ProtocolError: With what is wrong.
    """
    for side in (left, right):
        if isinstance(side, Constant) and side.value is None:
            raise ProtocolError("NULL cannot be compared: say IS NULL")
    are_constants = isinstance(left, Constant) and isinstance(right, Constant)
    if are_constants and left.is_boolean and not right.is_boolean:
        raise ProtocolError("a truth value cannot be compared with a number or a text")


def check_ordered(*sides: Expression) -> None:
    """Refuse ``<`` and the like with anything but numbers and properties.

    Raises:
        ProtocolError: With what is wrong.
    """
    for side in sides:
        if isinstance(side, Constant) and side.is_number:
            continue
        if isinstance(side, Constant) or side.is_boolean:
            what = repr(side.value) if isinstance(side, Constant) else "a condition"
            raise ProtocolError(f"{what} cannot be compared by <, <=, > or >=")
