"""Facts about engine versions, kept as data in ``quirks.yaml``. Pure.

No code compares versions: it asks for a fact, and the table has the versions of each fact.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from ruamel.yaml import YAML

Fact = str | int | bool

_COMPARE: Final[dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]]] = {
    ">=": lambda have, want: have[: len(want)] >= want,
    "<=": lambda have, want: have[: len(want)] <= want,
    "<": lambda have, want: have[: len(want)] < want,
    ">": lambda have, want: have[: len(want)] > want,
    "==": lambda have, want: have[: len(want)] == want,
}
PUBLISHED: Final = (
    "4.9.0", "4.9.1", "4.9.2", "4.9.3", "4.9.4", "4.9.5", "4.9.7",
    "5.0.0", "5.1.0", "5.1.1", "5.1.3", "5.1.4", "5.2.0",
    "5.3.0", "5.3.1", "5.3.2", "5.3.3", "5.3.4", "5.4.0", "5.5.0", "5.5.1",
)  # fmt: skip
"""Versions of Apache from 4.9 on whose broker is on Maven Central."""
_ELSEWHERE: Final = ("4.9.6", "4.9.8", "5.1.2")
"""Releases of Apache whose broker is not."""
OLDER_FIRST: Final = ("v4", "v5")
"""Store families; a broker reads its own and what was written by those before it."""


@dataclass(frozen=True, slots=True)
class EngineVersion:
    """An engine at one version, in words: ``apache 4.9.7``."""

    engine: str
    version: str

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.engine} {self.version}"


def read_rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a table beside this module."""
    text = resources.files("failback.operator.engines").joinpath(name).read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(text)
    return rows


@functools.cache
def quirk_rows() -> tuple[dict[str, Any], ...]:
    """Return the whole table."""
    return tuple(read_rows("quirks.yaml"))


@functools.cache
def quirk(key: str, engine: str, version: str) -> Fact:
    """Return the fact ``key`` about ``engine`` at ``version``.

    Raises:
        KeyError: No row applies.
    """
    found: list[Fact] = [
        row["value"]
        for row in quirk_rows()
        if row["key"] == key
        and row.get("engine", engine) == engine
        and applies(row.get("versions", ""), version)
    ]
    if not found:
        raise KeyError(f"no quirk {key} for {engine} {version}")
    return found[-1]


def applies(specifiers: str, version: str) -> bool:
    """Tell whether ``version`` is within ``specifiers``, such as ``>=5.3.3,<=5.3.4``.

    Only as many parts are compared as a specifier has: 4.9.8 is ``<=4.9``. One of several ranges is
    enough: ``>=4.9.4,<5|>=5.1``.
    """
    have = numbers_of(version)
    return any(
        all(_holds(have, each) for each in filter(None, text.split(",")))
        for text in specifiers.split("|")
    )


def _holds(have: tuple[int, ...], specifier: str) -> bool:
    operator = specifier.rstrip("0123456789.")
    return _COMPARE[operator](have, numbers_of(specifier.removeprefix(operator)))


def in_words(specifiers: str) -> str:
    """Return specifiers as people say them: ``from 4.9.4 on and before 5.0.0, from 5.1.0 on``."""
    text = specifiers.replace(",", " and ").replace("|", ", ").replace("<", "before ")
    return re.sub(r">=([\d.]+)", r"from \1 on", text)


def nearest_versions(version: str, known: Sequence[str] = PUBLISHED) -> str:
    """Return the versions of Apache just below and just above ``version``, in words."""
    place = bisect(known, numbers_of(version), key=numbers_of)
    return " or ".join(known[max(0, place - 1) : place + 1])


def unreleased(version: str) -> str | None:
    """Say that Apache has not released ``version``, or ``None``: it has, or it is a newer one."""
    known = sorted((*PUBLISHED, *_ELSEWHERE), key=numbers_of)
    if version in known or numbers_of(version) > numbers_of(known[-1]):
        return None
    near = nearest_versions(version, known)
    return f"this operator knows no release {version} of Apache RocketMQ; the nearest: {near}"


def store_compatible(before: EngineVersion, after: EngineVersion) -> str | None:
    """Say why ``after`` cannot run on a store that ``before`` wrote, or ``None`` when it can.

    Families only go forward: a 5.x store may hold V2 records, timer logs and server-side reset
    state, which a 4.x broker does not read.
    """
    old = str(quirk("storeFamily", before.engine, before.version))
    new = str(quirk("storeFamily", after.engine, after.version))
    if OLDER_FIRST.index(new) >= OLDER_FIRST.index(old):
        return None
    return f"{after} does not read a store that {before} wrote"


def numbers_of(version: str) -> tuple[int, ...]:
    """Return the parts of a version, to compare it with others."""
    return tuple(int(part) for part in re.findall(r"\d+", version))
