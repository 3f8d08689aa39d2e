"""Where the cluster of each run is, noted by this account outside of the run's folder.

A run folder may come from anywhere. So the folder decides neither which cluster a heal reaches nor
with which kubeconfig, root or socket: this note does, or the options of the command.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from failback.common.files import own_folder, read_object, state_folder
from failback.common.replacing import replace_file

logger = logging.getLogger(__name__)


def remember(run_dir: Path, note: Mapping[str, Any]) -> None:
    """Note where a run's cluster is. Without a place for notes, a heal needs its options."""
    try:
        file = _file(run_dir)
        own_folder(file.parent)
        replace_file(file, json.dumps({"run_dir": str(run_dir), **note}).encode())
    except (OSError, RuntimeError) as error:
        logger.warning("no note of where the run's cluster is: %s", error)


def recall(run_dir: Path) -> dict[str, Any]:
    """Return the note of a run; empty where this account has none."""
    try:
        file = _file(run_dir)
        own_folder(file.parent)
        note = read_object(file)
    except (OSError, RuntimeError, ValueError):
        return {}
    return note if note.get("run_dir") == str(run_dir) else {}


def forget(run_dir: Path) -> None:
    """Remove the note of a run that has nothing left to heal."""
    try:
        _file(run_dir).unlink(missing_ok=True)
    except (OSError, RuntimeError) as error:
        logger.debug("the note stays: %s", error)


def _file(run_dir: Path) -> Path:
    digest = hashlib.sha256(os.fsencode(run_dir)).hexdigest()
    return state_folder() / "runs" / f"{digest[:32]}.json"
