"""A broker.conf as a file: its values, the copy that is read, and keys that have no effect."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from failback.broker.config.config_checks import is_true
from failback.broker.config.config_keys import NOT_OFFERED, OLD_SPELLINGS, SHOWN_ONLY
from failback.common.text import nearest
from failback.protocol.errors import ConfigError
from failback.protocol.properties import has_control

logger = logging.getLogger(__name__)

_NEAR = 0.85


def without_effect(
    given: Mapping[str, str], settings: Mapping[str, str], defaults: Mapping[str, str]
) -> dict[str, str]:
    """Return the keys that have no effect here, each with a word about it, or none.

    Args:
        given: The file's keys and values.
        settings: What is in force, by key.
        defaults: All keys that there are, and their defaults.
    """
    return dict(_without_effect(given, settings, defaults))


def _without_effect(
    given: Mapping[str, str], settings: Mapping[str, str], defaults: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    for key, value in given.items():
        if key in NOT_OFFERED:
            if is_true(value):
                yield key, NOT_OFFERED[key]
        elif key in OLD_SPELLINGS:
            yield key, f"a spelling of 4.4: {OLD_SPELLINGS[key]} is as if it was not set"
        elif key not in defaults:
            yield key, f'did you mean "{near}"?' if (near := _meant(key, defaults)) else ""
        elif not value.strip() and settings[key] == defaults[key] != "":
            yield key, "it is empty"
        elif key in SHOWN_ONLY and value.strip() != defaults[key]:
            yield key, ""


def _meant(key: str, known: Iterable[str]) -> str:
    """Return the key that ``key`` was meant to be; empty where none is near."""
    by_case = {each.casefold(): each for each in known}
    return by_case.get(key.strip().casefold()) or nearest(key, by_case.values(), cutoff=_NEAR)


def in_one_line(keys: Mapping[str, str], lines: Mapping[str, int]) -> str:
    """Return keys with their lines and words."""
    return ", ".join(
        f"{key} ({'; '.join(filter(None, (f'line {lines[key]}', word)))})"
        for key, word in keys.items()
    )


def present_copy(file: Path) -> Path:
    """Return ``file``, or what lies beside it after a kill in the middle of its replacement.

    4.9.8 deletes ``file`` before it renames ``file.tmp``, and before both it copies what was in
    force to ``file.bak``. A machine that stops may leave a name without a byte.
    """
    if not _has_text(file):
        for ending in (".bak", ".tmp"):
            beside = file.with_name(file.name + ending)
            if _has_text(beside):
                problem = "is empty" if file.exists() else "is not there"
                logger.warning("%s %s: read from %s beside it", file, problem, beside.name)
                return beside
    return file


def _has_text(file: Path) -> bool:
    """Whether the file is there and says anything; the zeros of an unwritten block do not."""
    try:
        return bool(file.read_bytes().strip(b"\0 \t\r\n"))
    except FileNotFoundError:
        return False
    except OSError:  # whoever reads it says why it can't be read
        return True


def to_text(value: object) -> str:
    """Return a setting as broker.conf and GET_BROKER_CONFIG spell it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def means_default(declared: dataclasses.Field[Any], text: str) -> bool:
    """Tell whether a setting without a value means the default: numbers and choices do.

    4.9.8 fails to read such a one and goes on with what it had.
    """
    return not text.strip() and (
        declared.type in ("int", "float") or "choices" in declared.metadata
    )


def parse(declared: dataclasses.Field[Any], key: str, text: str, file: Path | None) -> Any:
    """Return the value that ``text`` gives the field ``declared``, called ``key`` in the file.

    Raises:
        ConfigError: It does not fit.
    """
    kind = declared.type
    if has_control(text):
        problem = f"holds a control character, is {text!r}: a \\ itself is written \\\\"
        raise ConfigError(key, problem, file=file)
    if kind != "str" and "#" in text:
        problem = f"is {text!r}: a comment needs a line of its own"
        raise ConfigError(key, problem, file=file)
    if kind == "bool":
        if text.lower() not in ("true", "false"):
            raise ConfigError(key, f"must be true or false, is {text!r}", file=file)
        return text.lower() == "true"
    if kind == "int":
        if not re.fullmatch(r"[+-]?\d{1,19}", text, re.ASCII):
            raise ConfigError(key, f"must be a whole number, is {text!r}", file=file)
        number = int(text)
        low, high = declared.metadata.get("range", (-(2**63), 2**63 - 1))
        if not low <= number <= high:
            raise ConfigError(key, f"must be between {low} and {high}, is {number}", file=file)
        return number
    if kind == "float":
        return _parse_float(key, text, file)
    choices = declared.metadata.get("choices")
    if choices and text not in choices:
        raise ConfigError(key, f"must be one of {', '.join(choices)}, is {text!r}", file=file)
    return text


def _parse_float(key: str, text: str, file: Path | None) -> float:
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(key, f"must be a number, is {text!r}", file=file) from None
    low, high = (0.001, 100.0) if key == "failbackTimeScale" else (0.0, 86_400.0)
    if not low <= number <= high:  # also false for nan
        raise ConfigError(key, f"must be between {low:g} and {high:g}, is {text}", file=file)
    return number
