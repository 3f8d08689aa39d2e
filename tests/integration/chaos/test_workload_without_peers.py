"""Workload processes whose name server or collector is not there: told, and never a success."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.common.polling import SCALE
from tests.support.processes.child_process import TestProcess, failback_command

SECRET = "s3cr3tsecret"


@pytest.fixture
def nobody() -> str:
    """An address on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


def workload(hot: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "failback.cli", "workload", *arguments, "--hot", str(hot)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60 * SCALE, check=False)


@pytest.mark.parametrize("count", [1, 20])
def test_a_producer_that_reaches_nobody_says_so_and_fails(
    tmp_path: Path, nobody: str, count: int
) -> None:
    done = workload(
        tmp_path,
        "produce",
        "--namesrv",
        nobody,
        "--topic",
        "X",
        "--count",
        str(count),
        "--rate",
        "50",
    )
    assert done.returncode == 1
    assert f"sent 0 of {count}, {count} failed: {nobody} refused\n" in done.stderr


def test_a_consumer_names_the_address_that_refused(tmp_path: Path, nobody: str) -> None:
    done = workload(tmp_path, "consume", "--namesrv", nobody, "--topic", "X", "--group", "g")
    assert done.returncode == 1
    assert f"the route of X: connect to {nobody} failed: connection refused" in done.stderr


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[str]:
    """A name server that knows of no broker."""
    file = tmp_path / "namesrv.conf"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file.write_text(f"listenPort={port}\n")
    server = TestProcess("namesrv", failback_command("cli", "namesrv", "-c", str(file)), tmp_path)
    server.start()
    try:
        server.wait_for("boot success")
        yield f"127.0.0.1:{port}"
    finally:
        server.dispose()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("produce", "--count", "3"), "sent 0 of 3, 3 failed: no route info of this topic: X\n"),
        (("consume", "--group", "g", "--seconds", "2"), "topic X is on no broker of "),
    ],
)
def test_a_topic_that_is_on_no_broker_is_a_failure(
    tmp_path: Path, name_server: str, words: tuple[str, ...], told: str
) -> None:
    done = workload(tmp_path / "hot", *words, "--namesrv", name_server, "--topic", "X")
    assert done.returncode == 1
    assert told in done.stderr


def test_what_no_collector_took_is_a_failure(tmp_path: Path, nobody: str) -> None:
    token = tmp_path / "token"
    token.write_text(f"{SECRET}\n")
    done = workload(
        *(tmp_path / "hot", "produce", "--namesrv", nobody, "--topic", "X", "--count", "1"),
        *("--ship-to", f"http://{nobody}", "--ship-token-file", str(token)),
        *("--ship-linger-seconds", "0.1"),
    )
    assert done.returncode == 1
    assert (
        f"not all of the consume log was shipped; the rest is in {tmp_path / 'hot'}" in done.stderr
    )
    assert list((tmp_path / "hot").glob("*.fblog"))
    assert SECRET not in done.stderr + done.stdout


def test_a_token_file_without_a_token_is_refused_before_anything_is_sent(
    tmp_path: Path, nobody: str
) -> None:
    token = tmp_path / "token"
    token.write_text(f"Bearer {SECRET}\n")
    done = workload(
        *(tmp_path / "hot", "produce", "--namesrv", nobody, "--topic", "X", "--count", "1"),
        *("--ship-to", f"http://{nobody}", "--ship-token-file", str(token)),
    )
    assert done.returncode == 2
    assert f"error: token file {token}: its last line is no token" in done.stderr
    assert SECRET not in done.stderr
    assert not (tmp_path / "hot").exists()


def test_the_token_command_prints_the_token_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "failback.cli", "collect", "token", "--scope", "read"]
    command += ["--tokens", str(tmp_path / "tokens"), "--name", "agents"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 * SCALE, check=True)
    (token,) = done.stdout.splitlines()
    assert len(token) == 43
    assert token not in done.stderr
    assert "stored nowhere" in done.stderr
