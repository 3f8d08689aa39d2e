"""Numbers as text: how people read them, and how text of peers and users is read. Pure.

Command line, report and dashboard have one format: a count is ``2,400``, a share ``60.3 %``, a
duration ``6.6 s``, an amount ``1.2 GiB``. What was not measured is ``-``. JSON, CSV and metrics
have plain numbers instead.
"""

from __future__ import annotations

import re
from typing import Final

NOT_MEASURED: Final = "-"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_STEP: Final = 1024.0
_SIGNED: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
"""What a Java long can be, and little more."""


def count(number: float | None) -> str:
    """Return ``2,400``: whole, with commas at the thousands."""
    return NOT_MEASURED if number is None else f"{number:,.0f}"


def percent(share: float | None) -> str:
    """Return ``60.3 %`` of a share between 0 and 1.

    One decimal. More than nothing is never shown as nothing, nor less than all as all.
    """
    if share is None:
        return NOT_MEASURED
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 <= share < 1:
        return "> 99.9 %"
    return f"{100 * share:,.1f} %"


def seconds(duration: float | None) -> str:
    """Return ``6.6 s``: one decimal, none from 100 seconds on; below a tenth ``12 ms``."""
    if duration is None:
        return NOT_MEASURED
    if 0 < abs(duration) < 0.0995:
        return f"{1000 * duration:.3g} ms"
    return f"{duration:,.0f} s" if abs(duration) >= 99.95 else f"{duration:z.1f} s"


def milliseconds(duration: float | None) -> str:
    """Return a duration in milliseconds as :func:`seconds` writes it."""
    return seconds(None if duration is None else duration / 1000)


def size(amount: float | None) -> str:
    """Return ``79.1 MiB`` of a number of bytes; bytes themselves have no decimals."""
    if amount is None:
        return NOT_MEASURED
    value, unit = float(amount), _UNITS[0]
    for unit in _UNITS:
        if abs(value) < _STEP or unit == _UNITS[-1]:
            break
        value /= _STEP
    return f"{value:,.0f} B" if unit == "B" else f"{value:,.1f} {unit}"


def counted(number: int, one: str, many: str = "") -> str:
    """Return ``1 run`` or ``2 runs``."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def signed(text: str | None) -> int | None:
    """Return a whole number of at most 19 digits; ``None`` for anything else.

    ``int`` itself takes digits of other scripts and spaces, and raises beyond 4,300 digits.
    """
    return int(text) if text is not None and _SIGNED.fullmatch(text) else None


def whole(text: str | None) -> int | None:
    """The same without a sign."""
    return None if text is None or text.startswith("-") else signed(text)


def whole_or_0(text: str | None) -> int:
    """Return such a number, 0 for anything else."""
    return whole(text) or 0
