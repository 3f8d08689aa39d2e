"""``report.html`` in Chromium without a network: drawn, readable, sortable, no error."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser

from failback.analytics.report.page.html import render_html
from tests.e2e import report_kinds
from tests.support.analytics.sample_report import compared_report, sample_points, sample_report
from tests.support.dashboard.browser import (
    check_page,
    dead_buttons,
    offline_page,
    picture_of,
    undrawn,
    unfold,
)

WIDTHS = (1280, 390)
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def sample(folder: Path) -> Path:
    """The page with each figure."""
    file = folder / "report.html"
    file.write_text(render_html(compared_report(), sample_points()))
    return file


@pytest.mark.parametrize("make", [sample, *report_kinds.KINDS], ids=lambda make: make.__name__)
def test_each_kind_of_report_is_drawn_and_its_buttons_work(
    browser: Browser, make: Callable[[Path], Path], tmp_path: Path
) -> None:
    file = make(tmp_path)
    assert file.stat().st_size < 1_500_000
    for width in WIDTHS:
        with offline_page(browser, file, width=width) as opened:
            for scheme in SCHEMES:
                opened.page.emulate_media(color_scheme=scheme)
                picture = picture_of(f"report-{make.__name__}-{width}-{scheme}", tmp_path)
                check_page(opened, file, picture)
                dark = opened.evaluate("document.documentElement.classList.contains('dark')")
                assert dark == (scheme == "dark")
            assert opened.page.locator(".figure:not([aria-label])").count() == 0
        with offline_page(browser, file, width=width) as opened:
            assert dead_buttons(opened) == []
            assert opened.problems == []


def test_the_sample_report_has_each_figure(browser: Browser, tmp_path: Path) -> None:
    with offline_page(browser, sample(tmp_path)) as opened:
        names = [each.get_attribute("id") for each in opened.page.locator(".figure").all()]
        wanted = (
            "staircase-0 compare timeline causes-time heatmap intervals"
            " prediction exposure dedupe-seconds dedupe-keys repeat-age"
        )
        assert names == [f"figure-{name}" for name in wanted.split()]
        said = opened.page.locator(".badges").inner_text()
        assert said.split("\n")[-1] == "Re-consumed 4.0 %: no limit set"


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing_folded_or_open(
    browser: Browser, width: int, scheme: Literal["light", "dark"], tmp_path: Path
) -> None:
    file = tmp_path / "report.html"
    report = compared_report()
    report["source"]["time_scale"] = 0.1
    report["verdict"]["reasons"] = [{"code": "NO_DRAIN", "detail": "the drain did not finish"}]
    report["outcome"] = {"limit": "duplicates at most 3", "met": False}
    page = render_html(report, sample_points())
    # The policy of the page forbids what axe adds to it.
    file.write_text(re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", page))
    with offline_page(browser, file, width=width) as opened:
        opened.page.emulate_media(color_scheme=scheme)
        for state in ("folded", "open"):
            if state == "open":
                unfold(opened)
            found = Axe().run(opened.page).response["violations"]
            assert [(each["id"], each["nodes"][0]["html"]) for each in found] == [], state


def test_a_page_is_short_and_drawn_in_a_second(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_html(compared_report(), sample_points()))
    with offline_page(browser, file, width=1440) as opened:
        assert opened.evaluate("document.documentElement.scrollHeight") <= 4_000
        took = opened.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
        print(f"loaded and drawn after {took:.0f} ms")


def test_paper_has_every_part_and_no_plot_that_is_cut(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_html(compared_report(), sample_points()))
    with offline_page(browser, file, width=720) as opened:
        opened.page.emulate_media(media="print", color_scheme="dark")
        opened.evaluate("dispatchEvent(new Event('beforeprint'))")
        for scheme in ("light", "dark"):  # a browser that prints may change it
            opened.page.emulate_media(media="print", color_scheme=scheme)
            opened.page.wait_for_timeout(100)
        check_page(opened, file, tmp_path / "paper.png")
        assert opened.page.locator("details:not([open])").count() == 0
        assert opened.evaluate("document.documentElement.className") == "", "ink on white"
        opened.evaluate("dispatchEvent(new Event('afterprint'))")
        assert opened.evaluate("document.documentElement.className") == "dark"
        assert opened.page.locator("details[open]").count() == 0


def test_a_word_that_is_linked_to_is_unfolded(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_html(sample_report(), sample_points()))
    with offline_page(browser, file) as opened:
        opened.page.locator('.tiles a[href="#word-ratio"]').click()
        opened.page.locator("#word-ratio dd").wait_for(state="visible")
        assert opened.problems == []


def test_the_page_turns_dark_and_back(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_html(sample_report(), sample_points()))
    with offline_page(browser, file) as opened:
        colours = []
        paper = (
            "getComputedStyle(document.querySelector('#figure-staircase-0 .main-svg')).background"
        )
        for _ in range(3):
            opened.page.locator("#figure-staircase-0 svg.main-svg").first.wait_for(state="visible")
            colours.append((opened.evaluate("document.body.ownerDocument.documentElement.className"),
                            opened.evaluate(paper)))  # fmt: skip
            opened.page.locator("#theme").click()
        assert [name for name, _ in colours] == ["", "dark", ""]
        assert colours[0][1] == colours[2][1] != colours[1][1]
        assert opened.problems == []


def test_neighbouring_faults_events_and_drops_stay_readable(
    browser: Browser, tmp_path: Path
) -> None:
    report, second = sample_report(), 1_000_000_000
    report["faults"] = [
        report["faults"][0] | {"fid": f"f{n}", "effect_ns": 30 * second + n * second // 5}
        for n in range(4)
    ]
    report["offset_drops"] = [
        report["offset_drops"][0] | {"t_ns": 90 * second + n * second // 5, "to": 210 - n}
        for n in range(4)
    ]
    points = sample_points()
    events = [
        points[-1]._replace(t_ns=(33 + n) * second, label=f"slave serves again {n}")
        for n in range(12)
    ]
    file = tmp_path / "report.html"
    file.write_text(render_html(report, [*points, *events]))
    with offline_page(browser, file) as opened:
        check_page(opened, file, tmp_path / "report.png")
        text = opened.page.locator("body").text_content() or ""
        assert all(f"slave serves again {n}" in text for n in range(12)), "the table has them all"


def test_a_click_on_a_head_sorts_the_table_and_another_turns_it(
    browser: Browser, tmp_path: Path
) -> None:
    report = sample_report()
    report["evidence"]["rows"] = {"deliver": 1040, "produce": 990, "pull": 12}
    report["checks"] = [
        report["checks"][0] | {"title": title, "observed": observed}
        for title, observed in (("b", 1_000), ("a", 200), ("c", 30))
    ]
    file = tmp_path / "report.html"
    file.write_text(render_html(report, sample_points()))
    with offline_page(browser, file) as opened:
        table = opened.page.locator("table.sortable", has_text="Checks, those")

        def column(index: int) -> list[str]:
            return table.locator(f"tbody tr td:nth-child({index})").all_inner_texts()

        opened.page.locator("summary", has_text="All checks").click()
        assert column(1) == ["b", "a", "c"]
        table.locator("th button", has_text="check").click()
        assert column(1) == ["a", "b", "c"]
        table.locator("th button", has_text="check").click()
        assert column(1) == ["c", "b", "a"]
        table.locator("th button", has_text="observed").click()
        assert column(4) == ["30", "200", "1,000"], "as numbers, not as text"
        assert opened.problems == []


def test_a_broken_page_is_found_out(browser: Browser, tmp_path: Path) -> None:
    """The checks of this module can fail: each of these is seen."""
    file = tmp_path / "report.html"
    page = render_html(sample_report(), sample_points())

    def found(old: str, new: str) -> list[str]:
        assert old in page
        file.write_text(page.replace(old, new))
        with offline_page(browser, file) as opened:
            opened.page.wait_for_timeout(100)
            unfold(opened)
            return [*opened.problems, *dead_buttons(opened), *undrawn(opened)]

    assert found("</body>", "</body>") == []
    assert any(
        "nobody is not defined" in each
        for each in found("</body>", "<script>nobody.knows()</script></body>")
    )
    assert found("</body>", '<img src="http://192.0.2.1/x.png"></body>'), "the policy forbids it"
    assert found("</body>", "<button>Nothing</button></body>") == ["Nothing (button) does nothing"]
    assert found('id="figure-heatmap"', "")[0] == "figure heatmap has no place"
    assert found('href="#groups"', 'href="#group"') == ["Groups: #group is nowhere"]
