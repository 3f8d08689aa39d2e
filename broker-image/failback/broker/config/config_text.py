"""Values of broker.conf: from their text, and back."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

from failback.protocol.errors import ConfigError
from failback.protocol.properties import has_control


def to_text(value: object) -> str:
    """Return a setting as broker.conf and GET_BROKER_CONFIG spell it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def means_default(declared: dataclasses.Field[Any], text: str) -> bool:
    """Tell whether a setting without a value stands for the default: numbers and choices do.

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
