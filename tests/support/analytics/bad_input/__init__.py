"""Damaged and doubtful runs, and what a report says of each, whichever engine makes it.

A case writes a run folder and returns either ``Refused`` or what has to hold for the report.
"""

from typing import Final

from tests.support.analytics.bad_input import conditions, files, rows, sizes
from tests.support.analytics.bad_input.outcome import Case, Document, Refused, clean, codes

__all__ = ["CASES", "Case", "Document", "Refused", "clean", "codes"]

CASES: Final[dict[str, Case]] = {
    case.__name__: case for case in (*files.CASES, *rows.CASES, *conditions.CASES, *sizes.CASES)
}
