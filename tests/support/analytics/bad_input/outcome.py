"""What has to hold for the report of a damaged run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.analytics.run_builder import RunBuilder

Document = dict[str, Any]
Told = Callable[[Document], None]


@dataclass(frozen=True, slots=True)
class Refused:
    """No report is made; the error matches ``words``."""

    words: str


Case = Callable[[Path], Told | Refused]


def clean() -> RunBuilder:
    """A small run with nothing wrong."""
    b = RunBuilder("clean")
    b.assign(0, 0)
    for lid in range(3):
        b.produce(lid, lid, lid + 1)
        b.deliver(lid, 10 + lid, 11 + lid)
        b.scan(lid)
    return b


def codes(document: Document) -> list[str]:
    """Why the verdict is what it is."""
    return [reason["code"] for reason in document["verdict"]["reasons"]]


def inconclusive(*wanted: str) -> Told:
    """The verdict is Inconclusive for these reasons and no others."""

    def told(document: Document) -> None:
        assert document["verdict"]["value"] == "Inconclusive"
        assert codes(document) == list(wanted)

    return told
