"""A Spark standalone cluster on loopback: one master and two workers, each a process."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.net.ports import free_port_block
from tests.support.processes.child_process import TestProcess, disposing

WORKERS = 2


@dataclass(frozen=True)
class SparkCluster:
    """A cluster whose workers are registered."""

    url: str
    home: Path
    """``SPARK_HOME``: what has ``bin/spark-submit``."""
    workers: list[TestProcess]

    def kill(self, worker: TestProcess) -> int:
        """SIGKILL a worker with its executors; returns how many processes died beside it."""
        below = psutil.Process(worker.pid).children(recursive=True)
        worker.kill()
        for process in below:
            process.send_signal(signal.SIGKILL)
        psutil.wait_procs(below, 30)
        return len(below)


@contextmanager
def spark_cluster(folder: Path) -> Iterator[str]:
    """Start one; yields the master's URL once both workers are registered."""
    with running_cluster(folder, {"PATH": os.environ["PATH"]}) as found:
        yield found.url


@contextmanager
def running_cluster(folder: Path, environment: Mapping[str, str]) -> Iterator[SparkCluster]:
    """Start one whose processes have this environment."""
    import pyspark

    home = Path(pyspark.__file__).parent
    ports = free_port_block(1 + WORKERS)
    settings = {
        **environment,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }
    spark_class = str(home / "bin" / "spark-class")
    url = f"spark://127.0.0.1:{ports}"

    def daemon(name: str, *arguments: str) -> TestProcess:
        command = [spark_class, *arguments]
        return TestProcess(name, ["sh", "-c", 'exec "$@" 2>&1', "sh", *command], folder,
                           environment=settings)  # fmt: skip

    master = daemon("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1",
                    "--port", str(ports), "--webui-port", "0")  # fmt: skip
    workers = [
        daemon(
            f"worker{number}",
            "org.apache.spark.deploy.worker.Worker",
            "--host",
            "127.0.0.1",
            "--port",
            str(ports + 1 + number),
            "--webui-port",
            "0",
            "--cores",
            "1",
            "--memory",
            "1g",
            url,
        )
        for number in range(WORKERS)
    ]
    with disposing([master, *workers]):
        master.start()
        master.wait_for("New state: ALIVE", 120)
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.wait_for("Successfully registered with master", 120)
        yield SparkCluster(url, home, workers)
