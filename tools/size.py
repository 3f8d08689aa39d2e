"""Print the size of the project and compare it with tools/budget.toml: ``make size``.

A figure above its budget ends the command with 1, and so does a test. A commit that needs more
raises the budget in the same commit and says in its message what that buys. ``--write`` lowers the
budget to the figures of today and raises nothing.

A line of product code is code, import, docstring, comment or blank; a line that is several of
these is the first of them. Imports are statements at any depth, without those that only type
checkers run being left out. Modules are files other than ``__init__.py``.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).resolve().parent.parent
BUDGET: Final = ROOT / "tools" / "budget.toml"
TREES: Final = ("operator", "broker-image", "chaos", "analytics")
SMALL_MODULE_LINES: Final = 80
PERSONS: Final = re.compile(r"\b(who|whoever|nobody|somebody|whatever)\b", re.IGNORECASE)
"""Words that make a person, or nothing definite, the subject of a sentence about a component."""
SLACK: Final = 0.01
"""Share of a figure by which a budget may be above it; a test asks to lower one above that."""
_FREE_NAMES: Final = ("__init__.py", "__main__.py")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?:])\s+|\n\s*\n")
_Figures = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True)
class Source:
    """A file of Python, and what each of its lines is."""

    lines: Counter[str]
    """Keys: code, import, docstring, comment, blank."""
    docstrings: tuple[str, ...]

    @property
    def length(self) -> int:
        return self.lines.total()


@dataclass
class Package:
    """The files of one package, added up."""

    lines: Counter[str] = field(default_factory=Counter)
    sentences: int = 0
    of_persons: int = 0

    def add(self, source: Source) -> None:
        self.lines += source.lines
        for text in source.docstrings:
            sentences = list(sentences_of(text))
            self.sentences += len(sentences)
            self.of_persons += sum(PERSONS.search(each) is not None for each in sentences)


def sentences_of(text: str) -> Iterator[str]:
    """Split a docstring into sentences; a paragraph without a full stop is one."""
    return (each for each in _SENTENCE_END.split(text) if each.strip())


def read(path: Path) -> Source:
    """Read a file of Python and say what each line is."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    kinds = dict.fromkeys(range(1, text.count("\n") + 1), "blank")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            kinds[token.start[0]] = "comment"
    layout = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in (*layout, tokenize.ENDMARKER):
            kinds.update(dict.fromkeys(range(token.start[0], token.end[0] + 1), "code"))
    docstrings = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            kinds.update(dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), "import"))
        for string in _docstrings(node):
            docstrings.append(string.value.value)  # type: ignore[attr-defined]
            lines = range(string.lineno, (string.end_lineno or 0) + 1)
            kinds.update(dict.fromkeys(lines, "docstring"))
    return Source(Counter(kinds.values()), tuple(docstrings))


def _docstrings(node: ast.AST) -> Iterator[ast.Expr]:
    """Yield the strings that stand alone as a statement: of modules, functions and fields."""
    body = getattr(node, "body", ())
    for each in body if isinstance(body, list) else ():
        value = each.value if isinstance(each, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield each


def packages(root: Path) -> list[str]:
    """Return the packages that pyproject.toml names, as ``failback.broker``."""
    text = (root / "pyproject.toml").read_text(encoding="utf-8")
    return list(tomllib.loads(text)["tool"]["importlinter"]["root_packages"])


def measure(root: Path = ROOT) -> _Figures:
    """Return all figures but the number of unit cases, by table and name of the budget."""
    files = {
        path: read(path)
        for tree in TREES
        for path in sorted((root / tree).glob("failback/**/*.py"))
    }
    found = {name.rpartition(".")[2]: Package() for name in packages(root)}
    for path, source in files.items():
        found[_package_of(root, path)].add(source)
    total = sum((each.lines for each in found.values()), Counter())
    modules = {path: source for path, source in files.items() if path.name != "__init__.py"}
    names = Counter(path.name for path in files if path.name not in _FREE_NAMES)
    options, commands = reference((root / "docs/reference/cli.md").read_text(encoding="utf-8"))
    graph = grimp.build_graph(*packages(root))
    return {
        "total": {
            "product_lines": total.total(),
            "code_lines": total["code"],
            "import_percent": round(100 * total["import"] / total.total(), 2),
            "imports_between_modules": graph.count_imports(),
            "modules_under_80_lines": sum(
                source.length < SMALL_MODULE_LINES for source in modules.values()
            ),
            "file_names_used_twice": sum(count > 1 for count in names.values()),
            "cli_options": options,
            "cli_commands": commands,
            "test_lines": sum(
                path.read_text(encoding="utf-8").count("\n")
                for path in (root / "tests").glob("**/*.py")
            ),
        },
        "product_lines": {name: each.lines.total() for name, each in found.items()},
        "code_lines": {name: each.lines["code"] for name, each in found.items()},
        "percent_of_sentences_about_persons": {
            name: round(100 * each.of_persons / max(each.sentences, 1), 2)
            for name, each in found.items()
        },
    }


def _package_of(root: Path, path: Path) -> str:
    return path.relative_to(root).parts[2]


def reference(page: str) -> tuple[int, int]:
    """Count options and arguments, and commands, in the text of docs/reference/cli.md."""
    _, _, chapters = page.partition("\n## Commands\n")
    section, options, commands = "", 0, 0
    for line in chapters.splitlines():
        if line.startswith(("## ", "### ")):
            commands += line.split()[1] in ("failback", "kubectl")
        elif line.endswith(":") and line[0].isalpha():
            section = line
        elif line.startswith("* `") and section != "Commands:":
            options += not line.startswith("* `-h, --help`")
    return options, commands


def unit_cases() -> int:
    """Return how many cases pytest collects from tests/unit."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "tests/unit",
        "--collect-only",
        "-qq",
        "-p",
        "no:xdist",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return sum(int(found) for found in re.findall(r"^tests/\S+: (\d+)$", done.stdout, re.MULTILINE))


def read_budget(path: Path = BUDGET) -> _Figures:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def above(figures: Mapping[str, Mapping[str, float]], budget: _Figures) -> Iterator[str]:
    """Yield a sentence for every figure that is above its budget or has none."""
    for table, name, figure in _each(figures):
        allowed = budget.get(table, {}).get(name)
        if allowed is None:
            yield f"{table}.{name}: {figure}, and tools/budget.toml has no budget for it"
        elif figure > allowed:
            yield f"{table}.{name}: {figure}, the budget is {allowed}"


def slack(figures: Mapping[str, Mapping[str, float]], budget: _Figures) -> Iterator[str]:
    """Yield a sentence for every budget that is more than :data:`SLACK` above its figure."""
    for table, name, figure in _each(figures):
        allowed = budget.get(table, {}).get(name, figure)
        if figure < allowed * (1 - SLACK):
            yield f"{table}.{name}: {figure}, the budget is {allowed}: make size ARGS=--write"


def _each(figures: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, str, float]]:
    for table, rows in figures.items():
        for name, figure in rows.items():
            yield table, name, figure


def lowered(figures: _Figures, budget: _Figures) -> str:
    """Return the text of the budget with each figure that is lower today."""
    lines = ["# What `make size` may find at most; CONTRIBUTING.md, section Size.\n"]
    others = {table: rows for table, rows in budget.items() if table not in figures}
    for table, rows in (figures | others).items():
        lines.append(f"\n[{table}]\n")
        for name, figure in rows.items():
            lines.append(f"{name} = {min(figure, budget.get(table, {}).get(name, figure))}\n")
    return "".join(lines)


def shown(figures: _Figures, budget: _Figures) -> Iterator[str]:
    """Yield the lines of the table: a figure, its budget, and a mark where it is above."""
    for table, rows in figures.items():
        yield f"\n{table}"
        for name, figure in rows.items():
            allowed = budget.get(table, {}).get(name)
            mark = " ABOVE" if allowed is None or figure > allowed else ""
            limit = "-" if allowed is None else f"{allowed}"
            yield f"  {name:28} {figure:>10}  of {limit:>10}{mark}"


def main(words: Iterable[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="lower the budget to these figures")
    options = parser.parse_args(None if words is None else list(words))
    figures = measure()
    figures["total"]["unit_cases"] = unit_cases()
    budget = read_budget() if BUDGET.exists() else {}
    if options.write:
        BUDGET.write_text(lowered(figures, budget), encoding="utf-8")
        budget = read_budget()
    print("\n".join(shown(figures, budget)))
    problems = list(above(figures, budget))
    print("", *problems, sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
