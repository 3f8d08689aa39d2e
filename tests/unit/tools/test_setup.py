"""What a set-up installs: the requirements of an extra, and of the extras that it names."""

from __future__ import annotations

import re
import tomllib

from tools.setup import EXTRAS, ROOT, requirements

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def names(extra: str) -> set[str]:
    return {re.split(r"[\[<>=;~! ]", each)[0] for each in requirements(extra)}


def test_an_extra_has_requirements_of_others_only() -> None:
    for extra in PROJECT["optional-dependencies"]:
        assert names(extra) > {"msgspec", "typer", "rich"}, extra
        assert PROJECT["name"] not in names(extra), extra


def test_every_tier_has_an_extra() -> None:
    assert set(EXTRAS.values()) <= set(PROJECT["optional-dependencies"])


def test_the_demo_needs_neither_spark_nor_kubernetes() -> None:
    assert names("demo") & {"pyspark", "pandas", "kubernetes", "kopf"} == set()
    assert names("demo") < names("all")
    assert names("spark") - names("demo") == {"pyspark", "pandas", "protobuf"}


def test_everything_that_is_installed_is_pinned() -> None:
    text = (ROOT / "constraints.txt").read_text().lower().replace("_", "-")
    pinned = {line.partition("==")[0] for line in text.splitlines()}
    wanted = {name.lower().replace("_", "-") for extra in EXTRAS.values() for name in names(extra)}
    assert sorted(wanted - pinned) == []
