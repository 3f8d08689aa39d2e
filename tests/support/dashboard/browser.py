"""Chromium without a network, for pages that must open on any desk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.common.polling import SCALE

NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str:
    """Return the browser's path; skip the test where there is none."""
    found = [path for name in NAMES if (path := shutil.which(name)) is not None]
    if not found:
        pytest.skip("needs Chromium: apt-get install chromium")
    return found[0]


@contextmanager
def running_browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=[*ARGUMENTS])
        yield browser
        browser.close()


@dataclass
class OpenPage:
    """A page, and everything that went wrong on it so far."""

    page: Page
    problems: list[str] = field(default_factory=list)
    """Console errors and warnings, exceptions, requests that failed."""
    requested: list[str] = field(default_factory=list)

    def evaluate(self, script: str) -> Any:
        return self.page.evaluate(script)


@contextmanager
def opened_page(
    browser: Browser, *, width: int = 1280, scheme: Any = "light", offline: bool = False
) -> Iterator[OpenPage]:
    """A page of a profile of its own."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme=scheme,
        offline=offline,
        permissions=["clipboard-read", "clipboard-write"],
    )
    try:
        opened = OpenPage(context.new_page())
        page, problems = opened.page, opened.problems
        page.set_default_timeout(120_000 * SCALE)
        page.on(
            "console",
            lambda said: (
                problems.append(f"console {said.type}: {said.text}")
                if said.type in ("error", "warning", "assert")
                else None
            ),
        )
        page.on("pageerror", lambda error: problems.append(f"exception: {error}"))
        page.on("request", lambda request: opened.requested.append(request.url))
        page.on(
            "requestfailed",
            lambda request: (
                None  # a page that is left ends what it waits for
                if request.failure == "net::ERR_ABORTED"
                else problems.append(f"request failed: {request.url}")
            ),
        )
        yield opened
    finally:
        context.close()


@contextmanager
def offline_page(browser: Browser, file: Path, **options: Any) -> Iterator[OpenPage]:
    """Open ``file`` by its ``file:`` URL without a network; options of :func:`opened_page`."""
    with opened_page(browser, offline=True, **options) as opened:
        opened.page.goto(file.as_uri(), wait_until="load")
        yield opened


# Texts of a figure that a reader must be able to read: those of the plot and of its frame.
_READABLE = """
() => {
  const problems = [];
  for (const figure of document.querySelectorAll(".figure")) {
    const frame = figure.getBoundingClientRect();
    const texts = Array.from(figure.querySelectorAll("svg text"))
      .filter(each => each.textContent.trim() !== "" && !each.closest(".hoverlayer"))
      .map(each => ({text: each.textContent.trim(), box: each.getBoundingClientRect(),
                     size: parseFloat(getComputedStyle(each).fontSize)}))
      .filter(each => each.box.width > 0);
    for (const {text, box, size} of texts) {
      if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
          box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
        problems.push(`${figure.id}: "${text}" is cut off`);
      if (size < 11) problems.push(`${figure.id}: "${text}" is only ${size} px high`);
    }
    for (let i = 0; i < texts.length; i++)
      for (let j = i + 1; j < texts.length; j++) {
        const a = texts[i].box, b = texts[j].box;
        const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
        const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
        if (across > 3 && down > 4)
          problems.push(`${figure.id}: "${texts[i].text}" lies on "${texts[j].text}"`);
      }
  }
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) problems.push("the page is wider than the window");
  return problems;
}
"""


def unreadable_texts(opened: OpenPage) -> list[str]:
    """Return what in the figures is cut off, too small, or lies on another text."""
    found: list[str] = opened.evaluate(_READABLE)
    return found


_UNDRAWN = """
() => {
  const problems = [];
  const embedded = document.getElementById("figures");
  for (const id of embedded ? Object.keys(JSON.parse(embedded.textContent)) : [])
    if (!document.getElementById("figure-" + id)) problems.push(`figure ${id} has no place`);
  for (const figure of document.querySelectorAll(".figure")) {
    const name = figure.id || figure.dataset.src;
    if (!figure.querySelector("svg.main-svg")) { problems.push(`${name} is not drawn`); continue; }
    const wanted = figure.calcdata.filter(points => points[0].trace.visible === true
      && points.some(each => each.x !== undefined || each.v !== undefined));
    const marks = Array.from(figure.querySelectorAll(".trace, .slice"))
      .filter(each => each.querySelector("path, text"));
    if (wanted.length === 0) problems.push(`${name} has no data`);
    if (marks.length < wanted.length)
      problems.push(`${name}: ${marks.length} of ${wanted.length} traces are drawn`);
  }
  return problems;
}
"""
_DEAD = """
async () => {
  const dead = [];
  let happened = 0;
  const seen = new MutationObserver(() => happened++);
  seen.observe(document, {attributes: true, childList: true, subtree: true, characterData: true});
  for (const type of ["invalid", "hashchange"]) addEventListener(type, () => happened++, true);
  for (const each of document.querySelectorAll("a[href^='#']"))
    if (!document.getElementById(decodeURIComponent(each.hash.slice(1))))
      dead.push(`${each.textContent}: ${each.hash} is nowhere`);
  for (const button of document.querySelectorAll("button, summary")) {
    if (!button.checkVisibility() || button.disabled || button.closest(".modebar")) continue;
    const head = button.closest("thead"); // on a phone tables are cards without a head
    if (head && getComputedStyle(head).clipPath !== "none") continue;
    if (button.form && button.type === "submit") continue;
    const name = `${button.textContent.trim()} (${button.className || button.localName})`;
    button.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
    const box = button.getBoundingClientRect();
    const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    if (!hit || !button.contains(hit)) dead.push(`${name} is covered`);
    await new Promise(resolve => setTimeout(resolve)); // what scrolling changes is no answer
    seen.takeRecords();
    happened = 0;
    button.click();
    const until = performance.now() + 500;
    while (!happened && performance.now() < until)
      await new Promise(resolve => setTimeout(resolve, 5));
    if (!happened) dead.push(`${name} does nothing`);
  }
  seen.disconnect();
  return dead;
}
"""


def undrawn(opened: OpenPage) -> list[str]:
    """Return which figures with data are not drawn, in parts that are unfolded."""
    found: list[str] = opened.evaluate(_UNDRAWN)
    return found


def dead_buttons(opened: OpenPage) -> list[str]:
    """Press each button that can be seen; return those to which nothing happens.

    Buttons that send a form are pressed last, each on a fresh page: they ask the server, or say
    what is missing.
    """
    page = opened.page
    found: list[str] = opened.evaluate(_DEAD)
    forms, address = page.locator("form button:visible:enabled"), page.url
    for number in range(forms.count()):
        page.goto(address, wait_until="load")
        page.evaluate("addEventListener('invalid', () => { window.refused = true; }, true)")
        before, name = len(opened.requested), forms.nth(number).inner_text()
        forms.nth(number).click()
        page.wait_for_load_state()
        if len(opened.requested) == before and not page.evaluate("window.refused"):
            found.append(f"{name} sends nothing")
    return found


def unfold(opened: OpenPage) -> None:
    """Open every folded part; its figures are drawn then."""
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")


def picture_of(name: str, folder: Path) -> Path:
    """Where a picture of a page goes: ``FAILBACK_SCREENSHOTS``, else ``folder``."""
    where = Path(os.environ.get("FAILBACK_SCREENSHOTS", folder))
    where.mkdir(parents=True, exist_ok=True)
    return where / f"{name}.png"


def check_page(opened: OpenPage, file: Path, screenshot: Path) -> None:
    """Everything that must hold of any report's page, unfolded; leaves a picture of it."""
    page = opened.page
    unfold(opened)
    for figure in page.locator(".figure").all():
        figure.locator("svg.main-svg").first.wait_for(state="visible")
    page.screenshot(path=screenshot, full_page=True)
    assert opened.problems == []
    assert opened.requested == [file.as_uri()], "the page asked for something else"
    for _ in range(100):  # Plotly draws again after a change of the page's width or medium
        if not (found := unreadable_texts(opened)):
            break
        page.wait_for_timeout(200)
    assert not found, found
    assert not (found := undrawn(opened)), found
    assert screenshot.stat().st_size > 50_000
