"""Files that come with the command: the demo's cluster and experiment, examples, a page."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

EXPERIMENTS: Final = {"failback-demo": "experiment.yaml"}
"""Experiments on the demo's cluster: their names, and the file of each."""
_CLUSTER: Final = "cluster.yaml"


@dataclass(frozen=True, slots=True)
class BundledExperiment:
    """An experiment that comes with the program, and the cluster that it is made for."""

    name: str
    path: Path
    cluster: Path
    text: str
    """What it does, from the comment at the top of its file."""


def bundled(name: str) -> Path:
    """Return the path of a file that is installed with this package."""
    return Path(str(resources.files("failback.cli"))) / "data" / name


def bundled_experiments() -> list[BundledExperiment]:
    """Return every experiment that comes with the program: the demo, and one for each fault."""
    found = [_read(name, bundled(file), bundled(_CLUSTER)) for name, file in EXPERIMENTS.items()]
    folder = _examples()
    if folder is not None:
        files = sorted(each for each in folder.glob("*.yaml") if each.name != _CLUSTER)
        found += [_read(each.stem, each, folder / _CLUSTER) for each in files]
    return found


def _examples() -> Path | None:
    """Return the folder with an example of each fault: installed, or in the checkout."""
    installed = bundled("faults")
    checkout = Path(__file__).parents[4] / "examples" / "faults"
    return next((each for each in (installed, checkout) if (each / _CLUSTER).is_file()), None)


def conditions_page() -> str:
    """Return the page that explains every reason of a condition; empty where it is not installed.

    Images hold no pages.
    """
    checkout = Path(__file__).parents[4] / "docs" / "reference" / "conditions.md"
    for path in (bundled("conditions.md"), checkout):
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""


def _read(name: str, path: Path, cluster: Path) -> BundledExperiment:
    words = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() == "---":
            continue
        if not line.startswith("#"):
            break
        words += line.removeprefix("#").split()
    first = " ".join(words).partition(". ")[0].rstrip(".")
    return BundledExperiment(name, path, cluster, f"{first}." if first else "")
