"""The workload against a real cluster by its own command: what it sends, handles and logs."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.chaos.cluster.wire import WireConnection
from failback.chaos.errors import ExitCode
from failback.chaos.workload.plan import read_body
from failback.chaos.workload.process import ask
from failback.client.consumelog.reader import read_hot
from failback.client.consumelog.schema import TABLES, order
from failback.protocol.calls import create_topic
from failback.protocol.route import TopicConfig
from tests.support.analytics.collector_lab import running_collector
from tests.support.chaos.chaos_lab import TIME_SCALE, LocalCluster
from tests.support.clients.consumelog import processes_in_lake
from tests.support.common.polling import wait_until
from tests.support.processes.child_process import failback_environment


class Workload:
    """Starts workload processes for one topic and reads their logs."""

    def __init__(self, cluster: LocalCluster, folder: Path, topic: str) -> None:
        view = cluster.target().view()
        self.master = view.members[0].address
        self.nameserver = view.nameservers[0]
        self.hot = folder / "hot"
        self.topic = topic
        self.sockets = Path(tempfile.mkdtemp(prefix="failback-"))
        self._started: list[subprocess.Popen[str]] = []
        with WireConnection(self.master) as connection:
            connection.ask(create_topic(TopicConfig(topic, 4, 4)))

    def start(self, command: str, *arguments: str, limit_files: bool = False) -> Any:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "failback.chaos.workload", command),
                *("--namesrv", self.nameserver, "--topic", self.topic, "--hot", str(self.hot)),
                *("--time-scale", str(TIME_SCALE), "--run", "workload"),
                *arguments,
            ],
            env={**os.environ, **failback_environment()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=_no_large_files if limit_files else None,
        )
        self._started.append(process)
        return process

    def produce(self, count: int, *arguments: str) -> str:
        process = self.start("produce", "--count", str(count), "--rate", "500", *arguments)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        return str(out)

    def rows(self, table: str) -> list[dict[str, Any]]:
        code = TABLES[table].code
        return [
            dict(zip(order(table), record[4:], strict=False))
            for file in sorted(self.hot.glob("*.fblog"))
            for record in read_hot(file).records
            if record[0] == code
        ]

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for socket_file in self.sockets.glob("*"):
            socket_file.unlink()
        self.sockets.rmdir()


def _no_large_files() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


@pytest.fixture
def workload(
    cluster: LocalCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Workload]:
    workload = Workload(cluster, tmp_path, request.node.name.replace("[", "-").strip("]")[:60])
    yield workload
    workload.close()


@pytest.mark.sample
def test_what_is_sent_is_logged_and_carries_its_identity(workload: Workload) -> None:
    out = workload.produce(200, "--queues", "4")
    sent = workload.rows("produce")
    assert len({(row["lane"], row["lseq"]) for row in sent}) == 200
    assert {row["res"] for row in sent} == {"OK"}
    times = [(row["due"], row["t0"], row["t1"]) for row in sent]
    assert [each for each in times if list(each) != sorted(each)] == []
    assert json.loads(out)["last_seq"] >= 200
    lanes: dict[int, list[int]] = {}
    for row in sent:
        lanes.setdefault(row["lane"], []).append(row["qid"])
    assert sorted(lanes) == [0, 1, 2, 3]
    # A lane lives in one queue, but for the sends that waited for the route together: more of them
    # on a busy machine. Of lanes that had no queue a quarter would be at home.
    at_home = sum(max(queues.count(each) for each in range(4)) for queues in lanes.values())
    assert at_home >= 120


def test_a_consumer_handles_logs_and_stops_cleanly(workload: Workload) -> None:
    workload.produce(100)
    control = workload.sockets / "c.sock"
    consumer = workload.start(
        "consume", "--group", "workload-clean", "--control", str(control), "--mean-ms", "0"
    )
    wait_until(lambda: ask(control, {"op": "stats"}).get("delivered") == 100, "all handled")
    stats = ask(control, {"op": "stats"})
    assert (stats["unfinished"], stats["bad_bodies"], stats["assigned"]) == (0, 0, True)
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(20) == 0
    begun, ended = workload.rows("deliver"), workload.rows("deliver_end")
    assert len(begun) == len(ended) == 100
    assert {row["status"] for row in ended} == {"SUCCESS"}
    assert all(row["okey"] and row["kseq"] is not None for row in begun)
    ends = {row["end_reason"] for row in workload.rows("assign_end")}
    assert ends == {"SHUTDOWN"}
    shutdown = [row for row in workload.rows("commit") if row["kind"] == "SHUTDOWN"]
    assert sum(row["off"] for row in shutdown if not row["ptopic"].startswith("%")) == 100


def test_the_handler_can_be_turned_while_it_runs(workload: Workload) -> None:
    control = workload.sockets / "c.sock"
    workload.start("consume", "--group", "workload-knobs", "--control", str(control))
    wait_until(lambda: ask(control, {"op": "stats"}).get("assigned"), "assigned")
    assert ask(control, {"op": "set-handler", "fail_ratio": 1.0}) == {"ok": True}
    assert ask(control, {"op": "set-handler", "fail_ratio": "x"})["ok"] is False
    assert "there is" in ask(control, {"op": "dance"})["error"]
    workload.produce(5)
    wait_until(lambda: len(workload.rows("sendback")) >= 5, "five send-backs")
    assert {row["status"] for row in workload.rows("deliver_end")} == {"LATER"}


@pytest.mark.parametrize("command", ["produce", "consume"])
def test_without_a_log_nothing_is_done_and_the_exit_code_is_74(
    workload: Workload, command: str
) -> None:
    extra = ["--group", "workload-full"] if command == "consume" else ["--count", "5"]
    process = workload.start(command, *extra, limit_files=True)
    _, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.LOG_FULL, err
    with WireConnection(workload.master) as connection:
        stats = connection.topic_stats(workload.topic)
    assert sum(high for _, high in stats.values()) == 0


def test_bad_arguments_are_named(workload: Workload) -> None:
    process = workload.start("produce", "--switch", "retries=1")
    _, err = process.communicate(timeout=60)
    assert process.returncode == ExitCode.BAD_INPUT
    assert '--switch.retries: unknown "retries"' in err


def test_bodies_in_the_store_are_those_that_were_made(workload: Workload) -> None:
    workload.produce(20, "--body-bytes", "200")
    with WireConnection(workload.master) as connection:
        bodies = [
            message.body
            for queue in range(4)
            for message in connection.pull(workload.topic, queue, 0).messages
        ]
    assert len(bodies) == 20
    assert all(len(body) == 200 and read_body(body) is not None for body in bodies)


def test_a_workload_ships_its_log_to_a_collector(workload: Workload, tmp_path: Path) -> None:
    """Nothing stays behind, and the collector can close the run with what the process said."""
    with running_collector(tmp_path / "lab") as lab:
        out = workload.produce(
            200, "--ship-to", lab.url, "--ship-token-file", str(lab.token_file), "--proc-no", "7"
        )
        last = json.loads(out)["last_seq"]
        assert not list(workload.hot.glob("*.fblog"))
        process = processes_in_lake(lab.lake, "workload")[7]
        assert (process.role, process.last_seq, process.missing) == ("producer", last, 0)
        client = lab.client()
        assert client.close_run("workload", {7: last}).document == {"gaps": []}
        client.close()


def test_a_workload_refuses_what_is_no_collector(workload: Workload) -> None:
    process = workload.start("produce", "--ship-to", "ftp://nobody/")
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "http://HOST:PORT" in err) == (ExitCode.BAD_INPUT, True)
