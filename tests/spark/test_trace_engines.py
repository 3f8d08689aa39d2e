"""A run made from a trace: both engines write the same report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from failback.analytics.analysis.engines.local import local_engine
from failback.analytics.analysis.engines.spark.runner import spark_engine
from failback.analytics.analysis.engines.spark.session import why_not
from failback.analytics.report.document import build_report
from tests.spark.spark_session import two_threads
from tests.support.analytics.run_analysis import MakeEngine, analysed
from tests.support.analytics.trace_builder import TraceBuilder, made_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# pyspark's own sockets to its JVM are closed by its finalisers, after the test that used them.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
WARM = {"engine", "created", "timings"}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    problem = why_not()
    if problem:
        pytest.skip(problem)
    yield from two_threads(tmp_path_factory.mktemp("spark"))


def test_both_engines_say_the_same_of_a_trace(spark: SparkSession, tmp_path: Path) -> None:
    topic = handover(TraceBuilder(tmp_path / "traced"))
    topic.write()
    local = document(topic.run_dir, local_engine)
    assert document(topic.run_dir, lambda lake: spark_engine(lake, spark)) == local
    totals = local["totals"]
    assert totals["dup_after_success"] > 0
    assert totals["retry"] > 0
    assert sum(group["unattributed"] for group in local["groups"]) == totals["dup"]


def document(folder: Path, engine: MakeEngine) -> dict[str, Any]:
    found, _ = build_report(analysed(folder, engine), "any")
    return json.loads(json.dumps({k: v for k, v in found.items() if k not in WARM}))  # type: ignore[no-any-return]


def handover(topic: TraceBuilder) -> TraceBuilder:
    """Two groups; the second member of each begins again somewhere before the first one's end."""
    r = Random(7)
    for group in ("billing", "audit"):
        messages = [made_id(9, number) for number in range(60)]
        for number, message in enumerate(messages):
            if group == "billing":
                topic.copy(message, qid=number % 2, t=number)
            failed = number % 9 == 0
            topic.handled(message, 10 * number, 10 * number + 7, group=group, success=not failed)
            if failed:
                topic.copy(message, topic=f"%RETRY%{group}", rt=1, t=900 + number)
                topic.handled(message, 1000 + number, 1010 + number, group=group, rt=1)
        for number in range(r.randrange(20, 40), 60):
            begin = 3000 + 10 * number
            end = begin + 3 if r.random() < 0.9 else None
            topic.handled(messages[number], begin, end, process=2, group=group)
    return topic
