"""``python -m failback.chaos.workload``: see the package."""

import sys

from failback.chaos.workload import main

if __name__ == "__main__":
    sys.exit(main())
