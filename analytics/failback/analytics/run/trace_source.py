"""Whether a run was made from a trace. Pure.

A trace has no assignments, no commits and no send-backs, so no rule that names a cause has its
inputs. A handling that is absent proves nothing: its trace may have been dropped. A report from a
trace therefore never passes; its counts of repeats stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SOURCE: Final = "trace"
OBSERVED: Final = "observe"
"""``source`` of a run that was seen from outside; it may have deliveries from a trace."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Where clients write it by default."""


def is_trace(run: Mapping[str, Any]) -> bool:
    """Whether a run (``run.json``) was made from a trace."""
    return run.get("source") == SOURCE


def lacks_holdings(run: Mapping[str, Any]) -> bool:
    """Whether a run may have deliveries, and has no assignments, commits and send-backs."""
    return run.get("source") in (SOURCE, OBSERVED)
