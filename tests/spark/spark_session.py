"""One Spark session for a test module: two threads, a small heap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def two_threads(scratch: Path) -> Iterator[SparkSession]:
    """Start ``local[2]``; stopped, with its JVM, when the module is done."""
    import os
    from unittest import mock

    from failback.analytics.analysis.engines.spark.session import start_session

    with mock.patch.dict(os.environ, {"FAILBACK_SPARK_MASTER": "local[2]"}):
        session = start_session(scratch)
    try:
        yield session
    finally:
        session.stop()
