"""Every command that a page shows exists and takes its options; some are run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs.command_lines import Wrong, check, command_lines, exists, parse
from tests.support.docs.pages import PAGES, Block, all_blocks, blocks
from tests.support.processes.child_process import ROOT

SHELL = ("bash", "console", "sh")
COMMANDS = all_blocks(*SHELL)
_INLINE = re.compile(r"`failback ([a-z][^`]*)`")


@pytest.mark.parametrize("folder", sorted({page.parent for page in PAGES}), ids=str)
def test_commands_of_pages_parse(folder: Path) -> None:
    for page in (each for each in PAGES if each.parent == folder):
        check_page(page)


def check_page(page: Path) -> None:
    for block in blocks(page):
        if block.language in SHELL:
            found = list(command_lines(block.text))
            assert found, f"{block}: nothing to type"
            for words in found:
                check(words)
    for text in _INLINE.findall(page.read_text()):
        words = [word for word in text.split() if re.fullmatch(r"[a-z][a-zA-Z-]*", word)]
        depth = next((at for at, word in enumerate(text.split()) if word not in words), None)
        assert exists(words[:depth]), (page, text)


@pytest.mark.parametrize("block", [block for block in COMMANDS if "run" in block.words], ids=str)
def test_commands_of_a_block_run(block: Block, tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize(
    "line",
    [
        "failback nosuch",
        "failback experiment rum x.yaml",
        "failback report --engin local",
        "failback lake fsk lake",
        "failback workload consume --topic t",
        "make nosuch",
        "python -m failback.nosuch",
        "kubectl aply -f x",
        "helm instal x",
        "kubectl apply -f examples/nosuch.yaml",
        "frobnicate",
    ],
)
def test_a_command_that_is_wrong_is_found(line: str) -> None:
    (words,) = command_lines(line)
    with pytest.raises(Wrong):
        check(words)


def test_a_line_is_cut_as_a_shell_cuts_it() -> None:
    text = 'a=1 failback ps | tee x  # all\nfailback \\\n  down && cat "a b"; ls &\n'
    assert list(command_lines(text)) == [
        ["a=1", "failback", "ps"],
        ["tee", "x"],
        ["failback", "down"],
        ["cat", "a b"],
        ["ls"],
    ]
    parse(["ps"])


def test_nothing_is_installed_by_our_name_from_an_index() -> None:
    """No package index has failback: whoever takes the name there must not be installed."""
    folders = ("analytics", "broker-image", "chaos", "operator", "charts", "docs")
    files = [path for each in folders for path in (ROOT / each).rglob("*") if path.is_file()]
    files += ROOT.glob("*.md")
    texts = {path: path.read_bytes().decode(errors="replace") for path in files}
    by_name = re.compile(r"pip3? install [^\n`]*['\" ]failback\b")
    assert [path for path, text in texts.items() if by_name.search(text)] == []
