"""Figures: valid on nothing, one point and many; every coloured class has a hatch of its own."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.analytics import figures
from failback.analytics.figures import (
    BoundData,
    CauseData,
    FaultBand,
    IntervalData,
    Series,
    StaircaseData,
    TimelineData,
    WaterfallData,
)

pytestmark = pytest.mark.unit

EMPTY = Series([], [])


def series(count: int) -> Series:
    return Series([n * 1_000_000 for n in range(count)], [float(n % 97) for n in range(count)])


@pytest.mark.parametrize("count", [0, 1, 100_000])
def test_timeline_and_staircase_draw_any_number_of_points(count: int) -> None:
    points = series(count)
    band = FaultBand("f1 kill", intended_ns=10, effect_ns=20, heal_ns=None)
    timeline = figures.timeline(TimelineData({"sends": points}, points, EMPTY, [band]))
    staircase = figures.offset_staircase(
        StaircaseData("billing", "orders demo-0/0", {"master_table": points}, [band])
    )
    for figure in (timeline, staircase):
        drawn = [trace for trace in figure.data if trace.x is not None]
        assert all(len(trace.x) <= figures.MAX_POINTS_PER_TRACE for trace in drawn)
        assert figure.layout.title.text


def test_thinning_keeps_the_extremes() -> None:
    spiky = Series(list(range(100_000)), [0.0] * 50_000 + [1e9] + [0.0] * 49_999)
    thin = spiky.thinned(1_000)
    assert len(thin.values) <= 1_000
    assert max(thin.values) == 1e9
    assert list(thin.times_ns) == sorted(thin.times_ns)


def test_every_report_group_has_its_own_colour_and_hatch() -> None:
    groups = list(figures.GROUP_COLOURS)
    assert set(groups) == set(figures.GROUP_HATCHES)
    assert len(set(figures.GROUP_COLOURS.values())) == len(groups)
    assert len(set(figures.GROUP_HATCHES.values())) == len(groups)


def test_causes_title_counts_and_hatches() -> None:
    figure = figures.dup_by_cause(
        CauseData([("ROLLBACK_SLAVE_ONLY_PROGRESS", "rollback", 40, 2, 0)])
    )
    assert figure.layout.title.text == "42 duplicates by cause"
    assert {bar.marker.pattern.shape for bar in figure.data} == {"/"}
    assert figures.dup_by_cause(CauseData([])).layout.title.text == "No duplicate was delivered"


def test_an_exceeded_bound_is_named_and_cross_hatched() -> None:
    figure = figures.bound_vs_observed(BoundData([("f1 g: row 6", 120.0, 100.0, True)]))
    assert "exceeded" in figure.layout.title.text
    assert figure.data[0].marker.pattern.shape == "x"


def test_phases_never_seen_are_dashed_and_intervals_keep_their_offsets() -> None:
    waterfall = figures.rto_waterfall(
        WaterfallData("f1", [("accept", 5_000_000_000), ("sync", None)])
    )
    assert [bar.text[0] for bar in waterfall.data] == ["5.0 s", "not seen"]
    intervals = figures.interval_map(
        IntervalData([("orders demo-0/0", 100, 150, 50, "OVERLAP", "rebalance", 0)])
    )
    assert (intervals.data[0].base[0], intervals.data[0].x[0]) == (100, 50)


@pytest.mark.parametrize("theme", [figures.LIGHT, figures.DARK])
def test_text_contrast_is_at_least_four_and_a_half(theme: figures.Theme) -> None:
    bright, dark = sorted((luminance(theme.text), luminance(theme.paper)), reverse=True)
    assert (bright + 0.05) / (dark + 0.05) >= 4.5


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@given(
    times=st.lists(st.integers(0, 10_000), max_size=30).map(sorted),
    text=st.text("abcdefghij", min_size=1, max_size=30),
    limit=st.one_of(st.none(), st.integers(1, 6)),
)
def test_labels_of_one_row_lie_apart(times: list[int], text: str, limit: int | None) -> None:
    window = (0, 10_000)
    labels = [(time, text) for time in times]
    rows = figures._rows(labels, window, limit)
    width = figures._LETTER_PIXELS * len(text)
    assert all(row < (limit or len(times)) for row in rows)
    assert limit is not None or -1 not in rows
    for row in set(rows) - {-1}:
        begins = [
            figures._pixels(time, window) - width * figures._is_late(time, text, window)
            for time, own in zip(times, rows, strict=True)
            if own == row
        ]
        assert all(right - left >= width for left, right in itertools.pairwise(begins))


def test_a_logarithmic_axis_shows_at_least_two_decades() -> None:
    assert figures._decades([3.0, 4.0])["range"] == [-0.1, 1.1]
    assert figures._decades([0.5, 400.0])["range"] == [-1.1, 3.1]
    assert figures._decades([])["range"] == [-0.1, 1.1]
    assert figures._decades([0.0, 10.0])["range"] == [0.9, 2.1]
