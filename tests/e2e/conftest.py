"""One quick demo and one browser serve all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from playwright.sync_api import Browser

from failback.analytics.analysis.engines.spark.session import why_not
from tests.e2e.demo_run import Demo, run_demo
from tests.e2e.exposure_watch import Look, watched_runs
from tests.support.dashboard.browser import running_browser


@pytest.fixture(scope="session")
def watched_demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Demo, Sequence[Look]]:
    """The demo below, and what a dashboard showed of it meanwhile."""
    if missing := why_not():
        pytest.skip(missing)
    with watched_runs(tmp_path_factory.mktemp("demo")) as (runs, looks):
        return run_demo(runs, "--quick", "--spark"), looks


@pytest.fixture(scope="session")
def demo(watched_demo: tuple[Demo, Sequence[Look]]) -> Demo:
    """``failback demo --quick --spark``, ended: counted here, and once more by Spark."""
    return watched_demo[0]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The browser of all tests; its event loop is this thread's, so asyncio needs another one."""
    with running_browser() as browser:
        yield browser
