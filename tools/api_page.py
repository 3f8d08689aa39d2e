"""The reference page of the Python API, from its signatures and docstrings."""

from __future__ import annotations

import ast
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from typing import Any, Final

from failback.analytics import api
from failback.analytics.api import results, runs

_FIRST: Final = ("open_lake", "open_run", "analyse", "read_result", "compare", "predict")
"""Functions in the order in which they are used; classes follow."""
_CLASSES: Final = ("Lake", "Run", "Result", "Comparison", "Forecast")
_ALIASES: Final = {"Figure": results, "Filter": runs}
_ERRORS: Final = ("ReportInputError", "StoreUnusable", "EngineUnavailable")
_SECTIONS: Final = {"Args": "", "Returns": "Returns", "Raises": "Raises", "Yields": "Yields"}
_ROLE: Final = re.compile(r":[a-z]+:`~?([^`]+)`")
_PAGE: Final = re.compile(r"docs/(reference|howto)/([a-z-]+\.md)")
_WIDTH: Final = 100


def render() -> str:
    """Return the page."""
    parts = [
        "# Python API",
        "`failback.analytics.api`, for programs and notebooks."
        " [How to use it](../howto/python-api.md) shows it at work.",
        "Made by `python tools/reference_pages.py` from the code.",
        _text(inspect.getdoc(api) or "", skip_first=True),
    ]
    parts += ["## Functions", *(part for name in _FIRST for part in _function(name))]
    for name in _CLASSES:
        parts += _class(name)
    parts += ["## Types", *(_alias(name, module) for name, module in _ALIASES.items())]
    parts.append("## Errors")
    parts += [f"**`{name}`** {_text(inspect.getdoc(getattr(api, name)) or '')}" for name in _ERRORS]
    return "\n\n".join(parts) + "\n"


def named() -> set[str]:
    """Return what the page has of the API."""
    return {*_FIRST, *_CLASSES, *_ALIASES, *_ERRORS}


def _function(name: str) -> Iterator[str]:
    yield f"### {name}"
    yield _signature(name, getattr(api, name))
    yield _text(inspect.getdoc(getattr(api, name)) or "")


def _class(name: str) -> Iterator[str]:
    kind = getattr(api, name)
    yield f"## {name}"
    yield _text(inspect.getdoc(kind) or "")
    rows = [*_fields(kind)]
    for member, value in vars(kind).items():
        if member.startswith("_") or not _is_property(value):
            continue
        function = value.fget if isinstance(value, property) else value.func
        said = " ".join(_text(inspect.getdoc(function) or "").split())
        rows.append(f"| `{member}` | `{_kind(function.__annotations__['return'])}` | {said} |")
    if rows:
        yield "\n".join(["| what it has | type | meaning |", "|---|---|---|", *rows])
    for member, value in vars(kind).items():
        public = not member.startswith("_") or member == "__getitem__"
        if public and inspect.isfunction(value) and value.__doc__:
            shown = f"{name.lower()}[...]" if member == "__getitem__" else f"{name}.{member}"
            yield f"### {shown}"
            yield _signature(shown if member == "__getitem__" else member, value)
            yield _text(inspect.getdoc(value) or "")


def _alias(name: str, module: Any) -> str:
    """A type that has a name, with the text below it."""
    body = ast.parse(inspect.getsource(module)).body
    for node, after in itertools.pairwise(body):
        shown = ast.unparse(node)
        if re.match(rf"{name}\b", shown) and isinstance(after, ast.Expr):
            value = shown.partition(" = ")[2].strip("'")
            return f"**`{name}`** is `{value}`. {_text(ast.literal_eval(after.value))}"
    raise LookupError(name)


def _is_property(value: object) -> bool:
    return isinstance(value, property) or hasattr(value, "func")


def _fields(kind: type) -> Iterator[str]:
    """Fields of a dataclass, with the text below each."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for at, node in enumerate(tree.body):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        after = tree.body[at + 1] if at + 1 < len(tree.body) else None
        said = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            said = " ".join(_text(str(after.value.value)).split())
        yield f"| `{node.target.id}` | `{_kind(ast.unparse(node.annotation))}` | {said} |"


def _kind(annotation: Any) -> str:
    return str(annotation).replace("|", "\\|")


def _signature(name: str, function: Any) -> str:
    found = inspect.signature(function)
    words = [_parameter(each) for each in _with_marks(found)]
    returns = f" -> {found.return_annotation}"
    line = f"{name}({', '.join(words)}){returns}"
    if name.endswith("[...]"):
        line = f"{name.removesuffix('...]')}{words[0]}]{returns}"
    if len(line) > _WIDTH:
        line = f"{name}(\n" + "".join(f"    {word},\n" for word in words) + f"){returns}"
    return f"```python\n{line}\n```"


def _with_marks(found: inspect.Signature) -> Iterator[inspect.Parameter | str]:
    keywords = False
    for each in found.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not keywords:
            keywords = True
            yield "*"
        yield each


def _parameter(each: inspect.Parameter | str) -> str:
    if isinstance(each, str):
        return each
    mark = "**" if each.kind is each.VAR_KEYWORD else ""
    default = "" if each.default is each.empty else f" = {each.default!r}"
    return f"{mark}{each.name}: {each.annotation}{default}"


def _text(doc: str, *, skip_first: bool = False) -> str:
    """A docstring as Markdown: sections become lists, roles become names, pages become links."""
    doc = _PAGE.sub(_link, _ROLE.sub(r"`\1`", doc)).replace("``", "`")
    lines: list[str] = []
    section = ""
    code = False
    for line in doc.splitlines()[2 if skip_first else 0 :]:
        words = line.strip()
        if words.rstrip(":") in _SECTIONS and words.endswith(":"):
            section = words.rstrip(":")
            lines += [f"**{_SECTIONS[section]}**", ""] if _SECTIONS[section] else []
        elif section and words:
            lines += _entry(line, section)
        elif words.endswith("::"):
            lines += [words[:-1], "", "```python"]
            code = True
        elif code and words and not line.startswith(" "):
            lines = [*_trimmed(lines), "```", "", line]
            code = False
        elif code and not words and lines[-1] == "```python":
            continue
        elif code:
            lines.append(line.removeprefix("    "))
        else:
            lines.append(line)
    return "\n".join(_trimmed(lines) + (["```"] if code else []))


def _entry(line: str, section: str) -> list[str]:
    found = re.match(r"^ {4}(\*{0,2}\w+): (.*)$", line)
    if found is not None:
        return [f"* `{found[1]}`: {found[2]}"]
    if section in ("Args", "Raises"):
        return [f"  {line.strip()}"]
    return [line.strip()]


def _trimmed(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def _link(found: re.Match[str]) -> str:
    target = found[2] if found[1] == "reference" else f"../{found[1]}/{found[2]}"
    return f"[{found[2].removesuffix('.md')}]({target})"
