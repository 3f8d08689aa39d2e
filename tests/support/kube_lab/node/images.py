"""ENTRYPOINT, CMD, ENV and some files of the project's images, read from its Dockerfile."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

_FROM: Final = re.compile(r"FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?\s*$", re.IGNORECASE)
_OF_THE_IMAGE_ALONE: Final = "PATH"  # commands are those of this machine
_APACHE: Final = "rocketmq"
_FILES: Final = {"analytics": {"/opt/failback/bin/spark_main.py": "examples/spark_main.py"}}
"""Stage → what pods name by its path in the image → where the checkout has it."""


class Start(NamedTuple):
    """What a container of an image starts with."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = {}
    files: Mapping[str, Path] = {}
    """Path in the image → the file of this machine that stands in for it."""


def starts(dockerfile: str) -> dict[str, Start]:
    """Return what every named stage starts with; a stage has what its base has."""
    found: dict[str, Start] = {}
    stage = ""
    for line in re.sub(r"\\\n", " ", dockerfile).splitlines():
        word, _, rest = line.strip().partition(" ")
        if begins := _FROM.match(line.strip()):
            stage = begins[2] or ""
            found[stage] = found.get(begins[1], Start())
        elif word.upper() == "ENTRYPOINT":
            found[stage] = found[stage]._replace(entrypoint=_words(rest), command=())
        elif word.upper() == "CMD":
            found[stage] = found[stage]._replace(command=_words(rest))
        elif word.upper() == "ENV":
            variables = {**found[stage].environment, **_variables(rest)}
            found[stage] = found[stage]._replace(environment=variables)
    return found


def start_of(image: str, stages: Mapping[str, Start]) -> Start:
    """Return what an image starts with: its last path component names the stage.

    Apache's has a variable with its version (rocketmq-docker, Dockerfile-alpine), here its tag.
    """
    name, _, tag = image.rpartition("/")[2].partition("@")[0].partition(":")
    if name == _APACHE and tag:
        return Start(environment={"ROCKETMQ_VERSION": tag})
    return stages.get(name, Start())


def read(file: Path) -> dict[str, Start]:
    """Read a checkout's Dockerfile; one that is not there has no stages."""
    found = starts(file.read_text(encoding="utf-8")) if file.exists() else {}
    for stage in found.keys() & _FILES.keys():
        files = {path: file.parent / name for path, name in _FILES[stage].items()}
        found[stage] = found[stage]._replace(files=files)
    return found


def _words(text: str) -> list[str]:
    text = text.strip()
    if text.startswith("["):
        return [str(word) for word in json.loads(text)]
    return ["/bin/sh", "-c", text] if text else []


def _variables(text: str) -> dict[str, str]:
    pairs = (word.partition("=") for word in shlex.split(text))
    return {
        name: value
        for name, equals, value in pairs
        if equals and name != _OF_THE_IMAGE_ALONE and "$" not in value
    }
