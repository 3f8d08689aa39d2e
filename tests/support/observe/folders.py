"""The folder of an observed run, made of a story; and its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from failback.analytics.observe.folder import Folder, Wanted
from tests.support.observe.stories import Story


def opened(path: Path, **wanted: Any) -> Folder:
    """Return a folder that can be written to; its run is named as the folder is."""
    return Folder.open(path, Wanted(path.name, ("ns0",), 1.0, **wanted))


def add(folder: Folder, story: Story, first: int = 0) -> None:
    """Write the looks of a story from number ``first`` on."""
    for look in story.looks[first:]:
        folder.add(look)


def written(story: Story, path: Path, **wanted: Any) -> Path:
    """Write a whole story, and return the folder, which can be written to again."""
    folder = opened(path, **wanted)
    add(folder, story)
    folder.close()
    return path


def document(run: Path) -> dict[str, Any]:
    """Return the ``report.json`` that was made of a run."""
    found: dict[str, Any] = json.loads((run / "report" / "report.json").read_text())
    return found
