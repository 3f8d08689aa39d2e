"""Every page of help: one style, each option explained, no Python types, readable when narrow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import typer

from failback.cli.__main__ import main
from failback.cli.app import app
from failback.cli.help_tree import commands
from failback.cli.kubectl import __main__ as plugin
from failback.cli.shared.commands import page_of
from failback.protocol.words.help_page import NARROW, Page, Row, Section, option_text

PAGES = {each.name: each.page for each in (*commands(app), *commands(plugin.app, plugin.NAME))}


class Option(NamedTuple):
    """One option of one command."""

    command: str
    row: Row

    def __str__(self) -> str:
        return f"{self.command} {self.row.name.strip()}"


def options() -> Iterator[Option]:
    for name, page in PAGES.items():
        for section in page.sections:
            if section.title in ("Options", "Arguments"):
                yield from (Option(name, row) for row in section.rows)


@pytest.mark.parametrize("option", list(options()), ids=str)
def test_an_option_says_what_it_is_and_what_its_value_is(option: Option) -> None:
    name, text = option.row.name.strip(), option.row.text
    assert re.fullmatch(r"[A-Z(].*[.)]", text), "a sentence"
    words = name.replace(",", "").split(" ")
    values = [word for word in words if not word.startswith("-")]
    for value in values:
        assert re.fullmatch(r"[A-Z0-9_|=./%-]+(\.\.\.)?|[\w|]+", value), "FILE, N or a|b"
    assert not re.search(r"[<\[](bool|str|int|float|list|path|Path)", name + text)


@pytest.mark.parametrize("name", list(PAGES))
def test_a_command_has_a_text_and_an_example_that_names_it(name: str) -> None:
    page = PAGES[name]
    assert page.text[:1].isupper()
    assert page.text.rstrip()[-1] in ".?"
    assert page.examples, "an example"
    assert any(name in each for each in page.examples)


@pytest.mark.parametrize("width", [20, 40, NARROW - 1, NARROW, 80, 100])
@pytest.mark.parametrize("name", list(PAGES))
def test_nothing_is_cut_off_in_any_width(name: str, width: int) -> None:
    page = PAGES[name]
    shown = page.in_width(width)
    assert "…" not in shown
    words = "".join(shown.split())
    for section in page.sections:
        for row in section.rows:
            assert "".join(row.text.split()) in words
    texts = [page.text, *(row.text for section in page.sections for row in section.rows)]
    longest = max(len(word) for text in texts for word in text.split())
    lines = [line for line in shown.splitlines() if line.strip() not in page.examples]
    names = {row.name.strip() for section in page.sections for row in section.rows}
    for line in lines:
        assert len(line) <= width or line.strip() in names or longest + 6 > width


@pytest.mark.parametrize(
    "words", [["-h"], ["--help"], [], ["report", "-h"], ["admin"], ["broker", "-h"],
              ["namesrv", "--help"], ["workload", "-h"], ["workload", "produce", "-h"],
              ["experiment"], ["admin", "resetOffset", "-h"], ["lake"], ["ship", "-h"]],
    ids=" ".join,
)  # fmt: skip
def test_help_is_shown_on_stdout_and_is_no_mistake(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(words)
    except SystemExit as end:  # argparse ends by itself
        code = int(end.code or 0)
    shown = capsys.readouterr()
    assert (code, shown.err) == (0, "")
    assert shown.out.startswith("Usage: failback")
    assert "-h, --help" in shown.out


def test_commands_stand_in_groups() -> None:
    titles = [section.title for section in PAGES["failback"].sections]
    assert titles == [
        "Measure a cluster",
        "Experiments",
        "Local cluster",
        "Administer",
        "Servers",
        "Options",
    ]


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


def test_a_page_is_laid_out_in_one_column_where_it_is_narrow() -> None:
    rows = (Row("-n, --namesrv ADDRESSES", "Name servers."), Row("    --json", "For machines."))
    page = Page("failback x [OPTIONS]", "Do it.", (Section("Options", rows),), ("failback x",))
    assert page.in_width(40) == (
        "Usage: failback x [OPTIONS]\n\nDo it.\n\nExamples:\n  failback x\n\nOptions:\n"
        "  -n, --namesrv ADDRESSES\n      Name servers.\n  --json\n      For machines.\n"
    )
    assert page.in_width(80).splitlines()[-2:] == [
        "  -n, --namesrv ADDRESSES  Name servers.",
        "      --json               For machines.",
    ]


def test_what_holds_without_an_option_is_told() -> None:
    assert option_text("How many.", default="8") == "How many. (default: 8)"
    assert option_text("Which.", required=True, repeatable=True) == "Which. (required; repeatable)"
    command: Any = typer.main.get_command(app)
    with command.make_context("failback", [], resilient_parsing=True) as context:
        report = command.commands["report"]
        with report.make_context("report", [], parent=context, resilient_parsing=True) as below:
            (section,) = [
                each for each in page_of(report, below).sections if each.title == "Options"
            ]
    texts = {row.name.strip(): row.text for row in section.rows}
    assert texts["--engine auto|local|spark"].endswith("(default: auto)")
    assert texts["--compare RUN"].endswith("(repeatable)")
