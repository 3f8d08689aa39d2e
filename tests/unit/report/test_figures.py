"""Figures: valid on nothing, one point and many; every coloured class has a hatch of its own."""

from __future__ import annotations

import itertools
import json
from functools import partial
from typing import Any

import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from failback.analytics.report.page.figures import bars, curves, marks, over_time, theme
from failback.analytics.report.page.figures.theme import (
    DARK,
    GROUP_COLOURS,
    GROUP_HATCHES,
    LIGHT,
    Theme,
)
from failback.analytics.report.page.html import report_figures
from failback.analytics.report.page.time_series import (
    MAX_POINTS_PER_TRACE,
    CauseTimeData,
    FaultBand,
    HeatData,
    Series,
    StaircaseData,
    TimelineData,
)
from tests.support.analytics.sample_report import sample_points, sample_report

EMPTY = Series([], [])
MANY = 1_000_000
BAND = FaultBand("f1 kill", intended_ns=10, effect_ns=20, heal_ns=None)


def series(count: int) -> Series:
    return Series(range(0, count * 1_000_000, 1_000_000), [float(n % 97) for n in range(count)])


def cause(name: str, group: str, after: int, before: int = 0, unknown: int = 0) -> dict[str, Any]:
    return {"cause": name, "report_group": group, "after_success": after,
            "before_success": before, "unknown_order": unknown}  # fmt: skip


def interval(queue: int, lo: int, hi: int, size: int, cause: str = "OVERLAP") -> dict[str, Any]:
    place = {"topic": "T", "broker": "b", "qid": queue}
    return {**place, "lo": lo, "hi": hi, "size": size, "cause": cause, "at_s": 5.0}


def bound(mechanism: str, observed: float, most: float) -> dict[str, Any]:
    return {"fid": "f1", "group": "g", "mechanism": mechanism, "observed": observed,
            "bound": most, "exceeded": observed > most}  # fmt: skip


def memory(kind: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"group": "g", "dedupe": {kind: rows}}] if rows else []


def compared(*arms: tuple[str, list[float]]) -> dict[str, Any]:
    found = [
        {"name": name, "runs": [
            {"dup": value, "produce_rto_ms": value, "consume_rto_ms": None} for value in values]}
        for name, values in arms
    ]  # fmt: skip
    return {"baseline": "stay", "arms": found, "difference": []}


def drawn_from(count: int) -> dict[str, tuple[Any, Any]]:
    """Every figure function with data of so many points, as far as its data can be so long."""
    some = min(count, 40)
    points, rows = series(count), range(some)
    seconds = [float(n) for n in rows]
    return {
        "timeline": (over_time.timeline, TimelineData({"sends": points}, points, EMPTY, [BAND])),
        "offset_staircase": (
            over_time.offset_staircase,
            StaircaseData("billing", "orders demo-0/0", {"master_table": points}, [BAND]),
        ),
        "exposure": (
            partial(over_time.exposure, faults=[BAND]), {"g on b": points} if count else {},
        ),
        "causes_over_time": (
            over_time.causes_over_time,
            CauseTimeData(seconds, {"rollback": seconds, "retry": seconds} if some else {}),
        ),
        "interval_heatmap": (
            over_time.interval_heatmap,
            HeatData(["q"] if some else [], seconds, [seconds] if some else [],
                     [("q", 0.0, 1.0)] if some else []),
        ),
        "dup_by_cause": (bars.dup_by_cause, [cause(f"c{n}", "retry", 1, 2, 3) for n in rows]),
        "interval_map": (bars.interval_map, [interval(n, 0, 9, 9) for n in rows]),
        "bound_vs_observed": (bars.bound_vs_observed, [bound(f"r{n}", n, 100.0) for n in rows]),
        "prediction_band": (
            bars.prediction_band,
            [{"fid": f"f{n}", "group": "g", "p5": 1, "p50": 2, "p95": 3, "worst": 9, "max": 9,
              "observed": n} for n in rows],
        ),
        "rto_waterfall": (
            partial(bars.rto_waterfall, "f1: back"),
            {f"p{n}": n * 10 if n % 2 else None for n in rows},
        ),
        "dedupe_seconds": (
            partial(curves.dedupe, "by_seconds"),
            memory("by_seconds", [{"window": n + 1.0, "share": n / max(some, 1)} for n in rows]),
        ),
        "dedupe_keys": (
            partial(curves.dedupe, "by_keys"),
            memory("by_keys",
                   [{"keys": n + 1, "share": n / max(some, 1), "error": 0.0} for n in rows]),
        ),
        "repeat_age": (
            curves.repeat_age,
            [{"above_s": n, "at_most_s": n + 1.0, "repeats": 3} for n in rows],
        ),
        "compare_arms": (curves.compare_arms, compared(("stay", seconds))),
    }  # fmt: skip


NAMES = sorted(drawn_from(0))


@pytest.mark.parametrize("number", [1, 9, 18, 73, 10**9 + 7])
def test_the_darkest_cell_of_a_heat_map_is_opaque(number: int) -> None:
    """Also where a rate by itself is a fraction that binary numbers round."""
    figure = over_time.interval_heatmap(HeatData(["q"], [0.0, 3.0], [[number / 3, number / 6]]))
    assert figure.data[0].marker.opacity == pytest.approx((1.0, 0.6))


@pytest.mark.few(4)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [0, 1, 40])
def test_every_figure_is_drawn_of_nothing_one_point_and_many(name: str, count: int) -> None:
    draw, data = drawn_from(count)[name]
    for theme_ in (LIGHT, DARK):
        figure = draw(data, theme=theme_)
        assert figure.layout.title.text
        assert figure.layout.paper_bgcolor == theme_.paper
        json.loads(figure.to_json())


@pytest.mark.full
@pytest.mark.parametrize("name", ["timeline", "offset_staircase", "exposure"])
def test_a_million_points_are_thinned(name: str) -> None:
    draw, data = drawn_from(MANY)[name]
    figure = draw(data)
    traces = [trace for trace in figure.data if trace.type == "scatter"]
    assert max(len(trace.x) for trace in traces) > 1_000
    assert all(len(trace.x) <= MAX_POINTS_PER_TRACE for trace in traces)


def test_thinning_keeps_the_extremes() -> None:
    spiky = Series(list(range(100_000)), [0.0] * 50_000 + [1e9] + [0.0] * 49_999)
    thin = spiky.thinned(1_000)
    assert len(thin.values) <= 1_000
    assert max(thin.values) == 1e9
    assert list(thin.times_ns) == sorted(thin.times_ns)


def test_every_report_group_has_its_own_colour_and_hatch() -> None:
    groups = list(GROUP_COLOURS)
    assert set(groups) == set(GROUP_HATCHES)
    assert len(set(GROUP_COLOURS.values())) == len(groups)
    assert len(set(GROUP_HATCHES.values())) == len(groups)


def colours_of(figure: go.Figure) -> set[str]:
    """Every colour of traces and shapes, in capitals."""
    found: set[str] = set()

    def walk(value: Any) -> None:
        if isinstance(value, str) and value.startswith(("#", "rgba")):
            found.add(value.upper())
        elif isinstance(value, dict):
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    plain = json.loads(figure.to_json())
    walk(plain["data"])
    walk(plain["layout"].get("shapes"))
    return found


def test_the_colours_of_report_groups_mean_nothing_else() -> None:
    groups = {colour.upper() for colour in GROUP_COLOURS.values()}
    of_causes = {"dup_by_cause", "causes_over_time", "interval_map"}
    for name, (draw, data) in drawn_from(5).items():
        used = colours_of(draw(data)) & groups
        assert (name in of_causes) == bool(used), name


def test_bars_of_causes_are_hatched_by_their_group() -> None:
    figure = bars.dup_by_cause([cause("ROLLBACK_SLAVE_ONLY_PROGRESS", "rollback", 40, 2)])
    assert (
        figure.layout.title.text == "42 duplicates by cause: 100.0 % ROLLBACK_SLAVE_ONLY_PROGRESS"
    )
    assert {bar.marker.pattern.shape for bar in figure.data} == {"/"}
    assert bars.dup_by_cause([]).layout.title.text == "No duplicate was delivered"


@pytest.mark.parametrize("group", list(GROUP_COLOURS))
def test_areas_of_causes_are_hatched_by_their_group(group: str) -> None:
    figure = over_time.causes_over_time(CauseTimeData([0.0, 1.0], {group: [3.0, 0.0]}))
    (area,) = figure.data
    assert area.fillpattern.shape == GROUP_HATCHES[group]
    assert area.line.width >= 2


def test_an_exceeded_bound_is_named_and_cross_hatched() -> None:
    figure = bars.bound_vs_observed([bound("row 6", 120.0, 100.0)])
    assert "exceeded" in figure.layout.title.text
    assert figure.data[0].marker.pattern.shape == "x"


def test_a_fault_that_nobody_saw_is_only_hatched() -> None:
    planned = FaultBand("f1 kill", 10, None, None, intended_end_ns=50)
    doubtful = FaultBand("f2 kill", 10, 20, 50, intended_end_ns=50, proved=False)
    figure = over_time.timeline(TimelineData({}, EMPTY, EMPTY, [planned, doubtful]))
    lanes: dict[str, list[str]] = {}
    for bar in (trace for trace in figure.data if trace.type == "bar"):
        lanes.setdefault(bar.y[0], []).append(bar.marker.pattern.shape or "")
    assert lanes == {"f1 kill": ["/"], "f2 kill": ["/", "x"]}


def test_at_most_twelve_faults_have_a_lane() -> None:
    faults = [FaultBand(f"f{n} pause", n, n + 1, n + 2) for n in range(20)]
    figure = over_time.timeline(TimelineData({}, EMPTY, EMPTY, faults))
    assert len({trace.y[0] for trace in figure.data if trace.type == "bar"}) == 12


def test_phases_never_seen_are_dashed_and_intervals_keep_their_offsets() -> None:
    waterfall = bars.rto_waterfall("f1", {"accept": 5_000_000_000, "sync": None})
    assert [bar.text[0] for bar in waterfall.data] == ["5.0 s", "not seen"]
    assert [shape.line.dash for shape in waterfall.layout.shapes] == ["dash"]
    intervals = bars.interval_map([interval(0, 100, 150, 50)])
    assert (intervals.data[0].base[0], intervals.data[0].x[0]) == (100, 50)


def test_intervals_of_one_cause_are_one_trace_and_of_many_queues_the_worst_are_drawn() -> None:
    windows = [
        interval(queue, lo, lo + 5, queue, f"C{lo % 2}") for queue in range(60) for lo in range(100)
    ]
    figure = bars.interval_map(windows)
    assert [bar.name for bar in figure.data] == ["C0", "C1"]
    assert sum(len(bar.x) for bar in figure.data) == 50 * 100
    assert list(figure.layout.yaxis.categoryarray) == [f"T b/{queue}" for queue in range(10, 60)]
    title = "6,000 re-consumed intervals in 60 queues, the 50 with the most"
    assert figure.layout.title.text == title
    some = bars.interval_map(windows[:200], 700)
    assert some.layout.title.text == "The largest 200 re-consumed intervals in 2 queues, of 900"


def test_a_comparison_shows_every_repetition_and_the_median() -> None:
    figure = curves.compare_arms(compared(("stay", [1.0, 9.0, 2.0]), ("handover", [])))
    points, median = (each for each in figure.data if each.yaxis == "y")
    assert list(points.y) == [1.0, 2.0, 9.0]
    assert list(median.y) == [2.0]


def test_names_from_outside_are_no_markup_in_figures() -> None:
    report = sample_report("<a href='http://x'>&amp;</a>" + "y" * 10_000)
    for draw in report_figures(report, sample_points("<b>&lt;")).values():
        text = json.dumps([draw(LIGHT).layout.to_plotly_json()], default=str)
        assert "<a" not in text
        assert "<b>" not in text
        assert len(draw(LIGHT).layout.title.text) <= 110


@pytest.mark.parametrize("chosen", [LIGHT, DARK])
def test_text_contrast_is_at_least_four_and_a_half(chosen: Theme) -> None:
    assert contrast(chosen.text, chosen.paper) >= 4.5
    assert contrast(chosen.of(theme.BAD), chosen.paper) >= 4.5
    assert contrast(chosen.of(theme.SLATE), chosen.paper) >= 4.5


def test_a_drawn_page_can_be_turned_dark() -> None:
    """Swapping the colours of a light figure gives the dark one: that is what the page does."""
    swapped = DARK.colours
    assert len(set(swapped.values())) == len(swapped)
    for name, (draw, data) in drawn_from(3).items():
        light = draw(data, theme=LIGHT).to_json()
        for bright, dark in swapped.items():
            light = light.replace(json.dumps(bright), json.dumps(dark))
        assert json.loads(light) == json.loads(draw(data, theme=DARK).to_json()), name


def contrast(one: str, other: str) -> float:
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


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
    rows = marks.rows(labels, window, limit)
    width = marks.LETTER_PIXELS * len(text)
    assert all(row < (limit or len(times)) for row in rows)
    assert limit is not None or -1 not in rows
    for row in set(rows) - {-1}:
        begins = [
            marks.pixels(time, window) - width * marks.is_late(time, text, window)
            for time, own in zip(times, rows, strict=True)
            if own == row
        ]
        assert all(right - left >= width for left, right in itertools.pairwise(begins))


def test_a_logarithmic_axis_shows_at_least_two_decades() -> None:
    assert theme.decades([3.0, 4.0])["range"] == [-0.1, 1.1]
    assert theme.decades([0.5, 400.0])["range"] == [-1.1, 3.1]
    assert theme.decades([])["range"] == [-0.1, 1.1]
    assert theme.decades([0.0, 10.0])["range"] == [0.9, 2.1]


def test_every_trace_is_one_that_the_basic_bundle_draws() -> None:
    for name, (draw, data) in drawn_from(3).items():
        assert {trace.type for trace in draw(data).data} <= {"bar", "scatter", "pie"}, name
