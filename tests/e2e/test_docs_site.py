"""The site of the pages, opened from its files: nothing to scroll for, nothing from a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, expect
from tools.build_docs import build

WIDTHS = (1440, 390)
_TOO_WIDE = """
() => {
  const wide = document.documentElement.clientWidth, problems = [];
  if (document.scrollingElement.scrollWidth > wide) problems.push("the page");
  for (const each of document.querySelectorAll(".md-content pre, .md-content table, .md-content td,"
       + " .md-content .md-typeset__scrollwrap, .md-content .highlight, .md-content img")) {
    if (each.offsetParent === null) continue;
    const outside = each.getBoundingClientRect().right > wide + 1;
    if (outside || each.scrollWidth > each.clientWidth + 1)
      problems.push(`${each.tagName}: ${each.textContent.trim().slice(0, 60)}`);
  }
  return problems;
}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    assert build(folder) == 0
    return folder


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_has_to_be_scrolled_for(site: Path, browser: Browser, width: int) -> None:
    # Without scripts, which would load the index of the search for every page.
    context = browser.new_context(
        viewport={"width": width, "height": 900}, offline=True, java_script_enabled=False
    )
    page = context.new_page()
    problems = {}
    for file in sorted(site.rglob("*.html")):
        page.goto(file.as_uri())
        if found := page.evaluate(_TOO_WIDE):
            problems[str(file.relative_to(site))] = found
    context.close()
    assert problems == {}


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nobody_is_kept_out(site: Path, browser: Browser, width: int, scheme: str) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        offline=True,
        color_scheme="light" if scheme == "light" else "dark",
    )
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in ("index.html", "howto/incident.html", "explanation/failure-modes.html"):
        page.goto((site / name).as_uri())
        found = Axe().run(page, context=".md-content").response["violations"]
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        assert [(each["id"], each["nodes"][0]["html"][:200]) for each in serious] == []
    assert page.evaluate(_TOO_WIDE) == []
    context.close()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []


def test_the_search_works_from_files(site: Path, browser: Browser) -> None:
    page = browser.new_context(viewport={"width": 1440, "height": 900}, offline=True).new_page()
    page.goto((site / "index.html").as_uri())
    page.locator("input.md-search__input").press_sequentially("exposure", delay=50)
    expect(page.locator(".md-search-result__item").first).to_be_visible()
