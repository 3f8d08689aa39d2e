"""Places where a test can have the harness die without a word.

``FAILBACK_CRASH_AT=NAME`` makes the process kill itself with SIGKILL when it gets there. What must
hold at each of them: ``failback experiment heal`` leaves no fault behind and closes the folder.
"""

from __future__ import annotations

import os
import signal
from typing import Final

VARIABLE: Final = "FAILBACK_CRASH_AT"

POINTS: Final = (
    "prepared",
    "ledger-written",
    "held",
    "signalled",
    "dead",
    "files-saved",
    "files-replaced",
    "effect-proved",
    "before-release",
    "released",
    "before-continue",
    "consumers-ended",
    "before-consumers-start",
    "handlers-set",
    "unsubscribed",
    "link-cut",
    "before-join",
    "fault-set",
    "before-end",
    "scaled",
    "drained",
    "sealed",
    "closed-written",
)


def crash_point(name: str) -> None:
    """Die here if this is the point that was asked for."""
    if os.environ.get(VARIABLE) == name:
        os.kill(os.getpid(), signal.SIGKILL)
