"""What ``failback report --engine spark --results URI`` writes, for ``spark-submit``: no pages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from failback.analytics.errors import ReportInputError
from failback.analytics.report.make_report import reports_of
from failback.analytics.report.results import ResultsTo, result_of
from failback.analytics.run.definitions import KEYS, LID, Wanted
from failback.analytics.run.run_source import source_in_lake
from failback.protocol.names import NameRefused, check_group


def main(argv: Sequence[str] | None = None) -> int:
    """Run it on Spark; bad input becomes one line and exit code 2."""
    options = _options(argv)
    try:
        _reconsume(options)
    except ReportInputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m failback.analytics.jobs.reconsume",
        description="Count what runs delivered twice, and say why.",
    )
    parser.add_argument("--master", help="Spark's master; under spark-submit its own by default")
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


def _reconsume(options: argparse.Namespace) -> None:
    results = ResultsTo(options.out, options.group, keep_rows=options.keep_rows != "none")
    wanted = Wanted(key=options.key, since=options.since, until=options.until)
    named = [(each, None) for each in options.run] + [(None, each) for each in options.documents]
    sources = [source_in_lake(options.lake, *each).counted_as(wanted) for each in named]
    groups: set[str] = set()
    for document, _ in reports_of(sources, "spark", options.master, results=results):
        print(f"{document['run']}: result is in {options.out}/{result_of(document['run'])}")
        groups.update(row["group"] for row in document["groups"])
    if options.group and options.group not in groups:
        known = ", ".join(sorted(groups)) or "no group"
        raise ReportInputError(f"--group {options.group} has no delivery; groups: {known}")


if __name__ == "__main__":
    raise SystemExit(main())
