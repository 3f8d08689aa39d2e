"""What Spark starts in its pods of the analytics image: ``failback executor``, ``failback driver``.

Spark on Kubernetes gives a pod one word, ``executor`` or ``driver``, and the rest as variables; the
image has to know what to start. Both replace this process: init's child is then Spark itself.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_JAVA_OPTION: Final = "SPARK_JAVA_OPT_"
_OF_EXECUTORS: Final = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


class NotInAPod(Exception):
    """The variables that Spark gives its pods are not there."""


def executor(words: Sequence[str]) -> int:
    """Become an executor; returns only when that cannot be."""
    return _become("executor", lambda: executor_command(os.environ, _home()))


def driver(words: Sequence[str]) -> int:
    """Become the driver of an application that was submitted to the cluster."""
    return _become("driver", lambda: driver_command(words, os.environ, _home()))


def executor_command(environment: Mapping[str, str], home: Path) -> list[str]:
    """The JVM of an executor.

    Args:
        environment: Of the pod.
        home: Where Spark is: the folder with ``jars``.

    Raises:
        NotInAPod: Names the variable that is not there.
    """
    found = {option: _given(environment, name) for option, name in _OF_EXECUTORS.items()}
    address = found["--hostname"]
    if ":" in address and not address.startswith("["):
        found["--hostname"] = f"[{address}]"  # IPv6
    memory = _given(environment, "SPARK_EXECUTOR_MEMORY")
    places = (
        environment.get("SPARK_CONF_DIR"),
        environment.get("SPARK_CLASSPATH"),
        f"{home}/jars/*",
        environment.get("SPARK_DIST_CLASSPATH"),
    )
    return [
        _java(environment),
        *_java_options(environment),
        f"-Xms{memory}",
        f"-Xmx{memory}",
        "-cp",
        ":".join(place for place in places if place),
        _BACKEND,
        *(word for pair in found.items() for word in pair),
    ]


def driver_command(words: Sequence[str], environment: Mapping[str, str], home: Path) -> list[str]:
    """``spark-submit`` in the driver's pod, with what Spark gave that pod as arguments."""
    address = _given(environment, "SPARK_DRIVER_BIND_ADDRESS")
    return [
        f"{home}/bin/spark-submit",
        *("--conf", f"spark.driver.bindAddress={address}"),
        *("--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"),
        *("--deploy-mode", "client"),
        *words,
    ]


def _become(name: str, command: Callable[[], list[str]]) -> int:
    try:
        found = command()
        os.execvp(found[0], found)
    except NotInAPod as problem:
        text = f"failback {name}: {problem}; it is what Spark starts in a pod of its own"
    except OSError as error:
        text = f"failback {name}: cannot start: {error}"
    print(text, file=sys.stderr)
    return 2


def _given(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise NotInAPod(f"{name} is not set")
    return value


def _java_options(environment: Mapping[str, str]) -> list[str]:
    """In the order of their numbers."""
    numbered = {
        int(name.removeprefix(_JAVA_OPTION)): value
        for name, value in environment.items()
        if name.startswith(_JAVA_OPTION) and name.removeprefix(_JAVA_OPTION).isdigit()
    }
    return [numbered[number] for number in sorted(numbered)]


def _java(environment: Mapping[str, str]) -> str:
    home = environment.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def _home() -> Path:
    """Where pyspark brought Spark along."""
    given = os.environ.get("SPARK_HOME")
    if given:
        return Path(given)
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise NotInAPod("pyspark is not installed")
    return Path(found.origin).parent
