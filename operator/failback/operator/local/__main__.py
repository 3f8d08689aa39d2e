"""``python -m failback.operator.local ROOT``: the background runtime."""

import sys

from failback.operator.local.background import main

sys.exit(main(sys.argv[1:]))
