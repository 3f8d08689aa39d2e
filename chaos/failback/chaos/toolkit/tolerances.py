"""Tolerances of the hypothesis, as functions: a jsonpath one needs a further package."""

from __future__ import annotations

from typing import Any

__all__ = ["holds"]


def holds(key: str, value: Any = None) -> bool:
    """Is ``key`` of a probe's answer true? Anything else, absence included, does not hold."""
    return isinstance(value, dict) and value.get(key) is True
