"""Leaves out old looks at which nothing happened, so that a folder may be written for weeks. Pure.

Every look is kept for ten minutes, and for good around an outage. Around another event the looks
that prove it are kept. Of the rest, one in half a minute is kept for a day, then one in five
minutes. A look that is kept has the end of the last look that was left out before it. So looks that
were left out are no gap, and all conclusions stay the same.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, Final

import msgspec

from failback.analytics.observe.looks import Look
from failback.analytics.observe.observation import Observation

FRESH_SECONDS: Final = 600.0
SELDOM_SECONDS: Final = 30.0
"""Between looks at which nothing happened."""
OLD_SECONDS: Final = 86_400.0
SELDOM_OF_OLD_SECONDS: Final = 300.0
BEFORE_SECONDS: Final = 150.0
"""Before a master went. Its tables of that time show what it may have had in its file."""
AFTER_SECONDS: Final = 600.0
"""After it went, and after it was back: members come, and groups catch up."""
_PERIODS: Final = 5.0
"""Periods before and after an event. Some events are found a look or two late."""

Span = tuple[float, float]


def busy_spans(observation: Observation, every: float) -> list[Span]:
    """Return spans of time in which every look is kept, in their order."""
    finder, margin = observation.finder, _PERIODS * every
    spans = [(each.since - margin, each.until + margin) for each in finder.events]
    spans += [(each.since - margin, each.until + margin) for each in finder.gaps]
    for outage in observation.outages:
        for since, until in (outage.gone, *([outage.back] if outage.back else [])):
            spans.append((since - BEFORE_SECONDS, until + AFTER_SECONDS))
    joined: list[Span] = []
    for since, until in sorted(spans):
        if joined and since <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(until, joined[-1][1])
        else:
            joined.append((since, until))
    return joined


def thinned(looks: Iterable[Look], busy: Sequence[Span], now: float) -> Iterator[Look]:
    """Yield the looks that are kept, the first and the last among them.

    Args:
        looks: In their order.
        busy: Spans of all events until ``now``, as :func:`busy_spans` returns them.
        now: Seconds after run zero.
    """
    begins = [since for since, _ in busy]
    before: Look | None = None
    kept_at, left_out = 0.0, None
    for look, after in pairwise(chain(looks, (None,))):
        if look is None:
            return
        place = bisect_right(begins, look.ended) - 1
        is_busy = place >= 0 and look.ended <= busy[place][1]
        is_turn = _state(before) != _state(look) or _state(look) != _state(after)
        age = now - look.ended
        seldom = SELDOM_SECONDS if age < OLD_SECONDS else SELDOM_OF_OLD_SECONDS
        if is_busy or is_turn or age < FRESH_SECONDS or look.ended - kept_at >= seldom:
            if left_out is not None:
                look = msgspec.structs.replace(look, seen_until=left_out)
            yield look
            kept_at, left_out = look.ended, None
        else:
            left_out = look.ended
        before = look


def _state(look: Look | None) -> Any:
    """Return the part of a look that changes only with an event."""
    if look is None:
        return None
    brokers = [(each.place, each.addr, each.state, each.is_unreachable) for each in look.brokers]
    return look.listings, brokers, [each.config for each in look.brokers if each.config]
