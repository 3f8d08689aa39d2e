"""The Spark engine: numpy per Arrow batch, and what it says of them shuffled and added up.

:func:`why_not` says what is missing, :func:`session` starts or borrows a session,
:class:`SparkEngine` does the passes.
"""

from failback.analytics.analysis.engines.spark.engine import SparkEngine
from failback.analytics.analysis.engines.spark.session import (
    INSTALL_JAVA,
    INSTALL_PYSPARK,
    check_reach,
    session,
    start_session,
    why_not,
)

__all__ = [
    "INSTALL_JAVA",
    "INSTALL_PYSPARK",
    "SparkEngine",
    "check_reach",
    "session",
    "start_session",
    "why_not",
]
