"""The meaning of a typed time, and whether it is plausible. Pure."""

from __future__ import annotations

import datetime
import re
from typing import Final

OLDEST_MS: Final = 1_262_304_000_000
"""2010: no message of RocketMQ is older."""
AHEAD_MS: Final = 60_000
"""Clocks of two machines may differ by so much."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,30}")
_FRACTION: Final = re.compile(r"[0-9]{1,20}\.[0-9]{1,12}")
_UNITS: Final = (("seconds", 1000, 1), ("microseconds", 1, 1000), ("nanoseconds", 1, 1_000_000))
"""Name, and by what a number of it is multiplied and divided to be milliseconds."""
_AS_A_DATE: Final = {8: "%Y%m%d", 14: "%Y%m%d%H%M%S"}
_LAST_MS: Final = 253_402_300_799_999
"""The end of the year 9999."""


def read_ms(text: str) -> int:
    """Return milliseconds since 1970 of an ISO time or of such a number.

    A time without a zone is in this machine's zone.

    Raises:
        ValueError: It is neither; says what it must be.
    """
    if _NUMBER.fullmatch(text):
        return int(text)
    hint = ""
    if _FRACTION.fullmatch(text):
        hint = f"; as seconds it is {shown(int(float(text) * 1000))}"
    try:
        return int(datetime.datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        form = "must be like 2026-01-31T12:00:00, milliseconds or now"
        raise ValueError(f'{form}, got "{text}"{hint}') from None


def doubt(ms: int, now_ms: int, *, ahead_ms: int = AHEAD_MS) -> str:
    """Return why a time of messages is implausible and what may be meant; empty otherwise."""
    if _can_be(ms, now_ms, ahead_ms):
        return ""
    meant = _other_reading(ms, now_ms, ahead_ms)
    if meant:
        return f"{ms} in milliseconds is {shown(ms)}; {meant}"
    if ms < 0:
        return f"{ms} is before 1970"
    if ms < OLDEST_MS:
        return f"{shown(ms)} is before the first message that there can be"
    return f"{shown(ms)} has not come yet"


def _can_be(ms: int, now_ms: int, ahead_ms: int) -> bool:
    return OLDEST_MS <= ms <= now_ms + ahead_ms


def _other_reading(ms: int, now_ms: int, ahead_ms: int) -> str:
    """Return in which unit or form the number would be a plausible time."""
    for unit, times, parts in _UNITS:
        other = ms * times // parts
        if _can_be(other, now_ms, ahead_ms):
            return f"{unit} would be {shown(other)}, in milliseconds {other}"
    form = _AS_A_DATE.get(len(str(ms)))
    if form is not None:
        try:
            day = datetime.datetime.strptime(str(ms), form)
        except ValueError:
            return ""
        if _can_be(int(day.timestamp() * 1000), now_ms, ahead_ms):
            return f"a date would be {day.isoformat()}"
    return ""


def of_day(unix_seconds: float) -> str:
    """Return a time of day in this machine's zone, such as ``14:10:28``."""
    return datetime.datetime.fromtimestamp(unix_seconds).astimezone().strftime("%H:%M:%S")


def zone(unix_seconds: float) -> str:
    """Return this machine's zone at a time: ``UTC``, or such as ``CET (UTC+01:00)``."""
    at = datetime.datetime.fromtimestamp(unix_seconds).astimezone()
    return "UTC" if at.tzname() == "UTC" else f"{at.tzname()} (UTC{at.isoformat()[-6:]})"


def utc(unix_seconds: float) -> str:
    """Return a time in UTC to the millisecond, such as ``2026-01-31T12:00:00.250Z``."""
    at = datetime.datetime.fromtimestamp(unix_seconds, datetime.UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def shown(ms: int) -> str:
    """Return a time as people read it, in UTC."""
    if not 0 <= ms <= _LAST_MS:
        return "before 1970" if ms < 0 else "after the year 9999"
    moment = datetime.datetime.fromtimestamp(ms // 1000, datetime.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
