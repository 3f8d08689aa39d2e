"""Mistakes that need a cluster to be made: each has its literal answer."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli.mistakes import Mistake, make_folder, mistakes, places, run_command
from tests.support.processes.child_process import ROOT


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("mistakes")
    make_folder(made)
    state = {"XDG_STATE_HOME": str(made / "state")}
    code, said = run_command(["up", str(ROOT / "examples" / "cluster.yaml"), "-d"], made, **state)
    assert code == 0, said
    try:
        yield made
    finally:
        run_command(["down"], made, **state)


@pytest.mark.parametrize("mistake", mistakes("cluster"), ids=str)
def test_a_mistake_has_its_answer(mistake: Mistake, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        named = places(folder, taken)
        words = mistake.words(named)
        code, said = run_command(words, folder, XDG_STATE_HOME=str(folder / "state"))
        mistake.check(code, said, named)
