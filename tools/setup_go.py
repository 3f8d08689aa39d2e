"""Build our member on Apache's Go client: ``python tools/setup_go.py``.

    go-member-*/member    tests/go/member, built from the modules that its go.sum names

It lands under ``~/.cache/failback`` and stays; ``*`` is a digest of the sources. Go is the one on
the path, else one from PyPI. Tests import the function, tools/setup_java.py calls it.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEMBER = ROOT / "tests" / "go" / "member"

sys.path.insert(0, str(ROOT))
from tools.setup import SetupError  # noqa: E402 - a script sees tools/ only
from tools.setup_java import cache_folder, once  # noqa: E402
from tools.setup_kube import find_go, run, say  # noqa: E402


def ensure_go_member() -> Path:
    """Return the program of tests/go/member, built."""
    sources = [MEMBER / name for name in ("go.mod", "go.sum", "main.go")]
    return once(cache_folder() / "go-member", sources, _build) / "member"


def _build(folder: Path) -> None:
    say("building the member on Apache's Go client")
    command = [find_go(), "build", "-trimpath", "-o", str(folder / "member"), "."]
    environment = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    run(command, folder=MEMBER, environment=environment)


def main() -> int:
    try:
        print(f"setup: the Go member is {ensure_go_member()}")
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
