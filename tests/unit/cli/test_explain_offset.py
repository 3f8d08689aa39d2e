"""``failback explain-offset`` on a recorded run, and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from failback.cli.__main__ import main
from tests.support.analytics.cases import CASES


@pytest.fixture
def run(tmp_path: Path) -> Path:
    builder, _ = CASES["c2"]()
    return builder.write(tmp_path / "c2")


def test_it_tells_the_story_and_the_command(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain-offset", "g", "T", "0", "--run", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "It went down at the answer, by 3: c1 took the queue and starts at 2" in shown
    assert "Not seen: master table, master file, slave table." in shown
    assert (
        "Safe offset: 5. To set it: failback admin resetOffset --group g --topic T "
        "--broker broker-a --queue 0 --offset 5" in shown
    )


def test_a_run_of_a_lake_has_the_same_story(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ("explain-offset", "g", "T", "0", "--json", "--run")
    assert main((*ask, str(run))) == 0
    story = json.loads(capsys.readouterr().out)
    for where in (str(run), run.name):
        assert main((*ask, where, "--lake", str(run / "lake"))) == 0
        found = json.loads(capsys.readouterr().out)
        assert found.pop("source") == f"{run / 'lake'}: {where}"
        # A lake without the run's documents does not know when the run began.
        steps = [{**step, "t": 0} for step in found["steps"]]
        assert steps == [{**step, "t": 0} for step in story["steps"]]
        assert (found["safe_offset"], found["command"]) == (5, story["command"])
    assert main((*ask, "nobody", "--lake", str(run / "lake"))) == 2
    assert "has no rows of run nobody" in capsys.readouterr().err


@pytest.mark.foreign
@pytest.mark.parametrize(
    ("looked_at", "end", "safe", "named"),
    [
        (10**12, 3, 2, ["5 lies 2 beyond the end 3"]),
        (10**12, 5, 5, []),
        (0, 3, 5, []),  # the queue may have grown since
    ],
)
def test_an_offset_beyond_every_end_that_a_run_saw_is_named_and_not_recommended(
    looked_at: int,
    end: int,
    safe: int,
    named: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    builder, _ = CASES["c2"]()
    builder.rows.pop("broker_queue_sample", None)
    builder.queue_sample(looked_at, end)
    run = builder.write(tmp_path / "c2")
    assert main(["explain-offset", "g", "T", "0", "--run", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["safe_offset"] == safe
    assert [each for each in found["outside"] if each.startswith("5 ")] == named
    assert found["command"].endswith(f"--offset {safe}")


def test_a_folder_of_several_runs_says_which_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    demo = tmp_path / "demo-1"
    ask = ("explain-offset", "g", "T", "0", "--run", str(demo))
    CASES["c2"]()[0].write(demo / "stay")
    assert main(ask) == 0
    assert "Safe offset: 5" in capsys.readouterr().out
    CASES["c2"]()[0].write(demo / "handover")
    assert main(ask) == 2
    shown = capsys.readouterr().err
    assert f"{demo} has several runs; name one of {demo}/handover, {demo}/stay" in shown


@pytest.mark.parametrize("at", ["0.55", "2023-11-14T22:13:20.55"])
def test_the_story_ends_at_the_instant_asked_for(
    at: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain-offset", "g", "T", "0", "--run", str(run), "--at", at, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [step["place"] for step in found["steps"]] == [
        "answer", "commit", "commit", "broker", "broker",
    ]  # fmt: skip
    assert (found["fell_at"], found["safe_offset"]) == (None, 5)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--run"),
        (["--run", "RUN", "--live"], "--run"),
        (["--live", "--at", "5"], "--at"),
        (["--live", "--lake", "RUN"], "--lake"),
        (["--run", "RUN", "--at", "-5"], "--at: -5 s is before the run began"),
        (["--run", "RUN", "--at", "2200-01-01"], "--at: 2200-01-01 has not come yet"),
        (["--run", "RUN", "--at", "noon"], "--at"),
        (
            ["--run", "RUN", "--broker", "broker-z"],
            '"broker-z" has no queue 0 of T; it has: broker-a',
        ),
    ],
)
def test_what_is_refused(
    words: list[str], told: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(run) if word == "RUN" else word for word in words]
    assert main(["explain-offset", "g", "T", "0", *given]) == 2
    assert told in capsys.readouterr().err


def test_an_offset_needs_its_queue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["admin", "resetOffset", "-g", "g", "-t", "T", "--offset", "5"]) == 2
    assert "--offset: goes with --queue" in capsys.readouterr().err
