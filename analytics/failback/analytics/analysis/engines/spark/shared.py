"""What a job's workers need, broadcast once: closures hold no more than its handle."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
_STORES: Final = "AWS_"


def shared(spark: SparkSession, value: T) -> Callable[[], T]:
    """Broadcast a value, functions and what they hold included; workers call for it.

    What lets this process into object stores lets them in as well.
    """
    from pyspark import cloudpickle

    # A broadcast of its own would pickle functions by name, also those of the main program, which
    # in a worker is another one.
    ours = {name: text for name, text in os.environ.items() if name.startswith(_STORES)}
    content: bytes = cloudpickle.dumps((ours, value))  # type: ignore[no-untyped-call]
    handle = spark.sparkContext.broadcast(content)

    def found() -> T:
        read: tuple[dict[str, str], T] = cloudpickle.loads(handle.value)
        os.environ.update(read[0])
        return read[1]

    return found
