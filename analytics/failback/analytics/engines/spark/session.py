"""Starts a Spark session with the settings that the engine relies on, or borrows one."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import failback
from failback.analytics.engines.spark.object_store import settings_here
from failback.analytics.lake_store import LakeStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALL_PYSPARK: Final = "--engine spark needs pyspark: pip install 'failback[spark]'"
INSTALL_JAVA: Final = "--engine spark needs Java 17: apt-get install openjdk-17-jre-headless"


def why_not() -> str | None:
    """What to install before Spark can start here; ``None`` when it can."""
    if importlib.util.find_spec("pyspark") is None:
        return INSTALL_PYSPARK
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        return INSTALL_JAVA
    return None


def master_of(master: str | None = None) -> str:
    """The master that is named, else that of the environment, else this machine."""
    return master or os.environ.get("FAILBACK_SPARK_MASTER") or "local[*]"


def is_cluster(master: str | None = None) -> bool:
    """Whether Spark would work in other processes than this one's JVM."""
    return not master_of(master).startswith("local")


@contextlib.contextmanager
def session(master: str | None = None, stores: Sequence[LakeStore] = ()) -> Iterator[SparkSession]:
    """The active session if there is one, else a new one that is stopped at the end.

    Args:
        master: Spark's master; ``FAILBACK_SPARK_MASTER`` by default, else ``local[*]``.
        stores: The lakes that the session has to reach.

    ``FAILBACK_SPARK_MEMORY`` is the driver's heap (default 2g).
    """
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    with tempfile.TemporaryDirectory(prefix="failback-spark-") as scratch:
        started = start_session(scratch, master, stores)
        try:
            yield started
        finally:
            started.stop()


def start_session(
    scratch: str | Path, master: str | None = None, stores: Sequence[LakeStore] = ()
) -> SparkSession:
    """Start a session with the settings that the engine relies on.

    Under ``spark-submit`` its own settings for master, driver and folders stand.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    cores = os.cpu_count() or 2
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(Path(scratch, "warehouse")),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1048576",
        "spark.sql.files.maxPartitionBytes": "128m",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.filterPushdown": "true",
        "spark.log.level": "ERROR",
        **settings_here(stores),
    }
    builder = SparkSession.builder
    if master is not None or "PYSPARK_GATEWAY_PORT" not in os.environ:
        settings |= _own_driver(master_of(master), Path(scratch))
        builder = builder.master(master_of(master)).appName("failback")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _stderr_of_children_to(Path(scratch, "spark.log")):
        started: SparkSession = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started


def _own_driver(master: str, scratch: Path) -> dict[str, str]:
    """Settings of a driver in this process: where executors find it, and what it may use."""
    found = {
        "spark.driver.memory": os.environ.get("FAILBACK_SPARK_MEMORY", "2g"),
        "spark.local.dir": str(scratch),
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(
            str(Path(path).parent) for path in failback.__path__
        ),
    }
    if not is_cluster(master) or "//127.0.0.1:" in master:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        return found | {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        }
    # Executors elsewhere call the driver back: by the pod's address, else by the machine's name.
    address = os.environ.get("POD_IP")
    found["spark.driver.bindAddress"] = "0.0.0.0"
    return found | ({"spark.driver.host": address} if address else {})


@contextlib.contextmanager
def _stderr_of_children_to(log: Path) -> Iterator[None]:
    """Let the JVM that starts inside write its chatter to ``log``; show it if the start fails.

    The launcher and log4j speak before any setting reaches them. The JVM keeps the descriptor it
    was started with, this process gets its own back.
    """
    sys.stderr.flush()
    ours = os.dup(2)
    try:
        with log.open("wb") as sink:
            os.dup2(sink.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(ours, 2)
    except BaseException:
        sys.stderr.write(log.read_text(errors="replace")[-4000:])
        raise
    finally:
        os.close(ours)
