"""Fetch what the Spark tests read object stores and tables with: ``python tools/setup_spark.py``.

    spark-s3a-*      Hadoop's S3A and the modules of Amazon's SDK that it needs
    s3proxy-*        an S3-compatible server whose store is a folder
    lakehouse/*-*    Delta and Iceberg, and the Spark that both are made for

They land under ``~/.cache/failback`` and stay; the last ``*`` is a digest of what they were made
from. Uses the standard library only; tests import the
functions.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POMS = ROOT / "tests" / "spark"

sys.path.insert(0, str(ROOT))
from tools.setup import SetupError, need_java, run  # noqa: E402 - a script sees tools/ only
from tools.setup_java import cache_folder, fetch_jars, once  # noqa: E402


def ensure_s3a() -> Path:
    """Return the folder of the jars that ``FAILBACK_SPARK_JARS`` is to name."""
    return fetch_jars(POMS / "s3a" / "pom.xml", cache_folder() / "spark-s3a")


def ensure_s3_server() -> Path:
    """Return the folder of the S3 server's jars."""
    return fetch_jars(POMS / "s3proxy" / "pom.xml", cache_folder() / "s3proxy")


def ensure_lakehouse() -> tuple[Path, Path]:
    """Return the folder of the jars of Delta and Iceberg, and that of their Spark's Python."""
    of_ours = POMS / "lakehouse"
    base = cache_folder() / "lakehouse"
    wanted = of_ours / "requirements.txt"
    python = once(base / "python", [wanted], lambda target: _install(wanted, target))
    return fetch_jars(of_ours / "pom.xml", base / "jars"), python


def _install(wanted: Path, target: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--no-deps", "--target", str(target), "--requirement", str(wanted)])


def main() -> int:
    started = time.monotonic()
    try:
        need_java()
        folders = [ensure_s3a(), ensure_s3_server(), *ensure_lakehouse()]
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 2
    named = ", ".join(map(str, folders))
    print(f"setup: jars are in {named} ({time.monotonic() - started:.1f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
