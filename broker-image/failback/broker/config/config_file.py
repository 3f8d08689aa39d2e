"""A broker.conf as a file: which copy of it is read, and what it says that has no effect here."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from failback.broker.config.config_checks import is_true
from failback.broker.config.config_keys import NOT_OFFERED, OLD_SPELLINGS, SHOWN_ONLY
from failback.common.text import nearest

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
