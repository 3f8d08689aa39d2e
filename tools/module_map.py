"""Count, list and draw the imports inside each package: ``make map``.

A room is a module or a folder that stands directly in a package. What a folder's modules import
counts as imported by the folder. ``__init__`` and ``__main__`` are no rooms: they put the others
together. An arrow is an ordered pair of rooms with an import between them. A circle is a set of
rooms each of which reaches every other by arrows. A room's level is the number of rooms on the
longest chain of arrows that starts at it; a circle counts as one room there.

A plain call prints the table and the circles, and writes docs/map.svg. With ``--package NAME`` it
prints the rooms of one package or folder, and with ``--check`` it tells whether the drawing is up
to date and whether there are circles; both of these write nothing.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from html import escape
from pathlib import Path
from typing import Final

import grimp

ROOT: Final = Path(__file__).resolve().parent.parent
DRAWING: Final = "docs/map.svg"
_COLUMNS: Final = ("package", "rooms", "levels", "arrows", "circles")
_NO_ROOMS: Final = ("__init__", "__main__")


@dataclass(frozen=True, order=True)
class Import:
    """One line that imports a module."""

    importer: str
    line: int
    imported: str

    def __str__(self) -> str:
        return f"{self.importer} -> {self.imported} (line {self.line})"


@dataclass(frozen=True)
class Project:
    """What pyproject.toml says about the packages."""

    root: Path
    packages: tuple[str, ...]
    layers: tuple[tuple[str, ...], ...]
    folders: tuple[Path, ...]

    @property
    def drawing(self) -> Path:
        return self.root / DRAWING


@dataclass(frozen=True)
class Graph:
    """All modules and the imports between them."""

    modules: frozenset[str]
    imports: tuple[Import, ...]

    def folders(self, package: str) -> list[str]:
        """Return the package and every folder with modules in it, however deep."""
        found = {package}
        for module in self.modules:
            parent = module.rpartition(".")[0]
            while parent.startswith(f"{package}."):
                found.add(parent)
                parent = parent.rpartition(".")[0]
        return sorted(found)


@dataclass(frozen=True)
class RoomMap:
    """The rooms of one package or folder, and what they import from one another."""

    package: str
    arrows: Mapping[str, frozenset[str]]
    folders: frozenset[str]
    imports: tuple[Import, ...]

    @cached_property
    def circles(self) -> list[list[str]]:
        """Return the sets of more than one room that all reach one another."""
        reached = {room: self._reached(room) for room in self.arrows}
        circles = {
            frozenset(other for other in reached[room] if room in reached[other])
            for room in self.arrows
        }
        return sorted(sorted(circle) for circle in circles if len(circle) > 1)

    @cached_property
    def levels(self) -> dict[str, int]:
        """Return every room's level; a room that imports no other room has level 1."""
        groups = {room: frozenset({room}) for room in self.arrows}
        for circle in self.circles:
            groups.update(dict.fromkeys(circle, frozenset(circle)))

        @cache
        def level(group: frozenset[str]) -> int:
            below = {groups[other] for room in group for other in self.arrows[room]} - {group}
            return 1 + max((level(other) for other in below), default=0)

        return {room: level(groups[room]) for room in self.arrows}

    @property
    def height(self) -> int:
        return max(self.levels.values(), default=0)

    @property
    def arrow_count(self) -> int:
        return sum(len(others) for others in self.arrows.values())

    def rows(self) -> list[tuple[int, list[str]]]:
        """Return the levels with their rooms, the highest level first."""
        return [
            (level, sorted(room for room in self.arrows if self.levels[room] == level))
            for level in range(self.height, 0, -1)
        ]

    def label(self, room: str) -> str:
        return f"{room}/" if room in self.folders else room

    def imports_of(self, circle: Iterable[str]) -> list[Import]:
        """Return the imports between the rooms of a circle."""
        rooms = set(circle)
        return [
            each
            for each in self.imports
            if {room_of(self.package, each.importer), room_of(self.package, each.imported)} <= rooms
        ]

    def _reached(self, start: str) -> frozenset[str]:
        found: set[str] = set()
        waiting = [start]
        while waiting:
            news = self.arrows[waiting.pop()] - found
            found |= news
            waiting.extend(news)
        return frozenset(found)


def read_project(root: Path) -> Project:
    """Read packages, layers and source folders from pyproject.toml."""
    tool = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    packages = tuple(sorted(tool["importlinter"]["root_packages"]))
    folders = tuple(root / name for name in tool["hatch"]["build"]["dev-mode-dirs"])
    for contract in tool["importlinter"]["contracts"]:
        if contract["type"] == "layers":
            layers = tuple(
                tuple(name.strip() for name in layer.split("|")) for layer in contract["layers"]
            )
            if sorted(name for layer in layers for name in layer) == list(packages):
                return Project(root, packages, layers, folders)
    raise SystemExit("pyproject.toml has no layers contract that names every root package once.")


def read_graph(project: Project) -> Graph:
    """Read the imports of the project's packages; the project's code is not run."""
    before = list(sys.path)
    sys.path[:0] = [str(folder) for folder in project.folders]
    importlib.invalidate_caches()
    try:
        found = grimp.build_graph(
            *project.packages, include_external_packages=False, cache_dir=None
        )
    finally:
        sys.path[:] = before
    imports = {
        Import(importer, detail["line_number"], imported)
        for importer in found.modules
        for imported in found.find_modules_directly_imported_by(importer)
        for detail in found.get_import_details(importer=importer, imported=imported)
    }
    return Graph(frozenset(found.modules), tuple(sorted(imports)))


def room_of(package: str, module: str) -> str | None:
    """Return the room that a module belongs to, or None if it is in none of this package."""
    inside, found, rest = module.partition(f"{package}.")
    room = rest.partition(".")[0]
    return room if found and not inside and room not in _NO_ROOMS else None


def map_rooms(graph: Graph, package: str) -> RoomMap:
    """Return the rooms of a package or folder."""
    arrows: dict[str, set[str]] = {}
    folders = set()
    for module in sorted(graph.modules):
        room = room_of(package, module)
        if room is not None:
            arrows.setdefault(room, set())
            if module != f"{package}.{room}":
                folders.add(room)
    imports = []
    for each in graph.imports:
        if each.importer.endswith(".__main__"):
            continue
        importer, imported = room_of(package, each.importer), room_of(package, each.imported)
        if importer is not None and imported is not None and importer != imported:
            arrows[importer].add(imported)
            imports.append(each)
    frozen = {room: frozenset(others) for room, others in arrows.items()}
    return RoomMap(package, frozen, frozenset(folders), tuple(imports))


def circles_within(graph: Graph, package: str) -> list[tuple[RoomMap, list[str]]]:
    """Return the circles of a package and of every folder in it."""
    maps = [map_rooms(graph, folder) for folder in graph.folders(package)]
    return [(rooms, circle) for rooms in maps for circle in rooms.circles]


def table(maps: Iterable[RoomMap]) -> str:
    """Return one line of figures per package."""
    rows = [
        (each.package, len(each.arrows), each.height, each.arrow_count, len(each.circles))
        for each in maps
    ]
    width = max(len(str(row[0])) for row in [_COLUMNS, *rows])
    lines = [
        f"{row[0]:<{width}}" + "".join(f"{cell:>9}" for cell in row[1:])
        for row in [_COLUMNS, *rows]
    ]
    return "\n".join(lines)


def circle_text(rooms: RoomMap, circle: Sequence[str]) -> str:
    """Return a circle and the imports that make it."""
    lines = [f"Circle in {rooms.package}: {', '.join(circle)}"]
    return "\n".join([*lines, *(f"  {each}" for each in rooms.imports_of(circle))])


def package_text(rooms: RoomMap) -> str:
    """Return the rooms of one package level by level, each with the rooms it imports."""
    figures = [
        _count(len(rooms.arrows), "room"),
        _count(rooms.height, "level"),
        _count(rooms.arrow_count, "arrow"),
        _count(len(rooms.circles), "circle"),
    ]
    lines = [f"{rooms.package}: {', '.join(figures)}"]
    for level, row in rooms.rows():
        lines += ["", f"level {level}"]
        for room in row:
            others = ", ".join(rooms.label(other) for other in sorted(rooms.arrows[room]))
            lines.append(f"  {rooms.label(room)}" + (f" -> {others}" if others else ""))
    return "\n".join(lines)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# The drawing. All lengths are whole pixels of a drawing 1200 wide.
_WIDTH: Final = 1200
_EDGE: Final = 16
_GAP: Final = 12
_LEAST: Final = 230
_HEAD: Final = 34
_LEFT: Final = 34
_RIGHT: Final = 10
_CHIP: Final = 22
_CHIP_GAP: Final = 5
_ROW_GAP: Final = 6
_CAPTION: Final = (
    "A box is a package. It imports only from boxes further down.",
    "A row is a level of a package. A room imports only from rows further down.",
    "A room with a slash is a folder.",
)
_CIRCLES: Final = "Red rooms import one another in a circle."
_STYLE: Final = """
text { font: 12px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #1b1f24; }
.name { font-size: 14px; font-weight: bold; }
.small, .level { fill: #4b5563; }
.room, .level { text-anchor: middle; }
.page { fill: #eef0f3; }
.box { fill: #ffffff; stroke: #6b7280; }
.line { stroke: #d5d9e0; }
.module { fill: #dfe9f7; stroke: #9db4d3; }
.folder { fill: #dcefdf; stroke: #93bd9b; }
.circle { fill: #fbdcd9; stroke: #b3261e; stroke-width: 2; }
"""


def draw(project: Project, maps: Mapping[str, RoomMap]) -> str:
    """Return the packages in their layers, each with its rooms by level, as an SVG."""
    parts: list[str] = []
    top = _EDGE
    for layer in project.layers:
        widths = _widths([maps[package] for package in layer])
        heights = [_box_height(maps[package], widths[package]) for package in layer]
        left = _EDGE
        for package in layer:
            parts += _box(maps[package], left, top, widths[package], max(heights))
            left += widths[package] + _GAP
        top += max(heights) + _GAP
    circles = any(each.circles for each in maps.values())
    for line in [*_CAPTION, _CIRCLES] if circles else _CAPTION:
        top += 18
        parts.append(f'<text class="small" x="{_EDGE}" y="{top - 6}">{line}</text>')
    height = top + _EDGE - 6
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}"'
        f' viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="title">',
        "<!-- Made by `make map`. -->",
        '<title id="title">The packages in their layers, and their rooms by level</title>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{_WIDTH}" height="{height}" rx="8"/>',
    ]
    return "\n".join([*head, *parts, "</svg>", ""])


def _chip_width(label: str) -> int:
    return len(label) * 73 // 10 + 14


def _widths(layer: Sequence[RoomMap]) -> dict[str, int]:
    """Share the width of the drawing among the packages of a layer, by how much they show."""
    chips = {
        each.package: [_chip_width(each.label(room)) for room in each.arrows] for each in layer
    }
    least = {
        package: max(_LEAST, _LEFT + _RIGHT + max(row, default=0)) for package, row in chips.items()
    }
    free = _WIDTH - 2 * _EDGE - _GAP * (len(layer) - 1) - sum(least.values())
    total = sum(sum(row) for row in chips.values()) or 1
    return {package: least[package] + free * sum(row) // total for package, row in chips.items()}


def _lines(rooms: RoomMap, row: Sequence[str], width: int) -> list[list[str]]:
    """Break the rooms of a level into lines that fit the box."""
    lines: list[list[str]] = [[]]
    used = 0
    for room in row:
        chip = _chip_width(rooms.label(room)) + _CHIP_GAP
        if lines[-1] and used + chip - _CHIP_GAP > width - _LEFT - _RIGHT:
            lines.append([])
            used = 0
        lines[-1].append(room)
        used += chip
    return lines


def _row_height(lines: int) -> int:
    return lines * (_CHIP + _CHIP_GAP) - _CHIP_GAP + 2 * _ROW_GAP


def _box_height(rooms: RoomMap, width: int) -> int:
    rows = [len(_lines(rooms, row, width)) for _, row in rooms.rows()]
    return _HEAD + sum(_row_height(lines) for lines in rows)


def _box(rooms: RoomMap, left: int, top: int, width: int, height: int) -> list[str]:
    """Return one package."""
    figures = f"{_count(len(rooms.arrows), 'room')}, {_count(rooms.height, 'level')}"
    name = rooms.package.rpartition(".")[2]
    parts = [
        f'<rect class="box" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>',
        f'<text class="name" x="{left + 12}" y="{top + 22}">{escape(name)}</text>',
        f'<text class="small" x="{left + 26 + len(name) * 9}" y="{top + 22}">{figures}</text>',
    ]
    line = top + _HEAD
    for level, row in rooms.rows():
        lines = _lines(rooms, row, width)
        parts += [
            f'<path class="line" d="M{left + 1} {line}h{width - 2}"/>',
            f'<text class="level" x="{left + 18}" y="{line + _ROW_GAP + 15}">{level}</text>',
        ]
        for number, names in enumerate(lines):
            below = line + _ROW_GAP + number * (_CHIP + _CHIP_GAP)
            parts += _chips(rooms, names, left + _LEFT, below)
        line += _row_height(len(lines))
    return parts


def _chips(rooms: RoomMap, names: Sequence[str], left: int, top: int) -> list[str]:
    """Return one line of rooms."""
    in_circles = {room for circle in rooms.circles for room in circle}
    parts = []
    for room in names:
        label = rooms.label(room)
        width = _chip_width(label)
        kind = "folder" if room in rooms.folders else "module"
        kind = "circle" if room in in_circles else kind
        place = f'x="{left}" y="{top}" width="{width}" height="{_CHIP}"'
        parts += [
            f'<rect class="{kind}" {place} rx="4"/>',
            f'<text class="room" x="{left + width // 2}" y="{top + 15}">{escape(label)}</text>',
        ]
        left += width + _CHIP_GAP
    return parts


def check(project: Project, graph: Graph, drawing: str) -> str | None:
    """Return what is wrong with the drawing or with the imports it shows, in one sentence."""
    problems = []
    file = project.drawing
    if not file.exists() or file.read_text(encoding="utf-8") != drawing:
        problems.append("is not what the imports draw")
    found = [circle for package in project.packages for circle in circles_within(graph, package)]
    if found:
        names = ", ".join(sorted({rooms.package for rooms, _ in found}))
        problems.append(f"shows a tree with circles in {names}")
    return f"{DRAWING} {' and '.join(problems)}: run `make map`." if problems else None


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--package", metavar="NAME", help="print the rooms of a package or folder")
    either.add_argument(
        "--check", action="store_true", help="fail if the drawing is old or there is a circle"
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None, root: Path = ROOT) -> int:
    options = parse(words)
    project = read_project(root)
    graph = read_graph(project)
    if options.package:
        if not any(options.package in graph.folders(package) for package in project.packages):
            raise SystemExit(f"{options.package} is no package or folder of this project.")
        print(package_text(map_rooms(graph, options.package)))
        return 0
    maps = {package: map_rooms(graph, package) for package in project.packages}
    drawing = draw(project, maps)
    if options.check:
        problem = check(project, graph, drawing)
        print(problem or f"{DRAWING} is up to date, and there are no circles.")
        return 1 if problem else 0
    print(table(maps.values()))
    for package in project.packages:
        for rooms, circle in circles_within(graph, package):
            print(f"\n{circle_text(rooms, circle)}")
    project.drawing.write_text(drawing, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
