"""What images are made of: each package by its version of constraints.txt and by its hashes."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires
from typing import Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.build_images import TARGETS
from tools.hashes import EXTRAS, FOLDER, ROOT, wanted

PINNED: Final[dict[str, str]] = {
    canonicalize_name(name): version
    for name, _, version in (
        line.partition("==") for line in (ROOT / "constraints.txt").read_text().split()
    )
}
HASH: Final = re.compile(r" --hash=sha256:[0-9a-f]{64}$", re.MULTILINE)


def entries(name: str) -> dict[str, tuple[str, bool]]:
    """Return the packages of a file: version, and whether it has hashes."""
    _, *blocks = re.split(r"\n(?=\S)", (FOLDER / f"{name}.txt").read_text())
    found = {}
    for block in blocks:
        package, _, version = block.split(maxsplit=1)[0].partition("==")
        found[package] = (version, HASH.search(block.replace(" \\\n", "\n")) is not None)
    return found


def needed(lines: list[str]) -> set[str]:
    """Return what requirements need on this machine, by the metadata of what is installed."""
    found: set[tuple[str, str]] = set()
    waiting = [(Requirement(line), "") for line in lines]
    while waiting:
        need, extra = waiting.pop()
        if need.marker is not None and not need.marker.evaluate({"extra": extra}):
            continue
        for part in ("", *need.extras):
            each = (canonicalize_name(need.name), part)
            if each not in found:
                found.add(each)
                waiting += [(Requirement(line), part) for line in requires(need.name) or ()]
    return {name for name, _ in found}


@pytest.mark.parametrize("name", wanted())
def test_every_package_that_is_needed_has_its_version_and_hashes(name: str) -> None:
    held = entries(name)
    assert held == {each: (PINNED[each], True) for each in held}
    try:
        missing = needed(wanted()[name]) - set(held)
    except PackageNotFoundError as error:
        pytest.skip(f"{error} is not installed here")
    assert missing == set()


def test_every_image_has_a_file() -> None:
    assert {"build", *TARGETS} <= {"build", *EXTRAS} == {path.stem for path in FOLDER.iterdir()}
