"""The option ``--engine`` of all commands that make reports; the choice is in ``make_report``."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Engine(StrEnum):
    """What counts the rows of a report."""

    auto = "auto"
    local = "local"
    spark = "spark"


ENGINE_HELP: Final = "What counts: local, in this process; spark; auto, by the number of rows."
