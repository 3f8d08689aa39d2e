"""The facts kept as data: ``config_keys.yaml`` and ``quirks.yaml``, read once.

Called by the rules (values of known keys), by rendering (restart hash, quirks) and by the
local runtime (warnings).
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from ruamel.yaml import YAML

_INTEGER = re.compile(r"^[+-]?\d+$")
_COMPARE: Final[dict[str, Callable[[tuple[int, ...], tuple[int, ...]], bool]]] = {
    ">=": lambda have, want: have[: len(want)] >= want,
    "<=": lambda have, want: have[: len(want)] <= want,
    "<": lambda have, want: have[: len(want)] < want,
    ">": lambda have, want: have[: len(want)] > want,
    "==": lambda have, want: have[: len(want)] == want,
}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One key of ``broker.conf``."""

    name: str
    type: str
    """``int``, ``float``, ``bool``, ``string``, ``list`` or ``enum:A,B``."""
    change: str
    """``live``, ``roll``, ``immutable``, ``switch`` or ``refused``."""
    engine: str | None

    def problem(self, value: str) -> str | None:
        """Say what is wrong with ``value``, or ``None`` when the broker will understand it."""
        if self.type == "int" and not _INTEGER.match(value):
            return f'must be an integer, got "{value}"'
        if self.type == "bool" and value not in ("true", "false"):
            return f'must be "true" or "false", got "{value}"'
        if self.type == "float" and not _is_positive_number(value):
            return f'must be a number above 0, got "{value}"'
        if self.type.startswith("enum:"):
            allowed = self.type.removeprefix("enum:").split(",")
            if value not in allowed:
                return f'must be {" or ".join(allowed)}, got "{value}"'
        return None


def _is_positive_number(value: str) -> bool:
    try:
        return 0 < float(value) < float("inf")
    except ValueError:
        return False


def _read(name: str) -> list[dict[str, Any]]:
    text = resources.files("failback.operator").joinpath(name).read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = YAML(typ="safe", pure=True).load(text)
    return rows


@functools.cache
def config_keys() -> dict[str, ConfigKey]:
    """Return the catalogue by key."""
    return {
        row["key"]: ConfigKey(row["key"], row["type"], row["class"], row.get("engine"))
        for row in _read("config_keys.yaml")
    }


def restarts(key: str) -> bool:
    """Tell whether a change of ``key`` needs a restart. Unknown keys do."""
    known = config_keys().get(key)
    return known is None or known.change != "live"


def unknown_key_hint(key: str, engine: str) -> str | None:
    """Say that ``key`` is not known to ``engine`` (with the nearest that is), or ``None``."""
    known = {
        name: row
        for name, row in config_keys().items()
        if row.engine is None or row.engine == engine
    }
    if key in known:
        return None
    near = difflib.get_close_matches(key, known, n=1)
    hint = f', did you mean "{near[0]}"?' if near else ""
    return f"{key} is not a broker.conf key known to engine {engine}{hint}"


@functools.cache
def _quirk_rows() -> list[dict[str, Any]]:
    return _read("quirks.yaml")


def quirk(key: str, engine: str, version: str) -> str | int | bool:
    """Return the fact ``key`` about ``engine`` at ``version``.

    Raises:
        KeyError: No row applies.
    """
    found: list[str | int | bool] = [
        row["value"]
        for row in _quirk_rows()
        if row["key"] == key
        and row.get("engine", engine) == engine
        and _applies(version, row.get("versions", ""))
    ]
    if not found:
        raise KeyError(f"no quirk {key} for {engine} {version}")
    return found[-1]


def _applies(version: str, specifiers: str) -> bool:
    have = _numbers(version)
    for specifier in filter(None, specifiers.split(",")):
        operator = specifier.rstrip("0123456789.")
        if not _COMPARE[operator](have, _numbers(specifier.removeprefix(operator))):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
