"""Facts about engine versions, kept as data in ``quirks.yaml``. Pure.

No code compares versions: it asks for a fact, and the table has the versions of each fact.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
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

    Only as many parts are compared as a specifier has: 4.9.8 is ``<=4.9``.
    """
    have = _numbers(version)
    for specifier in filter(None, specifiers.split(",")):
        operator = specifier.rstrip("0123456789.")
        if not _COMPARE[operator](have, _numbers(specifier.removeprefix(operator))):
            return False
    return True


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


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
