"""Starts a Spark session with the settings that the engine relies on, or borrows one.

To read an object store Spark needs Hadoop's S3A, which pyspark does not bring along. Its jars come
from the folder that ``FAILBACK_SPARK_JARS`` names, else Spark fetches them from Maven Central when
it starts. Amazon's modules are named one by one: the bundle that S3A asks for has 600 MB of clients
for other services.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version as package_version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import failback
from failback.analytics.analysis.engines.spark.pods import (
    PREFIX,
    check_lakes,
    pod_settings,
    submitted,
)
from failback.analytics.errors import EngineUnavailable
from failback.analytics.lake.store import LakeStore
from failback.common import java as java_here
from failback.common.text import install

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALL_PYSPARK: Final = f"--engine spark needs pyspark: {install('spark')}"
INSTALL_JAVA: Final = "--engine spark needs Java 17: apt-get install openjdk-17-jre-headless"

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""What ``spark-submit`` gives the program that it starts."""


def why_not() -> str | None:
    """What Spark lacks before it can start here, in one line; ``None`` when it can."""
    if importlib.util.find_spec("pyspark") is None:
        return INSTALL_PYSPARK
    java = java_here.find_java()
    if java is None:
        return INSTALL_JAVA
    version = java_here.version_of(java)
    if version is None or version[1] < 17:
        return f"{INSTALL_JAVA}; {java} is {version[0] if version else 'an unknown version'}"
    return _other_spark() or _other_python()


def _other_spark() -> str | None:
    """What is wrong with the Spark of ``SPARK_HOME``, whose programs are started if it is set."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        return None
    needed = package_version("pyspark")
    cores = sorted(Path(home, "jars").glob("spark-core_*.jar"))
    found = cores[-1].stem.rpartition("_")[2].partition("-")[2] if cores else "no Spark"
    if found.split(".")[:2] == needed.split(".")[:2]:
        return None
    return f"--engine spark needs Spark {needed}: SPARK_HOME={home} has {found}; unset it"


def _other_python() -> str | None:
    """What is wrong with ``PYSPARK_PYTHON``, which works beside this Python on this machine."""
    python = os.environ.get("PYSPARK_PYTHON")
    if not python or is_cluster():
        return None
    needed = "{}.{}".format(*sys.version_info)
    say = "import sys; print('{}.{}'.format(*sys.version_info))"
    try:
        done = subprocess.run([python, "-c", say], capture_output=True, text=True, timeout=20)
        found = done.stdout.strip() or "no Python"
    except (OSError, subprocess.TimeoutExpired):
        found = "no Python"
    if found == needed:
        return None
    return f"--engine spark needs Python {needed}: PYSPARK_PYTHON={python} is {found}; unset it"


def master_of(master: str | None = None) -> str:
    """The master that is named, else that of the environment, else this machine."""
    return master or os.environ.get("FAILBACK_SPARK_MASTER") or "local[*]"


def is_cluster(master: str | None = None) -> bool:
    """Whether Spark would work in other processes than this one's JVM."""
    return not master_of(master).startswith("local")


def is_given() -> bool:
    """Whether ``spark-submit`` started this process; an active session alone is no wish."""
    return _SUBMITTED in os.environ


def check_reach(master: str | None, stores: Sequence[LakeStore]) -> None:
    """Make sure that the workers of a master find what is in folders.

    Raises:
        ReportInputError: They are pods, and nothing is mounted where a lake is.
    """
    if master_of(master).startswith(PREFIX):
        ours = pod_settings(os.environ, package_version("failback"))
        folders = [store.folder for store in stores if store.folder is not None]
        check_lakes(folders, ours | submitted(os.environ))


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

    builder = SparkSession.builder
    settings = _engine_settings(Path(scratch), stores)
    if master is not None or _SUBMITTED not in os.environ:
        named = master_of(master)
        # Workers in pods have the Python of their image, others that of this machine.
        python = "python3" if named.startswith(PREFIX) else sys.executable
        os.environ.setdefault("PYSPARK_PYTHON", python)
        if _is_here(named):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings = settings_of(named, scratch, stores)
        builder = builder.master(named).appName("failback")
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _stderr_of_children_to(Path(scratch, "spark.log")):
        started: SparkSession = builder.getOrCreate()
    started.sparkContext.setLogLevel("ERROR")
    return started


def settings_of(
    master: str, scratch: str | Path, stores: Sequence[LakeStore] = ()
) -> dict[str, str]:
    """All settings of a session whose driver is this process.

    What ``PYSPARK_SUBMIT_ARGS`` sets is left out: a setting of the session would take its place.

    Raises:
        EngineUnavailable: A variable that it depends on cannot be read.
    """
    found = _engine_settings(Path(scratch), stores) | _own_driver(master, Path(scratch))
    given = submitted(os.environ)
    return {name: value for name, value in found.items() if name not in given}


def _engine_settings(scratch: Path, stores: Sequence[LakeStore]) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1048576",
        "spark.sql.files.maxPartitionBytes": "128m",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "32m",
        "spark.sql.shuffle.partitions": str(2 * (os.cpu_count() or 2)),
        # What is kept between two statements may go to disk; what sorts and joins may not.
        "spark.memory.storageFraction": "0.1",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.filterPushdown": "true",
        "spark.log.level": "ERROR",
        **settings_for(stores, os.environ),
    }


def _is_here(master: str) -> bool:
    """Whether all workers are on this machine; pods are not, at any address of their API."""
    return not is_cluster(master) or master.startswith("spark://127.0.0.1:")


def _own_driver(master: str, scratch: Path) -> dict[str, str]:
    """Settings of a driver in this process: where executors find it, and what it may use."""
    found = {
        # The JVM's own temporary folder is /tmp, which a container may not have.
        "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC -Djava.io.tmpdir={scratch}",
        "spark.driver.memory": os.environ.get("FAILBACK_SPARK_MEMORY", "2g"),
        "spark.local.dir": str(scratch),
    }
    if master.startswith(PREFIX):  # the image has its own code
        found |= pod_settings(os.environ, package_version("failback"))
    else:
        found["spark.executorEnv.PYTHONPATH"] = os.pathsep.join(
            str(Path(path).parent) for path in failback.__path__
        )
    if _is_here(master):
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


HADOOP_VERSION: Final = "3.5.0"
"""Of the Hadoop client in pyspark 4.3; S3A has to be of the same version."""
SDK_VERSION: Final = "2.35.4"
PACKAGES: Final = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
    f"software.amazon.awssdk:s3:{SDK_VERSION}",
    f"software.amazon.awssdk:s3-transfer-manager:{SDK_VERSION}",
    f"software.amazon.awssdk:sts:{SDK_VERSION}",
    f"software.amazon.awssdk:apache-client:{SDK_VERSION}",
    f"software.amazon.awssdk:netty-nio-client:{SDK_VERSION}",
)
EXCLUDES: Final = ("software.amazon.awssdk:bundle",)
JARS: Final = "FAILBACK_SPARK_JARS"


def settings_for(stores: Sequence[LakeStore], environment: Mapping[str, str]) -> dict[str, str]:
    """Spark settings to read these lakes; none for folders.

    Raises:
        EngineUnavailable: ``FAILBACK_SPARK_JARS`` names a folder without jars.
    """
    found: dict[str, str] = {}
    for store in stores:
        found |= store.spark_settings()
    if all(store.folder is not None for store in stores):
        return {}
    given = environment.get(JARS)
    if given is None:
        return found | {
            "spark.jars.packages": ",".join(PACKAGES),
            "spark.jars.excludes": ",".join(EXCLUDES),
        }
    jars = sorted(str(path.absolute()) for path in Path(given).glob("*.jar"))
    if not jars:
        raise EngineUnavailable(f"{JARS}={given} has no jars")
    return found | {"spark.jars": ",".join(jars)}
