"""Rules for every test.

The folder under tests/ is a test's tier and its marker. Files marked `long` start first, so that
no worker is alone with one when the others have ended. A required tool that is missing fails the
test instead of skipping it.

`few(n)` on a parametrized test leaves its first n cases in `make test`; the others are `full`, and
of `few(n, most)` those beyond the first `most` are `soak`.

`make test-foreign` ends with a line for each kind of foreign input. A file is a kind, its docstring
says which. A test is one input, unless it says `record_property("inputs", count)`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings
from pluggy import Result

from tests.support.common.counts import QUICK, QUICK_EXAMPLES, SOAK

TESTS = Path(__file__).parent
os.environ["FAILBACK_CONFIG"] = os.devnull  # a developer's own clusters are none of the tests'
REQUIRE_ALL = os.environ.get("FAILBACK_REQUIRE") == "all"

UNIT_CASES = pytest.StashKey[int]()
"""How many cases of tests/unit were collected, before markers and names choose among them."""

settings.register_profile(SOAK, deadline=None)
settings.register_profile("full", deadline=None, max_examples=25)
settings.register_profile(QUICK, deadline=None, max_examples=QUICK_EXAMPLES)
settings.load_profile("full")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[UNIT_CASES] = sum(item.path.is_relative_to(TESTS / "unit") for item in items)
    cases: Counter[str] = Counter()
    for item in items:
        item.add_marker(item.path.relative_to(TESTS).parts[0])
        if few := item.get_closest_marker("few"):
            test = item.nodeid.partition("[")[0]
            cases[test] += 1
            first, *most = few.args
            if cases[test] > first:
                item.add_marker("soak" if most and cases[test] > most[0] else "full")
        if isinstance(item, pytest.Function) and item.get_closest_marker("foreign"):
            title = (item.module.__doc__ or item.path.stem).strip().partition("\n")[0]
            item.user_properties.append(("kind", title))
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Result[pytest.TestReport], None]:
    outcome = yield
    report = outcome.get_result()
    if REQUIRE_ALL and report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: FAILBACK_REQUIRE=all forbids this skip: {reason}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not terminalreporter.config.option.markexpr.startswith("foreign"):
        return
    tried: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            said = dict(report.user_properties)
            if report.when == "call" and "kind" in said:
                tried[said["kind"]] += said.get("inputs", 1)
    terminalreporter.section("foreign input")
    for kind, inputs in sorted(tried.items()):
        terminalreporter.write_line(f"{inputs:7}  {kind}")
    terminalreporter.write_line(f"{len(tried)} kinds, {tried.total()} inputs")
