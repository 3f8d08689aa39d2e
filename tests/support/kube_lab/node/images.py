"""ENTRYPOINT and CMD of the project's images, read from its Dockerfile."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

Start = tuple[Sequence[str], Sequence[str]]
_FROM = re.compile(r"FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)


def starts(dockerfile: str) -> dict[str, Start]:
    """Return ENTRYPOINT and CMD of every named stage; a stage has those of its base."""
    found: dict[str, Start] = {}
    stage = ""
    for line in re.sub(r"\\\n", " ", dockerfile).splitlines():
        word, _, rest = line.strip().partition(" ")
        if begins := _FROM.match(line.strip()):
            stage = begins[2] or ""
            found[stage] = found.get(begins[1], ((), ()))
        elif word.upper() == "ENTRYPOINT":
            found[stage] = (_words(rest), ())
        elif word.upper() == "CMD":
            found[stage] = (found[stage][0], _words(rest))
    return found


def start_of(image: str, stages: dict[str, Start]) -> Start:
    """Return what an image starts: its last path component names the stage."""
    name = image.rpartition("/")[2].partition("@")[0].partition(":")[0]
    return stages.get(name, ((), ()))


def read(file: Path) -> dict[str, Start]:
    """Read a Dockerfile; one that is not there has no stages."""
    return starts(file.read_text(encoding="utf-8")) if file.exists() else {}


def _words(text: str) -> list[str]:
    text = text.strip()
    if text.startswith("["):
        return [str(word) for word in json.loads(text)]
    return ["/bin/sh", "-c", shlex.join(shlex.split(text))] if text else []
