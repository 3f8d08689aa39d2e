"""What a job's workers need, broadcast once: closures hold no more than its handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


def shared(spark: SparkSession, value: T) -> Callable[[], T]:
    """Broadcast a value, functions and what they hold included; workers call for it."""
    from pyspark import cloudpickle

    # A broadcast of its own would pickle functions by name, also those of the main program, which
    # in a worker is another one.
    content: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    handle = spark.sparkContext.broadcast(content)

    def found() -> T:
        read: T = cloudpickle.loads(handle.value)
        return read

    return found
