"""Lines about a run on the terminal."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from failback.cli.shared import output
from failback.cli.shared.output import print_table
from failback.cli.shared.verdicts import say_answers


@pytest.mark.parametrize(("arm", "said"), [("stay", "stay: "), (None, "upgrade-7: ")])
def test_a_run_without_an_arm_goes_by_its_own_name(
    arm: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = [{"code": "NO_DRAIN", "detail": "the drain did not finish"}]
    row = {
        "run": "upgrade-7",
        "arm": arm,
        "sentence": "It ended.",
        "evidence": "Evidence: incomplete",
    }
    say_answers(row | {"outcome_words": "no limit set", "verdict": "Fail", "reasons": reasons})
    shown = capsys.readouterr()
    lines = (shown.out + shown.err).splitlines()
    assert len(lines) == 3
    assert all(line.startswith(said) for line in lines)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_no_name_is_cut_on_a_terminal(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=columns, soft_wrap=True)
    monkeypatch.setattr(output, "console", terminal)
    names = [f"demo-20261128-1419{number:02}/handover" for number in range(3)]
    rows = [(name, "2026-11-28T14:19:12Z", "212 to 291", None) for name in names]
    print_table(("RUN", "STARTED", "RE-CONSUMED", "SHARE"), rows)
    shown = screen.getvalue()
    assert "…" not in shown
    assert all(name in shown for name in names)
    assert shown.count("212 to 291") == 3
    assert ("RE-CONSUMED  212 to 291" in shown) == (columns < 80 or "│" not in shown)
