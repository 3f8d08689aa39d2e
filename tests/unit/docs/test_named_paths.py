"""Every file and module that a page or a docstring names is there, so that both follow the code."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TOP_FOLDERS = ("broker-image", "operator", "chaos", "analytics")
PACKAGES = {
    folder.name: folder
    for top in TOP_FOLDERS
    for folder in (ROOT / top / "failback").iterdir()
    if folder.is_dir() and folder.name[0] != "_"
}
FOLDERS = {*TOP_FOLDERS, "charts", "docs", "examples", "tests", "tools", ".ci", *PACKAGES}
"""Others are made by commands, such as the runs of ``make demo``."""
MADE = ("charts/failback/crds",)
"""What a page names and nobody commits."""

PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
DECISIONS = ROOT / "docs" / "decisions"

_QUOTED = re.compile(r"`([^`\s]+)`")
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]+)[^)]*\)")
_MODULE = re.compile(r"failback(\.\w+)+")
_ROLE = re.compile(r":(?:mod|func|class|meth|data|attr):`~?(failback(?:\.\w+)+)`")
_NOT_A_PATH = re.compile(r"[<>*{}$%|=:,]|NNN|\.\.\.")


def missing(page: Path) -> list[str]:
    """What ``page`` names and is not there."""
    text = page.read_text()
    links = [link for link in _LINK.findall(text) if not (page.parent / link).exists()]
    return links + [token for token in _QUOTED.findall(text) if not _is_there(token)]


def _is_there(token: str) -> bool:
    if _MODULE.fullmatch(token):
        parts = token.split(".")[1:]
        return parts[0] not in PACKAGES or _has_name(PACKAGES[parts[0]], parts[1:])
    first, slash, rest = token.partition("/")
    if not slash or not rest or first not in FOLDERS or _NOT_A_PATH.search(token):
        return True
    places = [ROOT / token]
    if first in PACKAGES:
        places.append(PACKAGES[first] / rest)
    return token.rstrip("/") in MADE or any(place.exists() for place in places)


def _has_name(folder: Path, parts: list[str]) -> bool:
    """Whether ``parts`` lead from a package to a module, or to a name within one."""
    for number, part in enumerate(parts):
        if (folder / part).is_dir():
            folder /= part
            continue
        module = folder / f"{part}.py"
        if module.exists():
            rest = parts[number + 1 :]
        else:
            module, rest = folder / "__init__.py", parts[number:]
        return module.exists() and (not rest or rest[0] in _names(module))
    return True


@cache
def _names(module: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name) | ast.Name(id=name):
                found.add(name)
            case ast.alias(name=name, asname=asname):
                found.add(asname or name)
    return found


def test_pages_name_only_what_is_there() -> None:
    found = {str(page.relative_to(ROOT)): missing(page) for page in PAGES}
    assert {page: gone for page, gone in found.items() if gone} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_docstring_refers_only_to_what_is_there(package: str) -> None:
    wrong = [
        (file.name, name)
        for file in PACKAGES[package].rglob("*.py")
        for name in _ROLE.findall(file.read_text())
        if not _is_there(name)
    ]
    assert wrong == []


def test_the_list_of_decisions_names_each_page_by_its_title() -> None:
    pages = sorted(DECISIONS.glob("[0-9]*.md"))
    titles = [page.read_text().splitlines()[0] for page in pages]
    listed = [
        f"* [{title.removeprefix('# ').replace('. ', ' ', 1)}]({page.name})"
        for title, page in zip(titles, pages, strict=True)
    ]
    lines = (DECISIONS / "README.md").read_text().splitlines()
    assert [line for line in lines if line.startswith("* ")] == listed


def test_a_name_that_is_gone_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`broker/store/message_store.py` `broker/store/gone.py` `failback.client.gone`"
        " `failback.protocol.frames.FrameReader` `failback.protocol.frames.Gone`"
        " [here](page.md) [not here](other.md) `cli/<command>.py` `hot/`"
    )
    gone = ["other.md", "broker/store/gone.py", "failback.client.gone"]
    assert missing(page) == [*gone, "failback.protocol.frames.Gone"]
