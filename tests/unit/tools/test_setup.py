"""What a set-up installs: the requirements of an extra, and of the extras that it names."""

from __future__ import annotations

import ast
import re
import sys
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


def test_servers_import_what_their_image_installs() -> None:
    installed = {re.sub(r"\..*", "", each).replace("-", "_") for each in names("broker")}
    for package in ("broker", "namesrv", "client/remoting", "protocol", "init"):
        for file in (ROOT / "broker-image" / "failback" / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                found = [each.name for each in node.names] if isinstance(node, ast.Import) else []
                found += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                theirs = {each.partition(".")[0] for each in found} - sys.stdlib_module_names
                assert theirs <= installed | {"failback"}, file
