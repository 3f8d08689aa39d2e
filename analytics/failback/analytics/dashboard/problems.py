"""The refusals as RFC 9457 problem documents; a type never changes its meaning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

from failback.analytics.web.problems import Problem

DASHBOARD_KINDS: Final[dict[str, tuple[int, str]]] = {
    "bad-cursor": (400, "The cursor is not valid"),
    "bad-body": (400, "The body cannot be read"),
    "unauthenticated": (401, "Somebody has to say who asks"),
    "forbidden": (403, "This is not allowed to you"),
    "cross-site": (403, "The request did not come from a page of this dashboard"),
    "not-found": (404, "There is nothing here"),
    "method-not-allowed": (405, "This method is not for this resource"),
    "already-running": (409, "It is running already"),
    "not-running": (409, "It is not running"),
    "no-report": (409, "The run has no report yet"),
    "too-large": (413, "The body is too large"),
    "wrong-host": (421, "The dashboard is not served under this name"),
    "unsupported-type": (415, "The body must be JSON"),
    "bad-request": (422, "The request is not valid"),
    "too-many": (429, "Too many requests"),
    "failed": (503, "It cannot be done now"),
    "not-ready": (503, "There is nothing to show yet"),
}


class DashboardProblem(Problem):
    """One refusal."""

    kinds: ClassVar[Mapping[str, tuple[int, str]]] = DASHBOARD_KINDS
    prefix: ClassVar[str] = "urn:failback:dashboard:"
