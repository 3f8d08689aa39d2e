"""What ``failback report --engine spark --results URI`` writes, for ``spark-submit``: no pages."""

from collections.abc import Sequence

from failback.analytics.errors import ReportInputError
from failback.analytics.jobs.options import guarded, reconsume_options
from failback.analytics.report.make_report import reports_of
from failback.analytics.report.results import ResultsTo, result_of
from failback.analytics.run.definitions import Wanted
from failback.analytics.run.run_source import source_in_lake


def main(argv: Sequence[str] | None = None) -> int:
    """Run it on Spark."""
    given = reconsume_options(argv)
    results = ResultsTo(given.out, given.group, keep_rows=given.keep_rows != "none")
    wanted = Wanted(key=given.key, since=given.since, until=given.until)
    named = [(each, None) for each in given.run] + [(None, each) for each in given.documents]

    def run() -> int:
        sources = [source_in_lake(given.lake, *each).counted_as(wanted) for each in named]
        groups: set[str] = set()
        for document, _ in reports_of(sources, "spark", given.master, results=results):
            print(f"{document['run']}: result is in {given.out}/{result_of(document['run'])}")
            groups.update(row["group"] for row in document["groups"])
        if given.group and given.group not in groups:
            known = ", ".join(sorted(groups)) or "no group"
            raise ReportInputError(f"--group {given.group} has no delivery; groups: {known}")
        return 0

    return guarded(run)


if __name__ == "__main__":
    raise SystemExit(main())
