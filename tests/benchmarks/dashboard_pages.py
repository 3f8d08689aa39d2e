"""How long pages of the dashboard take from warm, by the browser's own timings, and their weight.

The report is that of 2,000 queues and five million deliveries: as many rows as a report may have,
and the points of an hour. Used by :mod:`tests.benchmarks.bench_sre`.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from playwright.sync_api import Page, sync_playwright

from tests.support.dashboard.browser import ARGUMENTS, chromium
from tests.support.dashboard.dashboard_lab import RUN, running_dashboard

LOADS = 7
SECONDS = 3600
_TIMINGS = """
() => {
  const [page] = performance.getEntriesByType("navigation");
  const parts = performance.getEntriesByType("resource");
  const plotly = parts.filter(each => each.name.includes("plotly"));
  const weigh = list => list.reduce((sum, each) => sum + each.encodedBodySize, 0);
  return {ms: page.loadEventEnd, answer_ms: page.responseEnd, bytes: page.encodedBodySize
          + weigh(parts) - weigh(plotly), plotly_bytes: weigh(plotly)};
}
"""


def enlarge(folder: Path, share: int) -> None:
    """Make the sample run one of five million deliveries."""
    path = folder / "report" / "report.json"
    report = json.loads(path.read_text())
    report["totals"] |= {"delivered": 5_000_000 // share, "distinct": 4_750_000 // share}
    (queue,) = report["queues"]
    report["queues"] = [
        {**queue, "qid": number, "dup": 125, "windows": queue["windows"] * 4}
        for number in range(2_000 // share)
    ]
    (rollback,) = report["rollbacks"]
    report["rollbacks"] = [{**rollback, "qid": n % 2_000} for n in range(10_000 // share)]
    path.write_text(json.dumps(report))
    points = folder / "report" / "figures-data.parquet"
    known = pq.read_table(points)
    many = known.take(pa.array([n % known.num_rows for n in range(known.num_rows * SECONDS)]))
    at = known.schema.get_field_index("t_ns")
    times = pa.array([n // known.num_rows * 1_000_000_000 for n in range(many.num_rows)])
    pq.write_table(many.set_column(at, known.schema.field(at), times), points)


def measure(folder: Path, share: int) -> dict[str, Any]:
    """Median and worst of a few loads of each page, in ms; sizes in bytes."""
    with running_dashboard(folder) as lab, sync_playwright() as playwright:
        enlarge(lab.runs / "one" / "handover", share)
        browser = playwright.chromium.launch(executable_path=chromium(), args=[*ARGUMENTS])
        page = browser.new_page()
        report = f"{lab.url}/runs/{RUN}"
        # The first reader of a report has its figures drawn by the server, all others have them.
        drawn = {name: _draw(page, report) for name in ("first_reader", "warm")}
        found = {"first": _load(page, f"{lab.url}/"), "report": _load(page, report)}
        found["report"]["figures_ms"] = drawn
        browser.close()
    return found


def _draw(page: Page, url: str) -> int:
    """Milliseconds from the navigation until somebody who scrolls through has seen each figure."""
    page.goto(url, wait_until="load")
    figures = page.locator(".figure[data-src]")
    for index in range(figures.count()):
        figures.nth(index).scroll_into_view_if_needed()
        figures.nth(index).locator("svg.main-svg").first.wait_for(state="visible")
    elapsed: float = page.evaluate("performance.now()")
    return round(elapsed)


def _load(page: Page, url: str) -> dict[str, Any]:
    page.goto(url, wait_until="load")
    loads = []
    for _ in range(LOADS):
        page.goto(url, wait_until="load")
        page.wait_for_function("performance.getEntriesByType('navigation')[0].loadEventEnd > 0")
        loads.append(page.evaluate(_TIMINGS))
    milliseconds = [each["ms"] for each in loads]
    return {
        "ms_median": round(statistics.median(milliseconds)),
        "ms_max": round(max(milliseconds)),
        "answer_ms_median": round(statistics.median(each["answer_ms"] for each in loads)),
        "bytes": loads[-1]["bytes"],
        "plotly_bytes": loads[-1]["plotly_bytes"],
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """One line per page, and one for the figures of the report."""
    drawn = found["report"]["figures_ms"]
    shown = [
        f"dashboard, {name} page from warm: {each['ms_median']} ms, at most {each['ms_max']} ms"
        f" (answer after {each['answer_ms_median']} ms); {each['bytes'] / 1e6:.2f} MB"
        f" besides plotly's {each['plotly_bytes'] / 1e6:.2f} MB, once"
        for name, each in found.items()
    ]
    return [
        *shown,
        f"dashboard, report page with all figures drawn, scrolling through it: {drawn['warm']} ms"
        f" ({drawn['first_reader']} ms for its first reader)",
    ]
