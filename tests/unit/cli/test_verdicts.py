"""Lines about a run on the terminal."""

from __future__ import annotations

import pytest

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
