"""Checks of paths that a command is given, made before anything is begun."""

from __future__ import annotations

import os
from pathlib import Path

from failback.common.text import why
from failback.protocol.errors import ConfigError


def check_folder(option: str, path: Path) -> None:
    """Refuse a path under which no folder can be made or written.

    Raises:
        ConfigError: Names the option and what is in the way.
    """
    for each in (path, *path.absolute().parents):
        try:
            if not each.exists():
                continue
        except OSError as error:
            raise ConfigError(option, f"cannot write to {path}: {why(error)}") from error
        if not each.is_dir():
            raise ConfigError(option, f"cannot write to {path}: {each} is a file")
        if not os.access(each, os.W_OK | os.X_OK) or _is_of_kernel(each):
            raise ConfigError(option, f"cannot write to {path}: no right to write in {each}")
        return


def _is_of_kernel(path: Path) -> bool:
    """Tell whether a folder is one of /proc or /sys: root may write there, and can't."""
    parts = path.resolve().parts
    return parts[1:2] in (("proc",), ("sys",))


def run_id(option: str, text: str) -> str:
    """Return the id of a run that a user named, or a folder's name that becomes one.

    Raises:
        ConfigError: Names the option, and what an id may be.
    """
    import re

    from failback.analytics.lake.segment_ids import RUN_PATTERN

    if not re.fullmatch(RUN_PATTERN, text):
        problem = f'must be letters, digits, "-", "_" and single dots, got "{text}"'
        raise ConfigError(option, problem)
    return text
