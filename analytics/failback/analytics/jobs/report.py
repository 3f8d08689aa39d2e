"""From a result to the readable outputs, on one machine and without Spark.

python -m failback.analytics.jobs.report --result URI --run ID --out DIR
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from failback.analytics.errors import ReportInputError, StoreUnusable
from failback.analytics.jobs.options import guarded, parser_of
from failback.analytics.lake.store import open_store
from failback.analytics.report.make_report import write_outputs
from failback.analytics.report.results import result_of
from failback.analytics.report.schema import parse_report
from failback.common.reasons import why


def main(argv: Sequence[str] | None = None) -> int:
    """Write report.json, summary.md and report.html; the exit code is the verdict's."""
    parser = parser_of("report", "Make the outputs of a result that jobs.reconsume wrote.")
    parser.add_argument("--result", required=True, help="what was --out there")
    parser.add_argument("--run", required=True, help="the run's id")
    parser.add_argument("--out", required=True, type=Path, help="a folder")
    return guarded(lambda: _run(parser.parse_args(argv)))


def _run(options: argparse.Namespace) -> int:
    store = open_store(options.result)
    where = result_of(options.run)
    try:
        content = store.read(f"{where}/report.json")
        with store.open(f"{where}/points.parquet") as file:
            points = pq.read_table(file)
    except FileNotFoundError as error:
        raise ReportInputError("there is no whole result", f"{store}/{where}") from error
    except StoreUnusable:
        raise
    except (OSError, pa.ArrowException) as error:
        raise ReportInputError(f"cannot be read: {why(error)}", f"{store}/{where}") from error
    document = parse_report(content, f"{store}/{where}/report.json")
    paths = write_outputs(document, points, options.out, run_dir=options.out)
    print(f"{paths.verdict}: {paths.sentence}")
    print(f"report: {paths.html or paths.summary}")
    return paths.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
