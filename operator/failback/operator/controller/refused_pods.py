"""Why a pod of ours is not made: the newest event about it of the object that is to make it.

A StatefulSet or a Job has no condition for it. Quota, LimitRange, Pod Security, an admission
webhook and a missing account all refuse the pod and not the object, which then tries for ever.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Final

from failback.kube.asynchronous import Kube
from failback.kube.errors import ApiError
from failback.operator.planning.observed.observed import Object

_PATIENCE_SECONDS: Final = 3.0
"""A pod that is replaced is missing for a moment."""
_ASK_SECONDS: Final = 10.0
_AT_ONCE: Final = 3  # a message names no more
_PREAMBLE: Final = re.compile(
    r'^([Cc]reate (Pod|Claim) .* failed error: |Error creating: )(pods "[^"]*" is forbidden: )?'
)
Missing = dict[str, tuple[float, str]]
"""Pod that is not there → when it is asked about, by the monotonic clock, and what was said."""


async def refused_pods(kube: Kube, known: Missing, makers: Mapping[str, Object]) -> dict[str, str]:
    """Return, of pods that were refused last, what refused them.

    Args:
        known: What is remembered of the same resource.
        makers: Pod that is not there (of a Job the Job's name) → what is to make it.
    """
    now = time.monotonic()
    for pod in known.keys() - makers.keys():
        del known[pod]
    for pod in makers:
        known.setdefault(pod, (now + _PATIENCE_SECONDS, ""))
    due = sorted((at, pod) for pod, (at, _) in known.items() if at <= now)[:_AT_ONCE]
    answers = await asyncio.gather(*(_refusal(kube, pod, makers[pod]) for _, pod in due))
    for (_, pod), words in zip(due, answers, strict=True):
        known[pod] = (now + _ASK_SECONDS, words)
    return {pod: words for pod, (_, words) in known.items() if words}


async def _refusal(kube: Kube, pod: str, maker: Object) -> str:
    """Return the words of the newest event about a pod, if they are a warning.

    An operator may not be allowed to list events: then nothing is known.
    """
    metadata = maker["metadata"]
    fields = f"involvedObject.uid={metadata['uid']}"
    try:
        found = await kube.list_all("Event", metadata["namespace"], fields=fields)
    except ApiError:
        return ""
    if maker["kind"] == "StatefulSet":  # of several pods, perhaps
        found = [each for each in found if f"Pod {pod} " in str(each.get("message"))]
    newest = max(found, key=_at, default={})
    if newest.get("type") != "Warning":
        return ""
    return _PREAMBLE.sub("", str(newest.get("message")))


def _at(event: Object) -> str:
    return str(event.get("lastTimestamp") or event.get("eventTime") or "")
