"""What the analytics image starts in the pods of Spark."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from failback.cli.__main__ import main
from failback.cli.container.spark_pod import NotInAPod, driver_command, executor_command

HOME = Path("/spark")
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.0.0.7:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.9",
    "SPARK_EXECUTOR_POD_NAME": "fbr-exec-3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_CONF_DIR": "/opt/spark/conf",
    "SPARK_JAVA_OPT_10": "-Dten=1",
    "SPARK_JAVA_OPT_2": "-Dtwo=a b",
}


def test_an_executor_is_started_with_what_spark_gave_its_pod() -> None:
    assert executor_command(EXECUTOR, HOME) == [
        "java", "-Dtwo=a b", "-Dten=1", "-Xms1024m", "-Xmx1024m",
        "-cp", "/opt/spark/conf:/spark/jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        "--driver-url", "spark://CoarseGrainedScheduler@10.0.0.7:7078",
        "--executor-id", "3", "--cores", "2", "--app-id", "spark-1",
        "--hostname", "10.0.0.9", "--resourceProfileId", "0", "--podName", "fbr-exec-3",
    ]  # fmt: skip


def test_java_home_class_path_and_ipv6() -> None:
    more = {
        "JAVA_HOME": "/jdk",
        "SPARK_CLASSPATH": "/more.jar",
        "SPARK_EXECUTOR_POD_IP": "fd00::9",
    }
    words = executor_command({**EXECUTOR, **more}, HOME)
    assert words[0] == "/jdk/bin/java"
    assert words[words.index("-cp") + 1] == "/opt/spark/conf:/more.jar:/spark/jars/*"
    assert words[words.index("--hostname") + 1] == "[fd00::9]"


def test_the_driver_of_a_submitted_application_is_spark_submit() -> None:
    words = ["--properties-file", "/opt/spark/conf/spark.properties", "local:///main.py", "report"]
    found = driver_command(words, {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7"}, HOME)
    assert found[0] == "/spark/bin/spark-submit"
    assert "spark.driver.bindAddress=10.0.0.7" in found
    assert found[found.index("--deploy-mode") + 1] == "client"
    assert found[-4:] == words


def test_elsewhere_they_say_what_they_are_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*EXECUTOR, "SPARK_DRIVER_BIND_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    assert main(["executor"]) == 2
    assert (
        "SPARK_DRIVER_URL is not set; it is what Spark starts in a pod" in capsys.readouterr().err
    )
    assert main(["driver", "x.py"]) == 2
    assert "SPARK_DRIVER_BIND_ADDRESS is not set" in capsys.readouterr().err
    with pytest.raises(NotInAPod, match="SPARK_EXECUTOR_MEMORY"):
        executor_command({k: v for k, v in EXECUTOR.items() if "MEMORY" not in k}, HOME)


def test_the_command_takes_this_process_s_place(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    class Gone(BaseException):
        pass

    def become(file: str, words: list[str]) -> None:
        started.append([file, *words])
        raise Gone

    monkeypatch.setattr(os, "execvp", become)
    monkeypatch.setenv("SPARK_HOME", "/spark")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for name, value in EXECUTOR.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Gone):
        main(["executor"])
    assert started[0][:2] == ["java", "java"]


def test_the_spark_that_is_installed_knows_these_options_and_variables() -> None:
    pyspark = pytest.importorskip("pyspark")
    (jar,) = Path(pyspark.__file__).parent.glob("jars/spark-kubernetes_*.jar")
    with zipfile.ZipFile(jar) as classes:
        backend = classes.read(
            "org/apache/spark/scheduler/cluster/k8s/KubernetesExecutorBackend$.class"
        )
        constants = classes.read("org/apache/spark/deploy/k8s/Constants$.class")
    words = executor_command(EXECUTOR, HOME)
    for option in [word for word in words if word.startswith("--")]:
        assert option.encode() in backend, option
    for name in EXECUTOR:
        known = "SPARK_JAVA_OPT_" if name.startswith("SPARK_JAVA_OPT_") else name
        assert known.encode() in constants, name
