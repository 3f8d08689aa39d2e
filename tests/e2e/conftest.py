"""One quick demo serves all tests of this folder that look at a real run."""

from __future__ import annotations

import pytest

from failback.analytics.engines.spark import why_not
from tests.support.demo_run import Demo, run_demo


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    """``failback demo --quick``, ended; its report engine is the default one, Spark."""
    if missing := why_not():
        pytest.skip(missing)
    return run_demo(tmp_path_factory.mktemp("demo") / "runs", "--quick")
