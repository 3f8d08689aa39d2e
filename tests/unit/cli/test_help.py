"""Help: options with their texts in any width, commands in panels, completed words."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from tools.cli_page import Command, command_tree

from failback.cli.__main__ import main
from failback.cli.app import app
from failback.cli.kubectl import __main__ as plugin
from failback.cli.shared.commands import NARROW


def every_command() -> Iterator[Command]:
    waiting = [command_tree(app), command_tree(plugin.app, plugin.NAME)]
    while waiting:
        command = waiting.pop()
        yield command
        waiting += command.below


COMMANDS = list(every_command())


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
        for name, text in (*command.arguments, *command.options):
            if "--help" not in name:
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
    panels = ("Measure a cluster", "Experiments", "Local cluster", "Administer", "Servers")
    titles = [line.strip("╭─╮: ") for line in lines]
    assert [each for each in titles if each in panels] == list(panels)
    named = [line.strip("│ ").partition(" ")[0] for line in lines]
    assert {"demo", "up", "experiment", "report", "broker", "admin", "operator"} <= set(named)
    assert not {"tools", "executor"} & set(named), "hidden"


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
