"""Command lines of pages: cut as a shell would cut them, and parsed as far as they go unrun."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from typing import Any

import typer

from failback.cli.app import app
from failback.cli.kubectl.__main__ import app as plugin
from failback.cli.light_commands import parser_of
from tests.support.processes.child_process import ROOT

PLAIN = frozenset(
    {
        "[",
        "cat",
        "cd",
        "chaos",
        "code",
        "cp",
        "curl",
        "df",
        "docker",
        "done",
        "exit",
        "export",
        "grep",
    }
    | {"jq", "kill", "kind", "kubectl", "helm", "ls", "mqadmin", "pip", "python3", "sed", "source"}
    | {"spark-submit", "tee", "wait", "xargs"}
)
"""Commands that are not ours."""
KUBECTL = frozenset(
    {"annotate", "apply", "cp", "create", "delete", "describe", "explain", "get", "label", "logs"}
    | {"patch", "port-forward", "rollout", "wait"}
)
HELM = frozenset({"install", "uninstall", "upgrade"})
_SHELL_WORDS = frozenset({"do", "for", "then", "fi", "if"})
_ENDS = frozenset({"|", "||", "&&", "&", ";"})
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
_TARGETS = re.compile(r"^([a-z][a-z-]*)(?:[a-z -]*):", re.MULTILINE)


class Wrong(AssertionError):
    """A command line that would not do what the page says."""


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the words of every simple command in a block."""
    for line in text.replace("\\\n", " ").splitlines():
        line = line.removeprefix("$ ")
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words: list[str] = []
        for word in [*lexer, ";"]:
            if word in _ENDS:
                if words:
                    yield words
                words = []
            else:
                words.append(word)


def check(words: list[str]) -> None:
    """Raise ``Wrong`` if a command is unknown or does not take its words."""
    while words and (words[0] in _SHELL_WORDS or re.match(r"^\w+=", words[0])):
        if words[0] == "for":
            return
        words = words[1:]
    words = _without_redirection(words)
    if not words:
        return
    for word in words:
        if re.match(r"^(examples|charts|docs)/", word) and not (ROOT / word).exists():
            raise Wrong(f"{word} is not there")
    name = words[0].rpartition("/")[2]
    match name:
        case "failback":
            parse(words[1:])
        case "make":
            _check_make(words[1:])
        case "python" | "python3" if words[1:2] == ["-m"]:
            if find_spec(words[2]) is None:
                raise Wrong(f"no module {words[2]}")
        case "kubectl" if words[1:2] == ["failback"]:
            _check_plugin(words[2:])
        case "kubectl" if not KUBECTL & set(words):
            raise Wrong(f"kubectl does not know {words[1]}")
        case "helm" if words[1] not in HELM:
            raise Wrong(f"helm does not know {words[1]}")
        case _ if name not in PLAIN | {"python"}:
            raise Wrong(f"no page should need {name}")


def _check_plugin(words: list[str]) -> None:
    """Raise ``Wrong`` unless the plugin has the command and takes its words."""
    _parse(typer.main.get_command(plugin), "kubectl failback", words)


def _without_redirection(words: list[str]) -> list[str]:
    for at, word in enumerate(words):
        if word in ("<", ">", ">>"):
            return words[: at - 1] if words[at - 1 : at] == ["2"] else words[:at]
    return words


def _check_make(words: list[str]) -> None:
    targets = set(_TARGETS.findall((ROOT / "Makefile").read_text()))
    targets |= {"test-unit", "test-kube", "bench-broker", "bench-causes", "bench-predictor"}
    for word in words:
        if not re.match(r"^[A-Z]+=", word) and word not in targets:
            raise Wrong(f"make has no target {word}")


@cache
def _root() -> Any:
    return typer.main.get_command(app)


def exists(words: list[str]) -> bool:
    """Whether words, up to the first argument, lead to a command."""
    if parser_of(words[:2]) is not None or words[:1] == ["tools"]:
        return True
    command = _root()
    for word in words:
        children = getattr(command, "commands", None)
        if children is None or parser_of(words[:1]) is not None:
            return True
        if word not in children:
            return False
        command = children[word]
    return True


def parse(words: list[str]) -> None:
    """Parse one of our command lines as far as it goes without running it."""
    # Variables stand for numbers and for texts; a number is both.
    words = ["7" if re.fullmatch(r"\$\w+", word) else word for word in words]
    if (light := parser_of(words[:1])) is not None:
        try:
            light.parse_args(words[1:])
        except (SystemExit, Exception) as error:
            if not (isinstance(error, SystemExit) and not error.code):
                raise Wrong(f"failback {' '.join(words)}: {error}") from None
        return
    if words not in (["--version"], ["--help"]):
        _parse(_root(), "failback", words)


def _parse(command: Any, name: str, words: list[str]) -> None:
    while (children := getattr(command, "commands", None)) is not None:
        if not words:
            raise Wrong("a group is no command")
        if words[0] not in children:
            if getattr(command, "invoke_without_command", False):
                break
            raise Wrong(f"no command {words[0]}")
        command, words = children[words[0]], words[1:]
    try:
        command.make_context(name, list(words))
    except typer.Exit:
        return
    except _USAGE_ERROR as error:
        raise Wrong(f"{command.name} {' '.join(words)}: {error}") from None
