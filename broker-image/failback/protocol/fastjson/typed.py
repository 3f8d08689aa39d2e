"""Reading what is known to be of a class, as leniently as fastjson does.

Members match without regard to letter case, underscores and hyphens. Members that the class does
not have are skipped without being built. What is null or missing has its default, a number
without one is 0. Numbers may be strings, and booleans numbers or words; texts may be any value. A
``Literal`` is an enum of Java: its values by number, or by name in any letter case, and a name that
there is not stands for none. Objects as keys of a table become Structs.
Source: DefaultJSONParser, JavaBeanDeserializer and TypeUtils of fastjson 1.2.69.
"""

from __future__ import annotations

import math
import re
import types
import typing
from abc import ABC, abstractmethod
from typing import Annotated, Any, Final, TypeVar, cast

import msgspec

from failback.protocol.errors import ProtocolError
from failback.protocol.fastjson.reading import ENDS, MAX_DEPTH, Lexer, Number, Refused, text_of

_INTEGER_TEXT: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_TRUE: Final = frozenset({"true", "1", "y", "t"})
_FALSE: Final = frozenset({"false", "0", "n", "f"})
_LIMIT: Final = 2**63
_SHOWN: Final = 40

T = TypeVar("T")


class _Missing:
    """What is read where null stands: the member keeps its default."""


MISSING: Final = _Missing()


def read(data: bytes | str, hint: type[T]) -> T:
    """Read one document as a Struct, a list or a table.

    Raises:
        ProtocolError: It is no JSON, or not that of this type: names the member, line and column.
    """
    lexer = Lexer(text_of(data))
    lexer.begin()
    try:
        value = plan_of(hint).read(lexer, 0)
        lexer.end()
        if value is MISSING:
            lexer.fail("nothing where a document is expected")
    except Refused as refused:
        member = f"{refused.path}: " if refused.path else ""
        raise ProtocolError(f"unexpected JSON: {member}{refused.what} ({lexer.place()})") from None
    return cast(T, value)


# --- plans: how a type is read --------------------------------------------------------------


class Plan(ABC):
    """How one type is read. ``absent`` is the value of a required member that is missing."""

    absent: Any = MISSING

    @abstractmethod
    def read(self, lexer: Lexer, depth: int) -> Any:
        """Take a value; :data:`MISSING` for null.

        Raises:
            Refused: It can't be one of this type.
        """

    def read_key(self, lexer: Lexer, depth: int) -> Any:
        """Take the key of a table; raises as :meth:`read`."""
        raise Refused("no key of a table")


class _Text(Plan):
    def read(self, lexer: Lexer, depth: int) -> Any:
        first = lexer.peek()
        if first == '"':
            return lexer.string()
        if first in ("{", "["):
            return lexer.raw()
        start = lexer.position
        value = lexer.scalar()
        if value is None:
            return MISSING
        if value is True or value is False:
            return lexer.text[start : lexer.position]
        return str(value)

    def read_key(self, lexer: Lexer, depth: int) -> Any:
        first = lexer.peek()
        if first in ('"', "'"):
            return lexer.string()
        if first.isdigit() or first == "-":
            return str(lexer.number())
        return lexer.word()


class _Integer(Plan):
    absent = 0

    def __init__(self, limit: int = _LIMIT) -> None:
        self._limit = limit

    def read(self, lexer: Lexer, depth: int) -> Any:
        if lexer.peek() in ("{", "["):
            raise Refused("a number is expected")
        value = lexer.scalar()
        if value is None:
            return MISSING
        if isinstance(value, Number):
            return self._checked(value.value(), value)
        if isinstance(value, str):
            return self._of_text(value)
        return int(value)

    def read_key(self, lexer: Lexer, depth: int) -> Any:
        first = lexer.peek()
        value = lexer.string() if first in ('"', "'") else lexer.number()
        if _INTEGER_TEXT.fullmatch(value) is None:
            raise Refused(f'"{value[:_SHOWN]}" is no whole number')
        return self._checked(int(value), value)

    def _of_text(self, text: str) -> Any:
        if text in ("", "null", "NULL"):
            return MISSING
        digits = text.replace(",", "")
        if _INTEGER_TEXT.fullmatch(digits) is None:
            raise Refused(f'"{text[:_SHOWN]}" is no whole number')
        return self._checked(int(digits), text)

    def _checked(self, number: int | float, text: str) -> int:
        if math.isfinite(number) and -self._limit <= number < self._limit:
            return int(number)
        raise Refused(f"{text[:_SHOWN]} is no {self._limit.bit_length()}-bit integer")


class _Real(Plan):
    absent = 0.0

    def read(self, lexer: Lexer, depth: int) -> Any:
        if lexer.peek() in ("{", "["):
            raise Refused("a number is expected")
        value = lexer.scalar()
        if value is None or value in ("", "null", "NULL"):
            return MISSING
        try:
            return float(value)
        except ValueError:
            raise Refused(f'"{value[:_SHOWN]}" is no number') from None


class _Flag(Plan):
    absent = False

    def read(self, lexer: Lexer, depth: int) -> Any:
        if lexer.peek() in ("{", "["):
            raise Refused("true or false is expected")
        value = lexer.scalar()
        if value is None or isinstance(value, bool):
            return MISSING if value is None else value
        if isinstance(value, Number):
            return value.value() == 1
        word = value.lower()
        if word in ("", "null"):
            return MISSING
        if word not in _TRUE and word not in _FALSE:
            raise Refused(f'"{value[:_SHOWN]}" is neither true nor false')
        return word in _TRUE


class _Enum(Plan):
    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._by_folded = {name.lower(): name for name in names}

    def read(self, lexer: Lexer, depth: int) -> Any:
        if lexer.peek() in ("{", "["):
            raise Refused(f"one of {', '.join(self._names)} is expected")
        value = lexer.scalar()
        if value is None:
            return MISSING
        if isinstance(value, Number):
            number = value.value()
            if isinstance(number, int) and 0 <= number < len(self._names):
                return self._names[number]
        elif isinstance(value, str):
            return self._by_folded.get(value.lower(), MISSING)
        raise Refused(f"{str(value)[:_SHOWN]} is no number of {', '.join(self._names)}")


class _Optional(Plan):
    absent = None

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def read(self, lexer: Lexer, depth: int) -> Any:
        value = self._plan.read(lexer, depth)
        return None if value is MISSING else value


class _List(Plan):
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._holds_structs = isinstance(plan, _Struct)

    @property
    def absent(self) -> Any:
        return []

    def read(self, lexer: Lexer, depth: int) -> Any:
        if not lexer.opens("["):
            if lexer.peek() == "{" and self._holds_structs:
                return [self._plan.read(lexer, depth)]  # one of them, as Java takes it
            return _nothing(lexer, "a list")
        if depth >= MAX_DEPTH:
            raise Refused(f"nested deeper than {MAX_DEPTH}")
        values: list[Any] = []
        lexer.skip_commas()
        while lexer.peek() != "]":
            try:
                value = self._plan.read(lexer, depth + 1)
                if value is MISSING and self._holds_structs:
                    raise Refused("nothing where an object is expected")
            except Refused as refused:
                raise refused.below(f"[{len(values)}]") from None
            if value is not MISSING:
                values.append(value)
            lexer.skip_commas()  # Java does without one here
        lexer.position += 1
        return values


class _Table(Plan):
    def __init__(self, key: Plan, value: Plan) -> None:
        self._key = key
        self._value = value
        self._may_be_null = isinstance(value, _Text | _Optional)

    @property
    def absent(self) -> Any:
        return {}

    def read(self, lexer: Lexer, depth: int) -> Any:
        if not lexer.opens("{"):
            return _nothing(lexer, "an object")
        if depth >= MAX_DEPTH:
            raise Refused(f"nested deeper than {MAX_DEPTH}")
        entries: dict[Any, Any] = {}
        lexer.skip_commas()
        while lexer.peek() != "}":
            key = self._key.read_key(lexer, depth + 1)
            lexer.colon()
            try:
                value = self._value.read(lexer, depth + 1)
                if value is MISSING and not self._may_be_null:
                    raise Refused("null in a table")
            except Refused as refused:
                raise refused.below(str(key)) from None
            if value is not MISSING:
                entries[key] = value
            if not lexer.skip_commas() and lexer.peek() != "}":
                raise Refused("no comma between entries" if lexer.peek() else ENDS)
        lexer.position += 1
        return entries


class _Struct(Plan):
    def __init__(self, cls: type[msgspec.Struct]) -> None:
        self._cls = cls
        self._members: dict[str, tuple[str, Plan]] = {}
        self._found: dict[str, tuple[str, Plan] | None] = {}
        self._required: list[tuple[str, str, Plan]] = []

    def fill(self) -> None:
        """Look at the members, once the plan itself can be found: classes may hold themselves."""
        hints = typing.get_type_hints(self._cls, include_extras=True)
        for field in msgspec.structs.fields(self._cls):
            plan = plan_of(hints[field.name])
            self._members[field.encode_name] = (field.name, plan)
            if field.required:
                self._required.append((field.name, field.encode_name, plan))
        self._found.update(self._members)
        self._folded = {_folded(name): member for name, member in self._members.items()}

    def read(self, lexer: Lexer, depth: int) -> Any:
        if not lexer.opens("{"):
            return self._nothing(lexer)
        if depth >= MAX_DEPTH:
            raise Refused(f"nested deeper than {MAX_DEPTH}")
        values: dict[str, Any] = {}
        lexer.skip_commas()
        while lexer.peek() != "}":
            name = _member_name(lexer)
            lexer.colon()
            member = self._found[name] if name in self._found else self._find(name)
            if member is None:
                lexer.skip()
            else:
                try:
                    value = member[1].read(lexer, depth + 1)
                except Refused as refused:
                    raise refused.below(name[:_SHOWN]) from None
                if value is MISSING:
                    values.pop(member[0], None)
                else:
                    values[member[0]] = value
            if not lexer.skip_commas() and lexer.peek() != "}":
                raise Refused("no comma between members" if lexer.peek() else ENDS)
        lexer.position += 1
        return self._made(values)

    def read_key(self, lexer: Lexer, depth: int) -> Any:
        if lexer.peek() == "{":
            return self.read(lexer, depth)
        inner = Lexer(lexer.string()) if lexer.peek() in ('"', "'") else None
        if inner is None or inner.peek() != "{":
            raise Refused("an object is expected for a key")
        value = self.read(inner, depth)
        inner.end()
        return value

    def _find(self, name: str) -> tuple[str, Plan] | None:
        """Return the member that is meant."""
        folded = _folded(name)
        member = self._folded.get(folded)
        if member is None and folded.startswith("is"):
            member = self._folded.get(folded[2:])
            if member is not None and not isinstance(member[1], _Flag):
                member = None
        return member

    def _made(self, values: dict[str, Any]) -> Any:
        for name, wire_name, plan in self._required:
            if name not in values:
                if plan.absent is MISSING:
                    raise Refused("missing").below(wire_name)
                values[name] = plan.absent
        return self._cls(**values)

    def _nothing(self, lexer: Lexer) -> Any:
        if lexer.text.startswith(('""', "[]"), lexer.position):
            lexer.position += 2  # an empty text or list stands for null, as in Java
            return MISSING
        return _nothing(lexer, "an object")


def _member_name(lexer: Lexer) -> str:
    first = lexer.peek()
    if first in ('"', "'"):
        return lexer.string()
    if first in ("{", "["):
        return lexer.raw()
    if first.isdigit() or first == "-":
        return str(lexer.number())
    return lexer.word()


def _nothing(lexer: Lexer, expected: str) -> Any:
    """Take null; raise for all else."""
    if lexer.peek() == "":
        raise Refused(ENDS)
    start = lexer.position
    if lexer.peek() not in ("{", "[") and lexer.scalar() is None:
        return MISSING
    raise Refused(f"{expected} is expected, not {lexer.text[start : start + 20]}")


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


_PLANS: dict[type[msgspec.Struct], _Struct] = {}


def plan_of(hint: Any) -> Plan:
    """Return how the type of an annotation is read."""
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        if hint not in _PLANS:
            _PLANS[hint] = plan = _Struct(hint)
            plan.fill()
        return _PLANS[hint]
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is list:
        return _List(plan_of(arguments[0]))
    if origin is dict:
        return _Table(plan_of(arguments[0]), plan_of(arguments[1]))
    if origin is typing.Literal:
        return _Enum(arguments)
    if origin is Annotated:
        return _Integer(arguments[1].le + 1)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (each for each in arguments if each is not types.NoneType)
        return _Optional(plan_of(inner))
    raise TypeError(f"no rule for {hint}")


_SCALARS: Final[dict[Any, Plan]] = {str: _Text(), int: _Integer(), float: _Real(), bool: _Flag()}
