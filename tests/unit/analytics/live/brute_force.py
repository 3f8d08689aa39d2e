"""What is re-consumed, counted message by message instead of by differences."""

from __future__ import annotations

from collections.abc import Mapping


def asked_anew(done: Mapping[str, Mapping[int, int]], told: Mapping[str, Mapping[int, int]]) -> int:
    """Messages below ``done`` that a consumer gets which begins where it is ``told`` to."""
    again = 0
    for entry, queues in done.items():
        for queue, offset in queues.items():
            handled = set(range(offset))
            again += len(handled & set(range(told.get(entry, {}).get(queue, 0), offset)))
    return again
