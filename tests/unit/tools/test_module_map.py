"""The figures and the drawing of the imports inside each package."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.module_map import (
    ROOT,
    Graph,
    circle_text,
    circles_within,
    draw,
    main,
    map_rooms,
    read_graph,
    read_project,
)

PYPROJECT = """
[tool.hatch.build]
dev-mode-dirs = ["one", "two"]
[tool.importlinter]
root_packages = ["madeup.high", "madeup.low"]
[[tool.importlinter.contracts]]
type = "layers"
layers = ["madeup.high", "madeup.low"]
"""
# Two source folders share the namespace, and the second has a package without __init__.py.
MODULES = {
    "one/madeup/low/__init__.py": "from madeup.low import alone",
    "one/madeup/low/__main__.py": "from madeup.low import a, typed",
    "one/madeup/low/a.py": "from . import b, base\nfrom .deep import x\nfrom .deep import y",
    "one/madeup/low/b.py": "import json\n\nfrom . import c",
    "one/madeup/low/c.py": "from . import base\nfrom .b import name",
    "one/madeup/low/deep/__init__.py": "",
    "one/madeup/low/deep/x.py": "def f():\n    from . import y",
    "one/madeup/low/deep/y.py": "from . import x\nfrom .. import base",
    "one/madeup/low/base.py": "",
    "one/madeup/low/alone.py": "",
    "one/madeup/low/typed.py": "import typing\nif typing.TYPE_CHECKING:\n    from . import base",
    "two/madeup/high/first.py": "from madeup.low import a",
    "two/madeup/high/second.py": "",
}
TABLE = """\
package        rooms   levels   arrows  circles
madeup.high        2        1        0        0
madeup.low         7        3        8        1
"""
CIRCLES = """
Circle in madeup.low: b, c
  madeup.low.b -> madeup.low.c (line 3)
  madeup.low.c -> madeup.low.b (line 2)

Circle in madeup.low.deep: x, y
  madeup.low.deep.x -> madeup.low.deep.y (line 2)
  madeup.low.deep.y -> madeup.low.deep.x (line 1)
"""
LOW = """\
madeup.low: 7 rooms, 3 levels, 8 arrows, 1 circle

level 3
  a -> b, base, deep/

level 2
  b -> c
  c -> b, base
  deep/ -> base
  typed -> base

level 1
  alone
  base
"""
MOST_ROOMS = {
    "failback.analytics": 15,
    "failback.broker": 14,
    "failback.chaos": 14,
    "failback.client": 12,
    "failback.operator": 13,
}
PROJECT = read_project(ROOT)


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    return tmp_path


def without_circles(root: Path) -> None:
    (root / "one/madeup/low/c.py").write_text("from . import base\n")
    (root / "one/madeup/low/deep/x.py").write_text("")


@pytest.fixture(scope="module")
def graph() -> Graph:
    return read_graph(PROJECT)


def test_figures_and_circles_of_a_made_up_tree(
    made_up: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], made_up) == 0
    assert capsys.readouterr().out == TABLE + CIRCLES


def test_levels_and_arrows_of_a_package(made_up: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--package", "madeup.low"], made_up) == 0
    assert capsys.readouterr().out == LOW
    assert not (made_up / "docs/map.svg").exists()


def test_a_folder_inside_a_package(made_up: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--package", "madeup.low.deep"], made_up) == 0
    assert capsys.readouterr().out.splitlines() == [
        "madeup.low.deep: 2 rooms, 1 level, 2 arrows, 1 circle",
        "",
        "level 1",
        "  x -> y",
        "  y -> x",
    ]


@pytest.mark.parametrize("name", ["madeup.none", "madeup.low.base", "madeup"])
def test_what_is_no_package_is_named(made_up: Path, name: str) -> None:
    with pytest.raises(SystemExit, match=f"{name} is no package or folder"):
        main(["--package", name], made_up)


def test_check_fails_while_there_is_a_circle(
    made_up: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([], made_up)
    capsys.readouterr()
    assert main(["--check"], made_up) == 1
    assert capsys.readouterr().out == (
        "docs/map.svg shows a tree with circles in madeup.low, madeup.low.deep: run `make map`.\n"
    )


def test_check_fails_while_the_drawing_is_old_or_missing(
    made_up: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    without_circles(made_up)
    old = "docs/map.svg is not what the imports draw: run `make map`.\n"
    assert main(["--check"], made_up) == 1
    assert capsys.readouterr().out == old
    main([], made_up)
    assert main(["--check"], made_up) == 0
    capsys.readouterr()
    (made_up / "one/madeup/low/alone.py").write_text("from . import base\n")
    assert main(["--check"], made_up) == 1
    assert capsys.readouterr().out == old


def test_packages_without_a_layer_are_refused(made_up: Path) -> None:
    text = PYPROJECT.replace('layers = ["madeup.high", ', "layers = [")
    (made_up / "pyproject.toml").write_text(text)
    with pytest.raises(SystemExit, match="names every root package once"):
        main([], made_up)


def test_the_drawing_marks_circles(made_up: Path) -> None:
    main([], made_up)
    drawing = (made_up / "docs/map.svg").read_text()
    assert drawing.count('class="circle"') == 2
    assert "Red rooms" in drawing
    without_circles(made_up)
    main([], made_up)
    drawing = (made_up / "docs/map.svg").read_text()
    assert 'class="circle"' not in drawing
    assert "Red rooms" not in drawing


def test_every_module_on_disk_is_in_the_graph(graph: Graph) -> None:
    found = {
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        for folder in PROJECT.folders
        for path in folder.glob("failback/**/*.py")
    }
    assert found - graph.modules == set()


def test_no_package_and_no_folder_inside_has_a_circle(graph: Graph) -> None:
    found = [
        circle_text(rooms, circle)
        for package in PROJECT.packages
        for rooms, circle in circles_within(graph, package)
    ]
    assert not found, "\n".join(found)


def test_a_package_has_few_rooms(graph: Graph) -> None:
    for package, most in MOST_ROOMS.items():
        rooms = map_rooms(graph, package)
        assert len(rooms.arrows) <= most, ", ".join(sorted(rooms.arrows))


def test_the_drawing_is_what_the_tool_draws(graph: Graph) -> None:
    maps = {package: map_rooms(graph, package) for package in PROJECT.packages}
    assert PROJECT.drawing.exists(), "run `make map`"
    assert PROJECT.drawing.read_text() == draw(PROJECT, maps), "run `make map`"
