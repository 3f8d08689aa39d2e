"""Write requirements/: ``python tools/hashes.py``, which is ``make hashes``.

A file there names what one installation holds, in versions of constraints.txt, with the hash of
every file that a package index has of them; pip takes no other file then. Each image has one;
``build`` is what images are built with, ``demo`` what a user installs. uv finds the hashes.
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools.setup import MINIMUM_PYTHON, requirements  # noqa: E402 - a script sees tools/ only

FOLDER: Final = ROOT / "requirements"
EXTRAS: Final = {
    "broker": ("broker",),
    "operator": ("operator",),
    "chaos": ("chaos", "report"),
    "analytics": ("serve", "spark"),
    "demo": ("demo",),
}
"""File → the extras of the project that it holds."""
SBOM: Final = "cyclonedx-bom"
HEAD: Final = "# Made by `make hashes`.\n"


def wanted() -> dict[str, list[str]]:
    """Return the requirements that each file has to meet."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    build = list(project["build-system"]["requires"])
    build += [each for each in requirements("dist") if each.startswith(SBOM)]
    found = {
        name: sorted({each for extra in extras for each in requirements(extra)})
        for name, extras in EXTRAS.items()
    }
    return {"build": build, **found}


def hashed(needs: list[str]) -> str:
    """Return the text of a file. Raises ``subprocess.CalledProcessError`` where uv does."""
    command = [sys.executable, "-m", "uv", "pip", "compile", "-", "--constraint", "constraints.txt"]
    command += ["--universal", "--python-version", ".".join(map(str, MINIMUM_PYTHON))]
    command += ["--generate-hashes", "--no-annotate", "--no-header", "--quiet"]
    done = subprocess.run(
        command, cwd=ROOT, input="\n".join(needs), stdout=subprocess.PIPE, text=True, check=True
    )
    return HEAD + done.stdout


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, needs in wanted().items():
        path = FOLDER / f"{name}.txt"
        path.write_text(hashed(needs), encoding="utf-8")
        print(f"hashes: {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
