"""What the jobs share: the options that say where Spark is, and the exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from failback.analytics.errors import ReportInputError
from failback.analytics.run.definitions import KEYS, LID
from failback.protocol.names import NameRefused, check_group


def parser_of(job: str, description: str) -> argparse.ArgumentParser:
    """A parser with the options of every job."""
    parser = argparse.ArgumentParser(
        prog=f"python -m failback.analytics.jobs.{job}", description=description
    )
    parser.add_argument("--master", help="Spark's master; under spark-submit its own by default")
    return parser


def reconsume_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options of ``jobs.reconsume``."""
    parser = parser_of("reconsume", "Count what runs delivered twice, and say why.")
    parser.add_argument("--lake", required=True, help="a folder or s3://bucket/prefix")
    parser.add_argument("--run", action="append", default=[], help="a run's id; repeatable")
    parser.add_argument(
        "--documents", type=Path, action="append", default=[], help="a run folder with run.json"
    )
    parser.add_argument("--out", required=True, help="a folder or s3://bucket/prefix")
    parser.add_argument(
        "--group", type=_group, help="only the rows of this group in the tables of results"
    )
    parser.add_argument(
        "--keep-rows",
        choices=("candidates", "none"),
        default="candidates",
        help="whether the folder class has the repeated deliveries one by one",
    )
    parser.add_argument("--key", choices=KEYS, default=LID, help="what messages are the same by")
    parser.add_argument("--since", metavar="T", help="second after run zero, or an ISO time")
    parser.add_argument("--until", metavar="T", help="the same; figures are of what begins between")
    found = parser.parse_args(argv)
    if not found.run and not found.documents:
        parser.error("name a run: --run ID, or --documents RUN")
    return found


def _group(name: str) -> str:
    try:
        check_group(name)
    except NameRefused as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def guarded(call: Callable[[], int]) -> int:
    """Run a job; bad input becomes one line and exit code 2."""
    try:
        return call()
    except ReportInputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
