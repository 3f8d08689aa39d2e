"""How a group was loaded before a kill, however short the timers are."""

from __future__ import annotations

from pathlib import Path

import pytest

from failback.analytics.report.measures.bounds import bound_figures
from failback.analytics.report.measures.load_before import measured_settings
from failback.analytics.report.measures.lookups import Figures
from failback.protocol.errors import ConfigError
from tests.support.analytics.run_analysis import analysed
from tests.support.analytics.run_builder import MS, RunBuilder

PER_SECOND = 100


def killed(tmp_path: Path, *, at_ms: float, begun_ms: float, scale: float) -> Figures:
    """A group that consumes a hundred a second from ``begun_ms`` until the kill, and after it."""
    b = RunBuilder("loaded")
    b.run |= {"time_scale": scale, "warmup_end_ns": -400 * MS}
    b.assign(begun_ms, 0)
    b.run_of(range(round((at_ms + 400 - begun_ms) / 10)), begun_ms)
    b.fault("KILL", at_ms)
    b.fault("ACCEPT", at_ms + 5000)
    b.write(tmp_path / "run")
    return Figures(analysed(tmp_path / "run"))


@pytest.mark.parametrize(
    ("at_ms", "begun_ms", "scale"),
    [
        (600, -2350, 0.1),  # failback demo --quick
        (600, -1400, 0.1),
        (300, -1400, 0.05),
        (990, -9000, 0.3),
        (6000, -12000, 1.0),
        (45000, -12000, 1.0),
        (0, -2500, 0.1),
    ],
)
def test_the_rate_before_a_kill_is_the_group_s(
    tmp_path: Path, at_ms: float, begun_ms: float, scale: float
) -> None:
    figures = killed(tmp_path, at_ms=at_ms, begun_ms=begun_ms, scale=scale)
    assert measured_settings(figures, 0, "g").rate == pytest.approx(PER_SECOND, rel=0.01)


def test_a_group_that_began_less_than_a_second_before_the_kill_is_measured_too(
    tmp_path: Path,
) -> None:
    figures = killed(tmp_path, at_ms=600, begun_ms=-900, scale=0.1)
    assert 0.8 * PER_SECOND < measured_settings(figures, 0, "g").rate <= PER_SECOND


def test_a_group_that_consumed_nothing_before_the_kill_is_not_guessed(tmp_path: Path) -> None:
    figures = killed(tmp_path, at_ms=600, begun_ms=700, scale=0.1)
    with pytest.raises(ConfigError, match="consumed nothing from the pair before the kill"):
        measured_settings(figures, 0, "g")


@pytest.mark.parametrize(("copies", "mechanism"), [(None, "rows 5"), (False, "rows 10")])
def test_a_start_on_a_slave_that_copies_no_offsets_is_bounded_by_all_that_was_consumed(
    tmp_path: Path, copies: bool | None, mechanism: str
) -> None:
    b = RunBuilder("empty-slave")
    b.run["system"]["slave_copies_offsets"] = copies
    b.assign(0, 0, end=(90_500, "SHUTDOWN"))
    b.run_of(range(9000), 0)
    b.fault("KILL", 90_000)
    b.assign(91_000, 0, proc=2, at=(1, 1))
    b.run_of(range(9000), 91_100, proc=2)
    b.fault("ACCEPT", 190_000)
    b.write(tmp_path / "run")
    (found,) = bound_figures(Figures(analysed(tmp_path / "run")))
    assert (found["mechanism"], found["observed"]) == (mechanism, 9000)
    assert found["exceeded"] == (copies is None)
    assert copies is None or found["bound"] == 9000
