"""A browser that prefers Chinese reads the report's and the banner's sentences in it."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, Route

from failback.analytics.dashboard.http.rendering import static_file
from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import DashboardSettings
from failback.analytics.report.make_report import report
from failback.analytics.report.page.html import render_html
from tests.support.analytics.sample_report import compared_report, sample_points
from tests.support.dashboard.asgi import ask
from tests.support.dashboard.pairs import CLUSTER, MASTER, NOW, SLAVE, seen, world
from tests.support.observe.folders import written
from tests.support.observe.outages import at_work, come_back, serve, take_over

CHINESE: Final = "zh-CN"
_ENGLISH_LEFT: Final = """(selector) => Array.from(document.querySelectorAll(selector))
  .filter((each) => !each.closest("code, bdi, svg, script, style, .figure"))
  .map((each) => Array.from(each.childNodes).filter((node) => node.nodeType === 3)
                 .map((node) => node.data).join(" ").replace(/\\s+/g, " ").trim())
  .filter((text) => /[A-Za-z]+ [a-z]+ [a-z]+/.test(text))"""
"""Texts with three English words in a row, which no command and no name is."""


@pytest.fixture(scope="module")
def banners(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The same page thrice: a slave is ahead of a master that is back, further, and of none."""
    app, _ = make_app(DashboardSettings(tmp_path_factory.mktemp("runs")), [], lambda _: None)
    poller = app.state.shared.poller
    bodies = []
    for slave, problem in ((250, ""), (260, ""), (260, "refused")):
        found = world(seen(MASTER, 210, file=210, up=10, problem=problem), seen(SLAVE, slave))
        poller.state = replace(poller.state, at=NOW, clusters=(CLUSTER,), seen=found)
        poller.history.note(NOW, poller.state.cluster_documents())
        with ThreadPoolExecutor(1) as pool:  # this thread has the browser's event loop
            bodies.append(pool.submit(ask, app, "/offsets", accept="text/html").result()[1])
    return bodies


def opened(browser: Browser, file: Path, locale: str) -> Page:
    page = browser.new_context(locale=locale, offline=True).new_page()
    page.goto(file.as_uri())
    return page


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Reports of a group that came back after the master, and of one that has not yet."""
    pages = []
    for is_back in (True, False):
        story = at_work()
        serve(story, 1500)
        come_back(story, 900)
        if is_back:
            take_over(story, 1600)
        run = written(story, tmp_path_factory.mktemp("observed") / "run")
        report(run)
        pages.append(run / "report" / "report.html")
    return pages


def test_an_observed_report_answers_in_chinese(browser: Browser, observed: list[Path]) -> None:
    for file in observed:
        page = opened(browser, file, CHINESE)
        left = page.evaluate(_ENGLISH_LEFT, "main > section *")
        assert left == [], f"no entry in chinese.js: {left}"
        assert page.locator("#answer .sentence").get_attribute("lang") == CHINESE
        page.context.close()


def test_a_report_of_the_demo_answers_in_chinese(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_html(compared_report(), sample_points()))
    page = opened(browser, file, CHINESE)
    left = page.evaluate(_ENGLISH_LEFT, "#answer .sentence, #answer .badges *, nav *, main h2")
    assert left == []
    assert not re.search("[a-z]{3}", page.locator(".badges").inner_text())
    names = page.locator("#groups bdi").all_inner_texts()
    page.context.close()
    page = opened(browser, file, "en-GB")
    assert names == page.locator("#groups bdi").all_inner_texts(), "names stay"
    assert not re.search("[\u4e00-\u9fff]", page.locator("body").inner_text())
    page.context.close()


@pytest.mark.parametrize("locale", [CHINESE, "en-GB"])
def test_the_banner_is_chinese_and_stays_so_when_the_page_is_refreshed(
    browser: Browser, banners: list[str], locale: str
) -> None:
    bodies = list(banners)

    def answer(route: Route) -> None:
        path = route.request.url.partition(".test")[2]
        if path.startswith("/static/"):
            name = path.rpartition("/")[2]
            kind = "text/css" if name.endswith("css") else "text/javascript"
            route.fulfill(body=static_file(name), content_type=f"{kind}; charset=utf-8")
        elif path == "/offsets":
            route.fulfill(body=bodies[0], content_type="text/html; charset=utf-8")
        else:
            route.abort()

    page = browser.new_context(locale=locale).new_page()
    page.route("**/*", answer)
    page.goto("http://dashboard.test/offsets")
    while bodies:
        said = page.locator(".alert").inner_text()
        left = page.evaluate(_ENGLISH_LEFT, ".alert *")
        assert (left == []) == (locale == CHINESE), left or said
        assert "failback offsets restore" in said
        bodies.pop(0)
        if bodies:
            page.evaluate("refreshing = false; refresh()")
            page.wait_for_function(
                f"document.querySelector('.alert').innerText !== {json.dumps(said)}"
            )
    page.context.close()
