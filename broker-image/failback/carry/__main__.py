"""Entry point of ``python -m failback.carry``, for hosts without the operator's package."""

from __future__ import annotations

import sys

from failback.carry.command import main

if __name__ == "__main__":
    sys.exit(main())
