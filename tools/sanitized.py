"""Run tests on kernels that look for faults of memory: ``make asan``.

The kernels are built with AddressSanitizer and UBSan into build/asan, where the tests find them
before the usual ones. A read or write outside of memory, or undefined behaviour, ends the run with
a report. Python takes all its memory from malloc here, so that the end of each object is known.
Arguments go to pytest; without any, the tests run that compare kernels with their twins in Python
and send them damaged and random input.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools.build_native import CannotBuild, build, find_compiler  # noqa: E402 - a script

FOLDER: Final = ROOT / "build" / "asan"
TESTS: Final = [
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/unit/*/test_native_*.py")),
    "tests/unit/broker/test_server_runs.py",
]


def pytest_configure() -> None:
    """Let the package of the broker find these kernels first. pytest calls this in each process."""
    import failback.broker

    failback.broker.__path__.insert(0, str(FOLDER))
    from failback.broker.native import kernels

    assert kernels is not None
    assert Path(str(kernels.__file__)).parent == FOLDER


def main(arguments: list[str]) -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        build(FOLDER, sanitize=True)
        asked = [find_compiler(), "-print-file-name=libasan.so"]
    except CannotBuild as reason:
        print(f"asan: not run: {reason}", file=sys.stderr)
        return 1 if os.environ.get("FAILBACK_REQUIRE") == "all" else 0
    library = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    # Python itself leaves objects behind at its end.
    checks = {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}
    environment = {**os.environ, **checks, "LD_PRELOAD": library, "PYTHONMALLOC": "malloc"}
    # Only what Python writes is captured: a report must reach the terminal before the process ends.
    words = ["-m", "pytest", "-p", "tools.sanitized", "-q", "-m", "not soak", "--capture=sys"]
    command = [sys.executable, *words, *(arguments or TESTS)]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
