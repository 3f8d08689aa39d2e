"""Chromium without a network, for pages that must open on any desk."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page, sync_playwright

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
def offline_page(file: Path, profile: Path, *, width: int = 1280) -> Iterator[OpenPage]:
    """Open ``file`` by its ``file:`` URL in a browser that is offline and has a fresh profile."""
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile,
            executable_path=chromium(),
            args=[*ARGUMENTS],
            viewport={"width": width, "height": 900},
        )
        try:
            context.set_offline(True)
            opened = OpenPage(context.new_page())
            page, problems = opened.page, opened.problems
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
                lambda request: problems.append(f"request failed: {request.url}"),
            )
            page.goto(file.as_uri(), wait_until="load")
            yield opened
        finally:
            context.close()


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


def unfold(opened: OpenPage) -> None:
    """Open every folded part; its figures are drawn then."""
    opened.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")


def check_page(opened: OpenPage, file: Path, screenshot: Path) -> None:
    """Everything that must hold of any report's page, unfolded; leaves a picture of it."""
    page = opened.page
    unfold(opened)
    figures = page.locator(".figure")
    assert figures.count() >= 1
    for index in range(figures.count()):
        drawn = figures.nth(index).locator("svg.main-svg").first
        drawn.wait_for(state="visible")
    page.screenshot(path=screenshot, full_page=True)
    assert opened.problems == []
    assert opened.requested == [file.as_uri()], "the page asked for something else"
    assert unreadable_texts(opened) == []
    assert screenshot.stat().st_size > 50_000
