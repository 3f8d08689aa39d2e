"""Lines about a run on the terminal."""

from __future__ import annotations

import pytest

from failback.cli.shared.verdicts import say_answers


@pytest.mark.parametrize(("arm", "said"), [("stay", "stay: "), (None, "run: ")])
def test_a_run_without_an_arm_is_called_a_run(
    arm: str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reasons = [{"code": "NO_DRAIN", "detail": "the drain did not finish"}]
    row = {"arm": arm, "sentence": "It ended.", "evidence": "Evidence: incomplete"}
    say_answers(row | {"outcome_words": "no limit set", "verdict": "Fail", "reasons": reasons})
    shown = capsys.readouterr()
    lines = (shown.out + shown.err).splitlines()
    assert len(lines) == 3
    assert all(line.startswith(said) for line in lines)
