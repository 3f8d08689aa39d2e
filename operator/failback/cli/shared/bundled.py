"""Files that come with the command: the demo's cluster and experiment."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

EXPERIMENTS: Final = {"failback-demo": "experiment.yaml"}
"""Named scenarios: what `failback run NAME` knows, and the file of each."""


def bundled(name: str) -> Path:
    """Return the path of a file that is installed with this package."""
    return Path(str(resources.files("failback.cli"))) / "data" / name
