"""The last quarter of an hour: what is kept, for how long, and how it is drawn."""

from __future__ import annotations

from typing import Any

from failback.analytics.dashboard.http.rendering import sparkline
from failback.analytics.dashboard.live_history import MOST_SERIES, STEP_SECONDS, STEPS, LiveHistory


def seen(*groups: tuple[str, float | None, int | None]) -> list[dict[str, Any]]:
    rows = [{"group": name, "most": most, "lag": lag} for name, most, lag in groups]
    return [{"cluster": "c", "pairs": [{"broker": "b", "groups": rows}]}]


def kept(history: LiveHistory, at: float, **groups: tuple[float | None, int | None]) -> Any:
    clusters = seen(*((name, *values) for name, values in groups.items()))
    history.note(at, clusters)
    return {row["group"]: row["history"] for row in clusters[0]["pairs"][0]["groups"]}


def test_of_each_step_the_most_is_kept() -> None:
    history = LiveHistory()
    for at, most in ((100.0, 5), (103.0, 40), (109.0, 7), (110.0, 6)):
        found = kept(history, at, g=(most, 0))["g"]
    assert found["most"][-2:] == [40, 6]
    assert found["lag"][-2:] == [0, 0]
    assert found["most"][:-2] == [None] * (STEPS - 2)
    assert found["step_seconds"] == STEP_SECONDS


def test_what_was_not_known_is_a_gap() -> None:
    history = LiveHistory()
    kept(history, 100.0, g=(5, 1))
    found = kept(history, 130.0, g=(None, 2))["g"]
    assert found["most"][-4:] == [5, None, None, None]
    assert found["lag"][-4:] == [1, None, None, 2]


def test_it_ends_after_a_quarter_of_an_hour() -> None:
    history = LiveHistory()
    kept(history, 0.0, gone=(5, 1), g=(1, 1))
    kept(history, STEP_SECONDS * (STEPS - 1), g=(1, 1))
    assert len(history._series) == 2
    kept(history, STEP_SECONDS * STEPS, g=(2, 1))
    assert [group for *_, group in history._series] == ["g"]
    kept(history, 1e9, g=(3, 1))
    assert len(history._series) == 1


def test_a_thousand_groups_and_more_take_no_more_memory_than_a_thousand() -> None:
    history = LiveHistory()
    many = {f"g{number}": (1, 1) for number in range(MOST_SERIES + 50)}
    found = kept(history, 100.0, **many)
    assert len(found) == MOST_SERIES + 50, "each has what was seen now"
    assert len(history._series) == MOST_SERIES
    size = sum(
        values.itemsize * len(values)
        for series in history._series.values()
        for values in series.values()
    )
    assert size < 3 << 20


def test_a_clock_that_was_set_back_loses_nothing() -> None:
    history = LiveHistory()
    kept(history, 1000.0, g=(5, 1))
    assert kept(history, 900.0, g=(7, 1))["g"]["most"][-1] == 7


def test_a_line_says_in_words_what_it_shows() -> None:
    drawn = sparkline([None, 10.0, 1200.0, None, 30.0], 'Lag of <"g">')
    assert (
        'aria-label="Lag of &lt;&#34;g&#34;&gt;, last 15 minutes: now 30, at most 1,200"' in drawn
    )
    assert drawn.count("<polyline") == 2, "a gap is no line"
    assert "from now on" in sparkline([None, 3.0], "Lag")
    assert "<polyline" in sparkline([0.0, 0.0], "Lag")
