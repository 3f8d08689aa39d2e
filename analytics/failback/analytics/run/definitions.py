"""What counts as the same message, and which of its deliveries count. Pure.

Figures by other definitions than the default ones cannot be compared with others, so a report names
what differs.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Final

from failback.analytics.errors import ReportInputError
from failback.common.times import AHEAD_MS, OLDEST_MS, shown

LID: Final = "lid"
MESSAGE_ID: Final = "messageId"
BUSINESS_KEY: Final = "businessKey"
KEYS: Final = (LID, MESSAGE_ID, BUSINESS_KEY)
FOREVER: Final = (1 << 63) - 1
_LONGEST_RUN_SECONDS: Final = 10 * 366 * 86_400
_BEFORE_NS: Final = 86_400 * 10**9

_DURATION: Final = re.compile(r"([0-9]{1,32})(ms|s|m|h)")
_NS_OF: Final = {"ms": 1_000_000, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


@dataclass(frozen=True, slots=True)
class Definitions:
    """The definitions of one report; times are ns after run zero."""

    key: str = LID
    """``lid``: the identity that the workload writes; ``messageId``: UNIQ_KEY, else KEYS;
    ``businessKey``: KEYS, else UNIQ_KEY. A message that has none is known by its copy."""
    window_ns: int | None = None
    """A delivery that begins later than this after the one before is no duplicate of it."""
    ignore_retry_topics: bool = False
    """Whether deliveries from retry topics are left out."""
    since_ns: int | None = None
    until_ns: int | None = None
    """Figures are of what begins in [since, until); what lies outside still explains it."""

    @property
    def counts_all_by_lid(self) -> bool:
        """Whether every delivery counts, as a delivery of the message that was sent."""
        return self.key == LID and not self.ignore_retry_topics

    @property
    def row(self) -> dict[str, Any]:
        """As ``report.json`` has it."""
        return asdict(self)


DEFAULT: Final = Definitions()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The same as a user says it: instants may be of the wall clock, so they need a run's zero."""

    key: str = LID
    window: str | None = None
    ignore_retry_topics: bool = False
    since: str | None = None
    until: str | None = None
    prefix: str = ""
    """Before the names of fields in messages: ``--`` of a command."""

    def of_run(self, zero_wall_ns: int, now_ns: int | None = None) -> Definitions:
        """For a run that began at ``zero_wall_ns``; ``now_ns``: what lies behind is refused.

        Raises:
            ReportInputError: Names what cannot be read.
        """
        if self.key not in KEYS:
            raise ReportInputError(f"key must be one of {', '.join(KEYS)}, not {self.key!r}")
        since = _instant(self.since, zero_wall_ns, now_ns, f"{self.prefix}since")
        until = _instant(self.until, zero_wall_ns, now_ns, f"{self.prefix}until")
        if since is not None and until is not None and until <= since:
            raise ReportInputError(
                f"{self.prefix}until: {self.until} is not after {self.prefix}since, {self.since}"
            )
        window = None if self.window is None else duration_ns(self.window, f"{self.prefix}window")
        return Definitions(self.key, window, self.ignore_retry_topics, since, until)


def duration_ns(text: str, field: str = "window") -> int:
    """``90s``, ``15m``, ``250ms``, ``1h`` in ns, at most :data:`FOREVER`.

    Raises:
        ReportInputError: It is none.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ReportInputError(f"{field}: {text!r} is no time such as 90s, 15m or 1h")
    return min(FOREVER, int(found[1]) * _NS_OF[found[2]])


def _instant(text: str | None, zero_wall_ns: int, now_ns: int | None, name: str) -> int | None:
    if text is None:
        return None
    try:
        return instant_ns(text, zero_wall_ns, now_ns)
    except ValueError as error:
        raise ReportInputError(f"{name}: {error}") from error


def instant_ns(text: str, zero_wall_ns: int, now_ns: int | None = None) -> int:
    """Seconds after run zero, or an ISO time (UTC unless it says otherwise), as ns after run zero.

    Args:
        text: What was typed.
        zero_wall_ns: When the run began, Unix time.
        now_ns: Unix time behind which no time can lie; ``None``: there is no such.

    Raises:
        ValueError: It is neither, or a time that cannot be one of this run.
    """
    try:
        seconds = float(text)
    except ValueError:
        found = _of_iso(text, zero_wall_ns)
        _check_near(found, text)
        _check_of_run(text, found, zero_wall_ns, now_ns)
        return found
    if math.isnan(seconds):
        raise ValueError(f"neither seconds nor an ISO time: {text!r}")
    _check_number(text, seconds, now_ns)
    return round(seconds * 10**9)


def _check_number(text: str, seconds: float, now_ns: int | None) -> None:
    """Refuse a number that is an instant since 1970, or lies before the run."""
    if seconds < 0:
        raise ValueError(f"{text} s is before the run began")
    if seconds <= _LONGEST_RUN_SECONDS:
        return
    last_ms = FOREVER if now_ns is None else now_ns // 1_000_000 + AHEAD_MS
    for unit, ms in (("seconds", seconds * 1000), ("milliseconds", seconds)):
        if OLDEST_MS <= ms <= last_ms and shown(int(ms))[:1].isdigit():
            meant = f"as {unit} since 1970 it is {shown(int(ms))}: write that"
            raise ValueError(f"{text} s after the run began is longer than a run; {meant}")
    _check_near(round(min(seconds, 1e30) * 10**9), text)
    raise ValueError(f"{text} s after the run began is longer than a run")


def _check_near(found: int, text: str) -> None:
    if abs(found) > FOREVER:
        raise ValueError(f"further away than 292 years: {text!r}")


def _check_of_run(text: str, found: int, zero_wall_ns: int, now_ns: int | None) -> None:
    """Refuse a time long before the run, or one that has not come yet."""
    began = shown(zero_wall_ns // 1_000_000)
    if found < -_BEFORE_NS:
        raise ValueError(f"{text} is more than a day before the run began, {began}")
    if now_ns is not None and zero_wall_ns + found > now_ns + AHEAD_MS * 1_000_000:
        raise ValueError(f"{text} has not come yet; the run began {began}")


def _of_iso(text: str, zero_wall_ns: int) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"neither seconds nor an ISO time: {text!r}") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000_000) * 1000 - zero_wall_ns


def words_of(row: dict[str, Any] | None) -> list[str]:
    """How a report (its ``definitions``) differs from the default ones, in words."""
    if not row:
        return []
    found = []
    if row["key"] != LID:
        found.append(f"messages are the same by {row['key']}")
    if row["window_ns"] is not None:
        found.append(f"deliveries more than {row['window_ns'] / 1e9:g} s apart are no duplicates")
    if row["ignore_retry_topics"]:
        found.append("deliveries from retry topics are left out")
    if row["since_ns"] is not None:
        found.append(f"from second {row['since_ns'] / 1e9:g} on")
    if row["until_ns"] is not None:
        found.append(f"until second {row['until_ns'] / 1e9:g}")
    return found
