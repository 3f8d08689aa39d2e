"""What the jobs share: the options that say where Spark is, and the exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from failback.analytics.errors import ReportInputError


def parser_of(job: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options of every job."""
    parser = argparse.ArgumentParser(
        prog=f"python -m failback.analytics.jobs.{job}", description=description
    )
    parser.add_argument("--master", help="Spark's master; under spark-submit its own by default")
    return parser


def guarded(call: Callable[[], int]) -> int:
    """Run a job; bad input becomes one line and exit code 2."""
    try:
        return call()
    except ReportInputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
