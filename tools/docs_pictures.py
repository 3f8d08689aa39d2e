"""Make the pictures of docs/pictures from a real run: ``python tools/docs_pictures.py``.

Runs the demo with real timers, unless ``--run`` names a run folder with a report, and photographs
the report of the arm ``handover`` in Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURES: Final = ROOT / "docs" / "pictures"
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome")
_SIZE: Final = (1000, 700)


def demo(folder: Path) -> Path:
    """Run the demo below ``folder``; return the run folder of the arm with repeats."""
    command = [str(Path(sys.executable).parent / "failback"), "demo", "--no-spark"]
    subprocess.run([*command, "--runs", str(folder)], check=True)
    return next(folder.glob("*/handover"))


def photograph(report: Path) -> None:
    """Write both pictures of a ``report.html``."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        width, height = _SIZE
        page = opened.new_page(viewport={"width": width, "height": height}, color_scheme="light")
        page.goto(report.as_uri())
        plot = page.locator("#figure-staircase-0")
        plot.locator("svg.main-svg").first.wait_for(state="visible")
        PICTURES.mkdir(exist_ok=True)
        place = plot.bounding_box()
        if place is None:
            raise SystemExit("the report has no plot of offsets")
        page.set_viewport_size({"width": width, "height": int(place["y"] + place["height"]) + 12})
        page.screenshot(path=PICTURES / "report.png")
        plot.screenshot(path=PICTURES / "offsets.png")
        opened.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="a run folder with a report")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="failback-pictures-") as scratch:
        run = options.run or demo(Path(scratch))
        photograph(run / "report" / "report.html")
    for picture in sorted(PICTURES.glob("*.png")):
        print(f"{picture.relative_to(ROOT)}: {picture.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
