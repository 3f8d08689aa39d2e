"""Pack what workers of a Spark cluster need into a file: ``python tools/pack_environment.py``.

The file is dist/failback.pex: Failback and its packages for this version of Python and this kind of
machine, without a Python and without pyspark, which the workers have. PEX makes it
(``pip install pex``). Kernels are left out: they are the broker's.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools.dist import make_wheel  # noqa: E402 - a script sees tools/ only
from tools.setup import requirements  # noqa: E402

OUT: Final = ROOT / "dist" / "failback.pex"
EXTRA: Final = "report"
_OF_THE_CLUSTER: Final = "pyspark"


def pack(target: Path) -> None:
    """Write the file. Raises ``subprocess.CalledProcessError`` where PEX does not."""
    spark = [each for each in requirements("spark") if not each.startswith(_OF_THE_CLUSTER)]
    with tempfile.TemporaryDirectory() as scratch:
        wheel = make_wheel(Path(scratch), kernels=False)
        command = [sys.executable, "-m", "pex", f"{wheel}[{EXTRA}]", *spark]
        command += ["--constraints", str(ROOT / "constraints.txt")]
        # What is not in the file, pyspark, is found where the cluster has it.
        command += ["--inherit-path=fallback", "--output-file", str(target)]
        subprocess.run(command, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT, help="default: dist/failback.pex")
    options = parser.parse_args()
    if importlib.util.find_spec("pex") is None:
        print("pack: PEX is missing: pip install pex -c constraints.txt", file=sys.stderr)
        return 2
    target: Path = options.out
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        pack(target)
    except subprocess.CalledProcessError as error:
        print(
            f"pack: {Path(error.cmd[2]).name} ended with exit code {error.returncode}",
            file=sys.stderr,
        )
        return 1
    print(f"pack: {target} has {target.stat().st_size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
