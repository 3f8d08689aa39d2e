"""Files that come with the command: the demo's cluster and experiment, the library, a page."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources, util
from pathlib import Path
from typing import Final

EXPERIMENTS: Final = {"failback-demo": "experiment.yaml"}
"""Experiments on the demo's cluster: their names, and the file of each."""
_CLUSTER: Final = "cluster.yaml"
_HEAD: Final = "failback.dev/"
"""Prefix of the annotations that say what an experiment is about."""


@dataclass(frozen=True, slots=True)
class BundledExperiment:
    """An experiment that comes with the program, and the cluster that it is made for."""

    name: str
    path: Path
    cluster: Path
    question: str
    expected: str = ""
    source: str = ""
    """Where the expected answer is from."""
    lasts: str = ""
    """How long each of its arms takes, with timers as they are."""
    catalogue: str = ""
    """Its entry in the catalogue of faults, such as F7; empty for another question."""
    start: str = ""
    """Options of ``failback up`` that its faults need, such as ``--faults disk``."""


def bundled(name: str) -> Path:
    """Return the path of a file that is installed with this package."""
    return Path(str(resources.files("failback.cli"))) / "data" / name


def bundled_paths() -> dict[str, Path]:
    """Return the file of every experiment that comes with the program: the demo, the library."""
    found = {name: bundled(file) for name, file in EXPERIMENTS.items()}
    return found | {each.stem: each for each in sorted(_library().glob("*.yaml"))}


def bundled_experiments() -> list[BundledExperiment]:
    """Return every experiment that comes with the program, with what its head says."""
    return [_read(name, path) for name, path in bundled_paths().items()]


def _library() -> Path:
    chaos = util.find_spec("failback.chaos")  # an image may be without it
    folders = chaos.submodule_search_locations if chaos is not None else None
    return Path(folders[0] if folders else "/nowhere") / "scenarios"


def _read(name: str, path: Path) -> BundledExperiment:
    from failback.common.bounded_yaml import load_all

    (document,) = load_all(path.read_text(encoding="utf-8"))
    head = {
        key.removeprefix(_HEAD): str(value)
        for key, value in document["metadata"].get("annotations", {}).items()
    }
    cluster = head.pop("cluster", "")
    where = path.parent / "clusters" / cluster if cluster else bundled(_CLUSTER)
    return BundledExperiment(name, path, where, **head)


def conditions_page() -> str:
    """Return the page that explains every reason of a condition; empty where it is not installed.

    Images hold no pages.
    """
    checkout = Path(__file__).parents[4] / "docs" / "reference" / "conditions.md"
    for path in (bundled("conditions.md"), checkout):
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""
