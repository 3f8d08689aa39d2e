"""What a Spark driver notes while it works: read in the middle of a run, by a test that kills."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any


def noted_at_once(folder: str | Path) -> list[str]:
    """Words for ``spark-submit``: the driver writes its events into a folder as they come."""
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(folder),
        "spark.eventLog.buffer.kb": "1",
        "spark.eventLog.compress": "false",
    }
    return [word for pair in settings.items() for word in ("--conf", "=".join(pair))]


def events_in(folder: Path) -> list[dict[str, Any]]:
    """What the driver noted so far; a line that is not whole yet ends it."""
    found = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        for line in path.read_bytes().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                break
    return found


def tasks_of(events: list[dict[str, Any]]) -> Counter[str]:
    """Tasks that ended well, by executor."""
    return Counter(
        event["Task Info"]["Executor ID"]
        for event in events
        if event["Event"] == "SparkListenerTaskEnd"
        and event["Task End Reason"]["Reason"] == "Success"
    )


def removed(events: list[dict[str, Any]]) -> list[str]:
    """The executors that the driver lost or gave up, in order."""
    return [
        event["Executor ID"] for event in events if event["Event"] == "SparkListenerExecutorRemoved"
    ]
