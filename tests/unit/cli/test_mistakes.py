"""Mistakes on the command line: each has its literal answer, and each kind of them is tried."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from failback.cli.__main__ import main
from failback.cli.kubectl import __main__ as plugin
from tests.support.analytics.bad_input import clean
from tests.support.cli.mistakes import (
    Mistake,
    every_mistake,
    make_folder,
    mistakes,
    places,
    run_command,
)
from tests.support.processes.child_process import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mistakes")
    make_folder(made)
    return made


@pytest.fixture(scope="module")
def taken() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code, said, _ = run_whole(words, capsys)
    return code, said


def run_whole(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    is_plugin = words[:2] == plugin.NAME.split()
    try:
        code = plugin.main(words[2:]) if is_plugin else main(words)
    except SystemExit as end:  # argparse ends by itself
        code = int(end.code or 0)
    shown = capsys.readouterr()
    return code, shown.err, shown.out


@pytest.fixture(autouse=True)
def no_name_below_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let names that exist nowhere (RFC 6761) be refused at once, however slow the resolver is."""
    ask = socket.getaddrinfo

    def resolve(host: Any, *words: Any, **named: Any) -> Any:
        if isinstance(host, str) and host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ask(host, *words, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.few(12)
@pytest.mark.parametrize("mistake", mistakes("process"), ids=str)
def test_a_mistake_has_its_answer(
    mistake: Mistake,
    folder: Path,
    taken: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    named = places(folder, taken)
    for name, value in mistake.set_for_it(named).items():
        monkeypatch.setenv(name, value)
    code, said, shown = run_whole(mistake.words(named), capsys)
    mistake.check(code, said + caplog.text + shown, named)


@pytest.mark.few(1)
@pytest.mark.parametrize("mistake", mistakes("child"), ids=str)
def test_a_mistake_in_a_process_of_its_own_has_its_answer(
    mistake: Mistake, folder: Path, taken: socket.socket
) -> None:
    named = places(folder, taken)
    mistake.check(*run_command(mistake.words(named), folder, **mistake.set_for_it(named)), named)


def test_every_mistake_of_the_collection_is_tried() -> None:
    found = every_mistake()
    assert {each.number for each in found if each.number} == set(range(1, 38))
    for each in found:
        assert each.see or each.say or each.has, each
        if each.see:
            file, _, name = each.see.partition("::")
            assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "words",
    [
        ["broker", "-p"],
        ["predict", "--list"],
        ["report", "--help"],
        ["faults"],
        ["experiment", "list"],
        ["report", "--schema"],
    ],
    ids=" ".join,
)
def test_a_reader_that_left_is_no_mistake(words: list[str], folder: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "wb") as broken:
        done = subprocess.run(
            [sys.executable, "-m", "failback.cli", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=broken,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "words",
    [["--help"], ["--version"], ["admin", "--help"], ["faults"], ["report", "--schema"]],
    ids=" ".join,
)
def test_an_output_that_has_no_room_is_said_in_one_line(words: list[str], folder: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "failback.cli", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
    assert (done.returncode, done.stderr) == (3, "error: no space left on the disk\n")


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("exporter --port many", "--port"),
        ("predict --rate many", "--rate"),
        ("workload produce --queues many", "--queues"),
        ("ship --hot hot --to lake --period-seconds 0", "--period-seconds"),
        ("kubectl failback exposure orders --seconds many", "--seconds"),
    ],
)
def test_what_is_no_number_is_refused_by_the_name_of_its_option(
    line: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = run(line.split(), capsys)
    (problem, see) = said.splitlines()
    assert code == 2
    assert problem.startswith("error: ")
    assert option in problem
    command = line.split(" --")[0].removesuffix(" orders")
    name = "" if command.startswith("kubectl") else "failback "
    assert see == f"see: {name}{command} --help"


TAKES_A_FILE = (
    "up {}",
    "experiment check {}",
    "experiment run {}",
    "report {}",
    "predict {}",
    "predict --cluster {}",
    "explain-offset g T 0 --run {}",
    "runs show {}",
    "experiment heal {}",
    "experiment abort {}",
    "lake fsck {}",
    "lake show {}",
    "broker -c {}",
    "namesrv -c {}",
    "collect --tokens {}",
    "doctor --run {} --bundle q.tar.gz",
)


NO_MISTAKES = {("lake fsck", "folder"), ("lake show", "folder"), ("experiment heal", "folder")}
"""A folder without runs has nothing to look after."""


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("line", "what"),
    [
        (line, what)
        for at, line in enumerate(TAKES_A_FILE)
        for what in (("nosuch", "binary"), ("nosuch", "folder"))[at % 2]
        if (line.split(" {}")[0], what) not in NO_MISTAKES
    ],
)
def test_what_is_no_file_of_the_kind_is_refused_in_one_line(
    line: str,
    what: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    code, said = run(line.format(what).split(), capsys)
    assert code == 2, said
    assert what in said
    assert len(said.splitlines()) <= 2
    for inside in ("Traceback", "Errno", "internal error", "codec", "Error:"):
        assert inside not in said


ASKS_A_CLUSTER = (
    "admin clusterList",
    "admin topicRoute -t T",
    "admin consumerProgress -g g",
    "admin consumerProgress",
    "admin topicList",
    "admin brokerStatus -b broker-a",
    "admin queryMsgByKey -t T -k k",
    "admin queryMsgByUniqueKey -t T -i id",
    "admin resetOffset -g g -t T --time now",
    "admin resetOffset -g g -t T --queue 0 --offset 5",
    "admin getBrokerConfig -b broker-a",
    "admin updateBrokerConfig -b broker-a a=b",
    "admin updateTopic -b broker-a -t T",
    "admin updateSubGroup -b broker-a -g g",
    "explain-offset g T 0 --live",
    "trace --out t1",
)


ADDRESSES = (
    ("127.0.0.1:1", 3, "127.0.0.1:1: connection refused"),
    ("nosuchhost.invalid:1", 3, "nosuchhost.invalid:1: the host name is not known"),
    ("nonsense", 2, "the port is missing: write HOST:PORT, such as 127.0.0.1:9876"),
    ("127.0.0.1:99999", 2, "has '127.0.0.1:99999': a port is from 1 to 65535"),
    (" ", 2, "--namesrv: is blank: write HOST:PORT;HOST:PORT, or leave it out"),
    ("::1", 2, "has '::1': an IPv6 address with its port is written [::1]:9876"),
    ("1:2:3:9876", 2, "has '1:2:3:9876': an IPv6 address with its port is written [::1]:9876"),
    (
        "::1:9876",
        2,
        "where its port begins is not said: write [::1]:9876, or [::1:9876]:PORT",
    ),
    ("[::1]:1", 3, "[::1]:1: connection refused"),
)


@pytest.mark.few(6)
@pytest.mark.parametrize(
    ("line", "address", "code", "told"),
    [
        (line, *ADDRESSES[(at + turn) % len(ADDRESSES)])
        for at, line in enumerate(ASKS_A_CLUSTER)
        for turn in (0, 4)
    ],
)
def test_a_cluster_that_cannot_be_asked_is_named(
    line: str,
    address: str,
    code: int,
    told: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    ended, said = run([*line.split(), "-n", address], capsys)
    assert ended == code
    assert said.startswith("error: ")
    assert said.rstrip().endswith(told)
    assert len(said.splitlines()) == 1


@pytest.mark.few(4)
@pytest.mark.parametrize("line", ASKS_A_CLUSTER)
def test_without_a_name_server_all_commands_say_where_they_looked(
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    for words in (line.split(), ["workload", "produce", "--topic", "T"], ["exporter"]):
        ended, said = run(words, capsys)
        assert ended == 2
        assert said == (
            "error: --namesrv: is not given, FAILBACK_NAMESRV is not set, /dev/null names none,"
            f" and no local cluster at {tmp_path}/failback/local; start one with: failback up"
            " FILE\n"
        )


@pytest.mark.parametrize("words", [["runs", "list"], ["lake", "show", "folder"], ["doctor"]])
def test_an_interrupt_is_one_line_and_inconclusive(
    words: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(folder)
    monkeypatch.setattr(Path, "is_dir", interrupted)
    monkeypatch.setattr(Path, "exists", interrupted)
    assert run(words, capsys) == (3, "error: interrupted\n")


TAKES_A_NAME = (
    "observe -n 127.0.0.1:1 --out run --group",
    "observe -n 127.0.0.1:1 --out run --topic",
    "observe -n 127.0.0.1:1 --out run --trace-topic",
    "trace -n 127.0.0.1:1 --out run --group",
    "trace -n 127.0.0.1:1 --out run --topic",
    "trace -n 127.0.0.1:1 --out run --trace-topic",
    "trace -n 127.0.0.1:1 --out run --broadcasting",
    "explain-offset --live -n 127.0.0.1:1 billing 0",
    "admin topicRoute -n 127.0.0.1:1 --topic",
    "admin consumerProgress -n 127.0.0.1:1 --group",
    "admin consumerProgress -n 127.0.0.1:1 --group billing --topic",
    "predict --group",
    "exporter -n 127.0.0.1:1 --queue-metrics",
    "workload produce -n 127.0.0.1:1 --topic",
    "workload consume -n 127.0.0.1:1 --topic orders --group",
)


NO_NAMES = (
    ("", "is empty"),
    ("two words", "has characters other than"),
    ("a\tb", "has characters other than"),
    ("订单", "has characters other than"),
    ("g" * 5000, "is longer than"),
)


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("line", "name", "told"),
    [
        (line, *NO_NAMES[(at + turn) % len(NO_NAMES)])
        for at, line in enumerate(TAKES_A_NAME)
        for turn in (0, 2)
    ],
)
def test_what_no_topic_or_group_is_called_is_refused(
    line: str,
    name: str,
    told: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    words = line.split()
    if words[0] == "explain-offset":
        words.insert(-1, name)
    else:
        words.append(name)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert told in said
    assert len(said) < 300
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("time", ["1e999", "nan", "soon"])
@pytest.mark.parametrize("option", ["--since", "--until", "--window"])
def test_a_time_is_refused_by_the_name_of_its_option(
    option: str, time: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run = clean().write(tmp_path / "run")
    assert main(["report", str(run), "--engine", "local", option, time]) == 2
    assert capsys.readouterr().err.startswith(f"error: {option}: ")
