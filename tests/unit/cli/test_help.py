"""Help: options with their texts in any width, commands in panels, completed words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from tools.cli_page import Command, command_tree

from failback.cli.__main__ import main
from failback.cli.app import FIRST, UNLISTED, app
from failback.cli.kubectl import __main__ as plugin
from failback.cli.shared.commands import NARROW
from failback.client.remoting.guarded.cluster import HELP


def every_command() -> Iterator[Command]:
    waiting = [command_tree(app), command_tree(plugin.app, plugin.NAME)]
    while waiting:
        command = waiting.pop()
        yield command
        waiting += command.below


COMMANDS = list(every_command())
CONNECTION = tuple(each.text for each in HELP.values())
ROOT: Any = typer.main.get_command(app)


def shown_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    is_plugin = words[:2] == plugin.NAME.split()
    try:
        code = plugin.main(words[2:]) if is_plugin else main(words)
    except SystemExit as end:  # argparse ends by itself
        code = int(end.code or 0)
    shown = capsys.readouterr()
    assert (code, shown.err) == (0, "")
    return shown.out


@pytest.mark.few(1)
@pytest.mark.parametrize("width", [40, 200])
def test_help_shows_every_option_with_its_text(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for command in COMMANDS:
        shown = shown_help(f"{command.name} -h".removeprefix("failback ").split(), capsys)
        assert "…" not in shown
        words = "".join(shown.replace("│", "").split())
        assert command.examples, f"{command.name} has no example"
        for example in command.examples:
            assert "".join(example.split()) in words
        is_folded = "seefailbackhelpconnection" in words.replace("`", "")
        for name, text in (*command.arguments, *command.options):
            of_connection = text.startswith(CONNECTION) or name == "--root FOLDER"
            if "--help" not in name and not (is_folded and of_connection):
                assert all(each in words for each in re.split(r"[ ,|]+", name)), name
                assert "".join(text.partition(" (")[0].split()) in words, name


@pytest.mark.parametrize(
    "words", [["-h"], ["--help"], [], ["report", "-h"], ["admin"], ["broker", "-h"],
              ["workload", "produce", "-h"], ["admin", "resetOffset", "-h"], ["lake"]],
    ids=" ".join,
)  # fmt: skip
@pytest.mark.parametrize("width", [NARROW - 1, 80])
def test_help_is_shown_on_stdout_and_is_no_mistake(
    words: list[str],
    width: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = shown_help(words, capsys)
    assert shown.strip().lower().startswith("usage: failback")
    assert "--help" in shown
    assert "\x1b" not in shown, "no colours where no terminal is"


@pytest.mark.parametrize("width", [NARROW - 1, 80])
def test_commands_stand_in_panels(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = shown_help(["--help"], capsys).splitlines()
    titles = [line.strip("╭─╮: ") for line in lines]
    assert [each for each in titles if each in ("First", "More")] == ["First", "More"]
    named = [line.strip("│ ").partition(" ")[0] for line in lines]
    first = [each for each in named if each in FIRST]
    assert first == [each for each in FIRST if each in ROOT.commands]
    assert named.index("doctor") < named.index("trace")
    assert {"up", "experiment", "report", "admin", "help", "version"} <= set(named)
    assert not {*UNLISTED, "tools", "executor"} & set(named), "hidden"


@pytest.mark.parametrize("name", UNLISTED)
def test_a_command_that_help_leaves_out_works(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert name in shown_help([name, "--help"], capsys)


@pytest.mark.parametrize("width", [40, 200])
@pytest.mark.parametrize(
    "words", ["observe", "admin topicList", "dashboard", "carry", "workload produce"]
)
def test_connection_options_are_one_line(
    words: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    shown = " ".join(shown_help([*words.split(), "-h"], capsys).split())
    assert "see `failback help connection`" in shown
    assert "cluster: -n, " in shown or "cluster: --namesrv, " in shown
    assert "Certificates to trust" not in shown
    assert "Name servers, HOST:PORT" not in shown
    again = " ".join(shown_help([*words.split(), "-h"], capsys).split())
    assert again == shown, "asking for help changes nothing"


def test_help_has_a_page_about_the_connection(capsys: pytest.CaptureFixture[str]) -> None:
    shown = shown_help(["help", "connection"], capsys)
    for each in ("--namesrv, -n", "--root", "--access-key-file", "--tls-ca", "config.toml"):
        assert each in shown


def test_help_and_version_are_words_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown_help(["help"], capsys) == shown_help(["--help"], capsys)
    for words in (["carry"], ["admin", "clusterList"]):
        assert shown_help(["help", *words], capsys) == shown_help([*words, "--help"], capsys)
    said = {shown_help([word], capsys) for word in ("version", "-v", "-V", "--version")}
    assert len(said) == 1
    assert main(["help", "obsrve"]) == 2


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_there(
    shell: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    assert main(["--show-completion", shell]) == 0
    assert "_FAILBACK_COMPLETE" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("failback exp", ["explain-offset", "exporter", "experiment"]),
        ("failback experiment h", ["heal"]),
        ("failback lake f", ["fsck"]),
        ("failback lake fsck --", ["--help"]),
        ("failback broker --n", ["--namesrv"]),
        ("failback workload produce --rat", ["--rate"]),
        ("failback experiment run my.yaml --target k", ["kube"]),
    ],
)
def test_words_are_completed(
    typed: str,
    completed: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("_FAILBACK_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    assert main([]) == 0
    assert sorted(capsys.readouterr().out.split()) == sorted(completed)
