"""The command line: what is light, what an error looks like, which exit code it has."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from failback.cli.__main__ import main
from failback.cli.shared.asking import parse_time
from failback.cli.shared.bundled import bundled
from failback.cli.shared.clusters import ClusterOptions
from failback.cli.shared.errors import Debug, explain, guarded, missing_extra, worst
from failback.cli.shared.output import print_table
from failback.client.remoting.guarded.cluster import Given
from failback.protocol.command import RemotingCommand
from failback.protocol.errors import ConfigError, RemotingConnectError
from failback.protocol.fastjson import dumps
from tests.support.net.fake_remoting import FakeBroker, FakeRemoting


def run_python(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.mark.parametrize("command", ["broker", "namesrv"])
def test_a_server_carries_no_command_line(command: str) -> None:
    loaded = run_python(
        "import sys; from failback.cli.light_commands import light_command as light;"
        f"assert light([{command!r}, '-c', 'x'])[1] == ['-c', 'x'];"
        "print([m for m in ('typer', 'rich', 'pydantic', 'ruamel.yaml') if m in sys.modules])"
    )
    assert loaded == "[]\n"


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for command in ("demo", "up", "down", "ps", "logs", "experiment", "report",
                    "observe", "workload", "admin", "help"):  # fmt: skip
        assert f" {command} " in shown
    assert "\n  tools " not in shown


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["up"], 2, "FILE: is missing"),
        (["frobnicate"], 2, "frobnicate"),
        (["experiment", "run", "no-such"], 2, '"no-such" is no file and no bundled'),
        (["experiment", "run", "failback-dmo"], 2, 'did you mean "failback-demo"?'),
        (
            ["experiment", "run", "failback-demo", "--arm", "sty"],
            2,
            'arm: unknown "sty", did you mean "stay"',
        ),
        (["demo", "--engine", "kafka"], 2, '--engine: must be failback or apache, got "kafka"'),
        (["demo", "--engine", "apache", "--quick"], 2, "--quick: needs engine failback"),
        (["report", "/nonexistent-run"], 2, "/nonexistent-run"),
        (["logs", "x", "--root", "/nonexistent"], 2, 'POD: no log of "x" at /nonexistent'),
        (["ps", "--root", "/nonexistent"], 2, "no local cluster at /nonexistent"),
        (["admin", "clusterList", "--root", "/nonexistent"], 2, "--namesrv: is not given"),
        (["admin", "getBrokerConfig", "-b", "127.0.0.1:1"], 3, "cannot reach broker 127.0.0.1:1"),
        (
            ["admin", "updateBrokerConfig", "-b", "127.0.0.1:1", "x"],
            2,
            'must be key=value, got "x"',
        ),
    ],
)
def test_a_mistake_is_one_line_with_the_right_code(
    capsys: pytest.CaptureFixture[str], words: list[str], code: int, told: str
) -> None:
    assert main(words) == code
    shown = capsys.readouterr().err
    assert told in shown
    assert "Traceback" not in shown


def test_an_internal_error_is_one_line_unless_debug_is_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @guarded
    def broken() -> None:
        raise ZeroDivisionError("no")

    with pytest.raises(typer.Exit) as caught:
        broken()
    assert caught.value.exit_code == 3
    assert capsys.readouterr().err == (
        "error: internal error: ZeroDivisionError: no (failback --debug shows where)\n"
    )
    monkeypatch.setattr(Debug, "on", True)
    with pytest.raises(ZeroDivisionError):
        broken()


def test_an_engines_plan_is_cut_from_its_error() -> None:
    line, _ = explain(ValueError("no column okey\n== SQL ==\nSELECT ..."))
    assert line == "internal error: ValueError: no column okey (failback --debug shows where)"
    line, _ = explain(ValueError("x" * 5000))
    assert len(line) < 400
    assert "xxx..." in line


def test_ctrl_c_is_inconclusive() -> None:
    @guarded
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as caught:
        interrupted()
    assert caught.value.exit_code == 3


def test_a_missing_extra_is_one_line_that_names_it() -> None:
    typed = "pip install '.[spark]' -c constraints.txt, in the checkout"
    assert missing_extra("pyspark") == f"this needs the extra spark: {typed} (pyspark is missing)"
    missing = ModuleNotFoundError("No module named 'pyarrow.parquet'", name="pyarrow.parquet")
    assert explain(missing)[0].startswith("this needs the extra analytics:")
    assert explain(ConfigError("a", "b")) == ("a: b", 2)
    assert explain(RemotingConnectError("x:1"))[1] == 3
    assert explain(FileNotFoundError(2, "x", "/no")) == ("/no: no such file or folder", 2)
    assert explain(PermissionError(13, "Permission denied", "/a")) == ("/a: permission denied", 2)
    assert explain(OSError(28, "No space left on device", "/a"))[1] == 3


@pytest.mark.parametrize(
    ("codes", "code"),
    [([], 0), ([0, 0], 0), ([0, 3], 3), ([3, 1, 0], 1), ([1, 5, 3], 5), ([4, 1], 4), ([74], 74)],
)
def test_the_worst_code_wins(codes: list[int], code: int) -> None:
    assert worst(codes) == code


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("now", -1), ("1700000000000", 1_700_000_000_000), ("1970-01-01T00:00:01+00:00", 1000)],
)
def test_times_of_reset_offset(text: str, milliseconds: int) -> None:
    assert parse_time(text) == milliseconds


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--time: must be like 2026-01-31T12:00:00"):
        parse_time("yesterday")


def test_a_named_root_stands_before_the_environment_and_after_the_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "env:1;env:2")
    asked = ClusterOptions(Given(namesrv="a:1;b:2"), tmp_path)
    assert asked.found().name_servers == ("a:1", "b:2")
    assert ClusterOptions().found().name_servers == ("env:1", "env:2")
    with pytest.raises(ConfigError, match="no local cluster at"):
        ClusterOptions(root=tmp_path).found()


def test_a_table_without_a_terminal_is_plain_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("A", "LONG"), [("1", None), ("[red]", 5)])
    assert capsys.readouterr().out == "A      LONG\n1      -\n[red]  5\n"


@pytest.mark.parametrize(
    ("verb", "options"), [("check", []), ("check", ["--json"]), ("run", ["--root", "/none"])]
)
def test_a_misspelt_figure_is_refused_before_anything_is_started(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: str, options: list[str]
) -> None:
    file = tmp_path / "x.yaml"
    text = bundled("experiment.yaml").read_text()
    file.write_text(text.replace("metric: totals.lost", "metric: totals.losst"))
    assert main(["experiment", verb, str(file), *options]) == 2
    shown = capsys.readouterr()
    assert 'spec.expect[0].metric: "totals.losst" is no figure that report.json has' in shown.err
    assert 'did you mean "totals.lost"?' in shown.err
    assert shown.out == ""


def test_a_plan_is_json_where_json_was_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "check", "failback-demo", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["experiment"] == "failback-demo"
    assert [arm["arm"] for arm in plan["arms"]] == ["stay", "handover"]
    assert [fault["id"] for fault in plan["arms"][1]["faults"]] == ["f1", "f2"]
    assert plan["arms"][1]["at_most_seconds"] > 60


def test_rates_of_brokers_are_printed_as_mqadmin_does(capsys: pytest.CaptureFixture[str]) -> None:
    broker = FakeBroker(boot_ms=1_000)
    table = {"putTps": "49.4851544536639 48.1 20.0", "getTransferedTps": ""}
    broker.answers[28] = lambda r: r.response(0, body=dumps({"table": table}))
    member = {"cluster": "c", "brokerName": "b", "brokerAddrs": {"0": broker.address}}
    known = {"brokerAddrTable": {"b": member}, "clusterAddrTable": {"c": ["b"]}}
    namesrv = FakeRemoting({106: lambda r: r.response(0, body=dumps(known))})
    try:
        assert main(["admin", "clusterList", "-n", namesrv.address, "--json"]) == 0
    finally:
        namesrv.close()
        broker.close()
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["inTps"], row["outTps"]) == ("49.49", "")


def test_a_topic_is_made_on_the_broker_that_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[RemotingCommand] = []

    def made(request: RemotingCommand) -> RemotingCommand:
        asked.append(request)
        return request.response(0)

    with FakeRemoting({17: made}) as broker:
        address = broker.address
        words = ["admin", "updateTopic", "-t", "probe", "-b", address, "-r", "4", "-w", "2"]
        assert main(words) == 0
    assert capsys.readouterr().out == f"topic probe is set on {address}\n"
    sent = asked[0].ext_fields or {}
    assert (sent["topic"], sent["readQueueNums"], sent["writeQueueNums"]) == ("probe", "4", "2")
    assert sent["perm"] == "6"
