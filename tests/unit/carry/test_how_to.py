"""The page *Prevent it*, followed word for word: unit files, wrapper, and the steps by hand.

Its placeholders are an installation, a master's folder and a slave of the test.
"""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.carry.stopped_master import AnsweringSlave, StoppedMaster, at
from tests.support.docs.pages import blocks
from tests.support.processes.child_process import ROOT

PAGE = ROOT / "docs" / "howto" / "prevent-it.md"
BIN = Path(sys.executable).parent
BROKER = '#!/bin/sh\necho "$$ $*"\nexit 7\n'


class Exec(NamedTuple):
    """A command of a unit file, as systemd.service(5) reads it."""

    words: list[str]
    may_fail: bool


def commands_of_units(option: str) -> list[Exec]:
    """Return what systemd runs for ``option`` in the unit files of the page.

    A ``-`` in front makes a failure count for nothing. Words are parted as a shell does, without
    its variables; the program is an absolute path.
    """
    text = "".join(block.text for block in blocks(PAGE) if block.language == "ini")
    found = []
    for line in re.findall(rf"^{option}=(.*)$", text, re.MULTILINE):
        command = line.lstrip("@-:+!")
        assert not re.search(r"[%$\\;]", command), "systemd reads these in a way of its own"
        words = shlex.split(command)
        assert words[0].startswith("/"), f"{line}: no absolute path"
        found.append(Exec(words, "-" in line.removesuffix(command)))
    return found


def block_after(heading: str, language: str, number: int = 0) -> str:
    """Return a block of the section under ``heading``."""
    lines = PAGE.read_text().splitlines()
    first = lines.index(f"## {heading}") + 1
    end = next((at for at in range(first, len(lines)) if lines[at].startswith("## ")), len(lines))
    found = [
        block.text
        for block in blocks(PAGE)
        if first <= block.line <= end and block.language == language
    ]
    return found[number]


def here(text: str, master: StoppedMaster, slave: AnsweringSlave | None) -> str:
    """Put what the test has in the place of the page's placeholders."""
    address = slave.address if slave else "127.0.0.1:1"
    text = re.sub(r"\S*/broker\.conf", str(master.conf), text)
    text = re.sub(r"(10\.0\.0\.12|broker-a-slave|127\.0\.0\.1):10911", address, text)
    return text.replace("/opt/failback/bin/", f"{BIN}/")


def run(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        env={"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("answers", [True, False])
def test_the_line_of_the_unit_file_carries_and_lets_the_master_start(
    master: StoppedMaster, slave: AnsweringSlave, answers: bool
) -> None:
    (line,) = commands_of_units("ExecStartPre")
    assert not line.may_fail, "a broker that runs on the store must keep the unit down"
    words = [here(word, master, slave if answers else None) for word in line.words]
    done = run(words, master.folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("carry: "), "the line in the journal"
    assert master.loads == at(50 if answers else 10)


def test_the_unit_file_serves_a_slave_too(master: StoppedMaster, slave: AnsweringSlave) -> None:
    text = master.conf.read_text()
    master.conf.write_text(
        text.replace("brokerId=0", "brokerId=1").replace("ASYNC_MASTER", "SLAVE")
    )
    (line,) = commands_of_units("ExecStartPre")
    done = run([here(word, master, slave) for word in line.words], master.folder)
    assert (done.returncode, master.loads) == (0, at(10))


def test_the_unit_of_the_keeper_runs_until_it_is_stopped(
    master: StoppedMaster, slave: AnsweringSlave
) -> None:
    (line,) = (each for each in commands_of_units("ExecStart") if "--keep" in each.words)
    words = [here(word, master, slave) for word in line.words]
    keeper = subprocess.Popen(words, env={}, stderr=subprocess.PIPE, text=True)
    try:
        assert keeper.stderr is not None
        assert slave.address in keeper.stderr.readline()
        keeper.send_signal(signal.SIGTERM)  # what systemd sends to stop a unit
        assert keeper.wait(30) == 0
    finally:
        keeper.kill()
        keeper.communicate()


@pytest.mark.parametrize("language", ["bash", "dockerfile"])
def test_a_wrapper_carries_and_becomes_the_broker(
    master: StoppedMaster, slave: AnsweringSlave, language: str
) -> None:
    text = block_after("A wrapper, Docker", language)
    if language == "dockerfile":
        array = text.removeprefix("ENTRYPOINT").replace("\\\n", "")
        words = [here(word, master, slave) for word in json.loads(array)]
    else:
        words = shlex.split(here(text, master, slave))
    (master.folder / "mqbroker").write_text(BROKER)
    done = run(words, master.folder)
    assert done.returncode == 7, "the exit code of the broker"
    assert done.stdout.splitlines()[-1].endswith(f" -c {master.conf}")
    assert master.loads == at(50)


def test_the_steps_by_hand_carry_and_can_be_taken_back(
    master: StoppedMaster, slave: AnsweringSlave
) -> None:
    section = "By hand, in an incident"
    dry, carry = here(block_after(section, "bash"), master, slave).splitlines()
    undo = here(block_after(section, "bash", -1), master, slave)
    for command, loaded in ((dry, at(10)), (carry, at(50)), (undo, at(10))):
        done = run(["bash", "-euc", command], master.folder)
        assert (done.returncode, master.loads) == (0, loaded), done.stderr
