"""Build the pages of docs/ as a site in build/docs: ``python tools/build_docs.py``.

A link that leads nowhere and a page that no menu names are errors.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SITE: Final = ROOT / "build" / "docs"


def build(folder: Path = SITE) -> int:
    """Build the site into ``folder``; return the exit code of MkDocs."""
    command = [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict"]
    # The theme prints an advertisement for its successor otherwise.
    environment = dict(os.environ, NO_MKDOCS_2_WARNING="1")
    done = subprocess.run(
        [*command, "--site-dir", str(folder)], cwd=ROOT, env=environment, check=False
    )
    if done.returncode == 0:
        print(f"open {folder.relative_to(ROOT) if ROOT in folder.parents else folder}/index.html")
    return done.returncode


if __name__ == "__main__":
    sys.exit(build())
