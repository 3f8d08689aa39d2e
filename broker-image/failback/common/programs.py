"""Where programs of the system lie."""

from __future__ import annotations

import os
import shutil
from typing import Final

_OF_ROOT: Final = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def find_program(name: str) -> str | None:
    """Return the path of a program, also of one in a folder that only root's PATH has."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *_OF_ROOT]))
