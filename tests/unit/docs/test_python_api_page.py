"""The pages about the Python API: what they show runs, and the reference leaves nothing out."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tools import api_page

from failback.analytics import api
from tests.benchmarks.analytics.synthetic import Plan, generate
from tests.support.analytics.lake_of_runs import lake_of_runs
from tests.support.docs.pages import Block, blocks
from tests.support.processes.child_process import ROOT

PAGE = ROOT / "docs" / "howto" / "python-api.md"
BLOCKS = [block for block in blocks(PAGE) if block.language == "python"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run and the lake that the page names."""
    made = tmp_path_factory.mktemp("reader")
    generate(Plan(rows=2_000, groups=2, seed=9), made / "runs" / "latest" / "handover")
    lake_of_runs(made)
    return made


@pytest.mark.few(2)
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_what_the_page_shows_runs(
    block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    exec(block.text, {})
    assert capsys.readouterr().out.strip()
    if (folder / "out").exists():
        assert (folder / "out" / "report.json").exists()
        shutil.rmtree(folder / "out")


def test_the_reference_has_every_name() -> None:
    assert api_page.named() == set(api.__all__)
