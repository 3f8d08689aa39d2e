"""Which Java a program would start here, and of which version it is."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path


def find_java() -> str | None:
    """Return the path of ``JAVA_HOME``'s Java, without that variable of the first in ``PATH``."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")


def version_of(java: str) -> tuple[str, int] | None:
    """Return what a Java calls itself and its major version, ``("11.0.22", 11)``.

    ``None``: it does not start, or does not tell its version.
    """
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=20, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    # Java 8 calls itself 1.8.0.
    said = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', done.stderr + done.stdout)
    return (said[1], int(said[2])) if said else None
