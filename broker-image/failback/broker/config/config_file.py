"""What a broker.conf says that has no effect here, in one line for whoever wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from failback.broker.config.config_checks import is_true
from failback.broker.config.config_keys import NOT_OFFERED, SHOWN_ONLY
from failback.protocol.words.spelling import nearest

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
        elif key not in defaults:
            near = nearest(key, defaults, cutoff=_NEAR)
            yield key, f'did you mean "{near}"?' if near else ""
        elif not value.strip() and settings[key] == defaults[key] != "":
            yield key, "it is empty"
        elif key in SHOWN_ONLY and value.strip() != defaults[key]:
            yield key, ""


def in_one_line(keys: Mapping[str, str], lines: Mapping[str, int]) -> str:
    """Return keys with their lines and words."""
    return ", ".join(
        f"{key} ({'; '.join(filter(None, (f'line {lines[key]}', word)))})"
        for key, word in keys.items()
    )
