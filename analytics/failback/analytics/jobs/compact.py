"""Merges the small files of closed runs: ``python -m failback.analytics.jobs.compact LAKE``.

The same as ``python -m failback.analytics.lake compact``, for who starts jobs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from failback.analytics.jobs.lake import main as lake_main


def main(argv: Sequence[str] | None = None) -> int:
    """Run it in this process; Spark is not needed for copying."""
    return lake_main(["compact", *(sys.argv[1:] if argv is None else argv)])


if __name__ == "__main__":
    raise SystemExit(main())
