"""The catalogue of ``broker.conf`` keys, read once. Pure.

``config_keys.yaml`` has the keys of which more is known than the type, ``apache_keys.json`` all
that brokers of Apache read, with their versions (``tools/config_keys.py`` writes it).

Called by the rules (values of known keys), by rendering (restart hash), by planning (what
changes live, and in which order) and by the local runtime (warnings).
"""

from __future__ import annotations

import functools
import ipaddress
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from importlib import resources
from types import MappingProxyType
from typing import Any, Final

from failback.common.text import nearest
from failback.operator.engines.quirks import applies, in_words, quirk, read_rows

__all__ = [
    "UNKNOWN_CLASS",
    "ConfigKey",
    "class_of",
    "config_keys",
    "known_keys",
    "normalise",
    "order_of",
    "quirk",
    "restarts",
    "same_value",
    "unknown_key_hint",
]

ACCEPT_UNKNOWN_KEY: Final = "failback.dev/accept-unknown-key"
"""Annotation of a cluster with keys, by commas, that are applied although no broker knows them."""
UNKNOWN_CLASS: Final = "roll"
"""The class of a key of which no more is known: the safe one."""
GENERATED_FILE: Final = "apache_keys.json"
_OF_APACHE: Final = {"class": UNKNOWN_CLASS, "engine": "apache", "source": ""}
SLAVES_FIRST: Final = "slaves"
SLAVES_UNLESS_FALSE: Final = "slaves-unless-false"
_INTEGER = re.compile(r"^[+-]?[0-9]+\Z")
_HOURS: Final = re.compile(r"^([01]?[0-9]|2[0-3])(;([01]?[0-9]|2[0-3]))*\Z")
_DELAYS: Final = re.compile(r"^[1-9][0-9]{0,8}[smhd]( [1-9][0-9]{0,8}[smhd])*\Z")
_TRUE_OR_FALSE: Final = ("true", "false")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key of ``broker.conf``."""

    name: str
    type: str
    """``int``, ``float``, ``bool``, ``string``, ``list``, ``enum:A,B``, ``networks`` (addresses, by
    semicolons), ``hours`` (of the day, by semicolons) or ``delays`` (numbers with s, m, h or d, by
    blanks)."""
    change: str
    """``live``, ``roll``, ``immutable``, ``switch`` or ``refused``."""
    engine: str | None
    """The engine that knows it; ``None`` = both."""
    versions: str
    """The versions of Apache that read it; empty = all."""
    bits: int
    """Width of an ``int``: what a Java int or long can hold."""
    least: float | None
    most: float | None
    """The bounds of a number where they are narrower: no broker of Failback starts beyond them."""
    order: str
    """Members that get a live change first: ``slaves``, ``slaves-unless-false`` or ``master``."""
    default: str | None
    """The value of a broker whose file has no such key; ``None`` = it depends."""
    source: str
    """What in the broker reads it; empty = not looked up, its type is all that is known."""

    def problem(self, value: str) -> str | None:
        """Say what is wrong with ``value``, or ``None`` when the broker will understand it."""
        if self.type == "int":
            return self._integer_problem(value)
        if self.type == "bool" and value not in _TRUE_OR_FALSE:
            return f'must be "true" or "false", got "{value}"'
        if self.type == "float":
            return self._number_problem(value)
        if self.type == "hours" and not _HOURS.match(value):
            return f'must be hours of the day such as 04;16, got "{value}"'
        if self.type == "networks" and not all(map(_is_network, value.split(";"))):
            return f'must be addresses or networks such as 10.0.0.0/8;::1, got "{value}"'
        if self.type == "delays" and not _DELAYS.match(value):
            return f'must be times such as 1s 5s 10m 2h, got "{value}"'
        if self.type.startswith("enum:"):
            allowed = self.type.removeprefix("enum:").split(",")
            if value not in allowed:
                return f'must be {" or ".join(allowed)}, got "{value}"'
        return None

    def _integer_problem(self, value: str) -> str | None:
        if not _INTEGER.match(value):
            return f'must be an integer, got "{value}"'
        most = 2 ** (self.bits - 1) - 1
        return self._bounds_problem(int(value), -most - 1, most, value)

    def _number_problem(self, value: str) -> str | None:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if math.isnan(number) or math.isinf(number):
            return f'must be a number, got "{value}"'
        return self._bounds_problem(number, -math.inf, math.inf, value)

    def _bounds_problem(self, number: float, least: float, most: float, value: str) -> str | None:
        least = least if self.least is None else self.least
        most = most if self.most is None else self.most
        if number < least:
            return f'must be at least {least}, got "{value}"'
        if number > most:
            return f'must be at most {most}, got "{value}"'
        return None

    def known_to(self, engine: str, version: str | None) -> bool:
        """Tell whether ``engine`` (at ``version``, if given) has this key."""
        if self.engine is not None and self.engine != engine:
            return False
        return version is None or engine != "apache" or applies(self.versions, version)


def _is_network(text: str) -> bool:
    """Tell whether a text is an address, a network or nothing."""
    try:
        return not text.strip() or bool(ipaddress.ip_network(text.strip(), strict=False))
    except ValueError:
        return False


@functools.cache
def config_keys() -> MappingProxyType[str, ConfigKey]:
    """Return the whole catalogue by key."""
    file = resources.files("failback.operator.engines").joinpath(GENERATED_FILE)
    found = {row["key"]: row for row in read_rows("config_keys.yaml")}
    for key, row in json.loads(file.read_text(encoding="utf-8")).items():
        found[key] = {**row, **found.get(key, {"key": key, **_OF_APACHE})}
    return MappingProxyType({key: _row(each) for key, each in found.items()})


def _row(row: Mapping[str, Any]) -> ConfigKey:
    return ConfigKey(
        name=row["key"],
        type=row["type"],
        change=row["class"],
        engine=row.get("engine"),
        versions=row.get("versions", ""),
        bits=row.get("bits", 32),
        least=row.get("least"),
        most=row.get("most"),
        order=row.get("order", SLAVES_FIRST),
        default=row.get("default"),
        source=row["source"],
    )


@functools.cache
def known_keys(engine: str, version: str | None = None) -> MappingProxyType[str, ConfigKey]:
    """Return the keys that ``engine`` has."""
    rows = config_keys().items()
    return MappingProxyType({name: row for name, row in rows if row.known_to(engine, version)})


def class_of(key: str, engine: str, version: str | None = None) -> str:
    """Return how a change of ``key`` reaches a broker; an unknown key rolls."""
    row = known_keys(engine, version).get(key)
    return UNKNOWN_CLASS if row is None else row.change


def restarts(key: str) -> bool:
    """Tell whether a change of ``key`` needs a restart. Unknown keys do."""
    known = config_keys().get(key)
    return known is None or known.change != "live"


def order_of(key: str, value: str) -> str:
    """Return which members take a live change to ``value`` first: ``slaves`` or ``master``."""
    row = config_keys().get(key)
    order = SLAVES_FIRST if row is None else row.order
    if order == SLAVES_UNLESS_FALSE:
        return "master" if normalise(key, value) == "false" else "slaves"
    return order


def normalise(key: str, value: str) -> str:
    """Return ``value`` in the one spelling that equal values of ``key`` share.

    Booleans and enums by name, numbers by value, lists by their parts, strings as they are. What
    the type can't read stays as it is.
    """
    row = config_keys().get(key)
    kind = "string" if row is None else row.type
    if kind == "bool":
        return value.strip().lower()
    if kind.startswith("enum:"):
        return value.strip().upper()
    if kind == "list":
        return ";".join(sorted({part.strip() for part in value.split(";") if part.strip()}))
    if kind in ("int", "float"):
        return _number(value)
    return value


def same_value(key: str, one: str, other: str) -> bool:
    """Tell whether two values of ``key`` mean the same to a broker."""
    return normalise(key, one) == normalise(key, other)


def _number(value: str) -> str:
    try:
        number = Decimal(value.strip())
    except InvalidOperation:
        return value
    if not number.is_finite():
        return value
    return format(number.normalize(), "f") if number else "0"


def unknown_key_hint(key: str, engine: str, version: str | None = None) -> str | None:
    """Say that ``key`` is not known to ``engine``, or ``None``.

    What another version or engine knows is said so, else the nearest key is.

    >>> unknown_key_hint("fileReservedTimes", "failback", "0.1.0")
    'fileReservedTimes is not a broker.conf key of failback 0.1.0, did you mean "fileReservedTime"?'
    """
    known = known_keys(engine, version)
    if key in known:
        return None
    name = engine if version is None else f"{engine} {version}"
    found = f"{key} is not a broker.conf key of {name}"
    other = config_keys().get(key)
    if other is not None:  # of another version, or of the other engine
        has = f"{other.engine or 'apache'} has it {in_words(other.versions)}".rstrip()
        return f"{found}, {has}"
    near = nearest(key, known)
    return f'{found}, did you mean "{near}"?' if near else found
