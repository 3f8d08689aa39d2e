"""What /livez, /readyz, /drainz and /metrics say about a broker."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from failback.client.remoting.http_server import JSON, PROMETHEUS, Endpoint, Reply

logger = logging.getLogger(__name__)

ORDERS: Final = ("/drainz",)
RUNNING: Final = "running"


@dataclass(slots=True)
class BrokerPhase:
    """Where a broker is between start and stop."""

    name: str = "starting"
    """``starting``, ``recovering`` or ``running``."""
    is_draining: bool = False
    """Sends are refused with code 14: the broker is being stopped, or got a POST to /drainz.
    A DELETE there takes that back."""
    is_stopping: bool = False
    fatal: Exception | None = None
    """Why the store takes no more writes."""


@dataclass(slots=True, kw_only=True)
class HealthEndpoints:
    """Answers probes and scrapes.

    Readiness never depends on whether the pair's other member is there: an outage would empty the
    pair. Under the guarded rules a slave whose log is not its master's is not ready.
    """

    phase: BrokerPhase
    has_name_servers: Callable[[], bool]
    registered_at: Callable[[], int]
    remaining_bytes: Callable[[], int]
    render_metrics: Callable[[], bytes]
    replication_problem: Callable[[], object | None] = lambda: None

    def by_path(self) -> dict[str, Endpoint]:
        return {
            "/livez": self.livez,
            "/readyz": self.readyz,
            "/drainz": self.drainz,
            "/metrics": self.metrics,
        }

    def livez(self, _method: str) -> Reply:
        """Say that the loop turns, which answering proves, and that the store is not dead."""
        if self.phase.fatal is not None:
            return _unavailable(f"the store failed: {self.phase.fatal}")
        return Reply(HTTPStatus.OK, b"ok\n")

    def readyz(self, _method: str) -> Reply:
        problem = self._why_not_ready()
        return _unavailable(problem) if problem else Reply(HTTPStatus.OK, b"ok\n")

    def _why_not_ready(self) -> str | None:
        if self.phase.is_draining:
            return "draining"
        if self.phase.name != RUNNING:
            return self.phase.name
        if self.has_name_servers() and not self.registered_at():
            return "not registered"
        problem = self.replication_problem()
        return None if problem is None else f"replication stopped: {problem}"

    def drainz(self, method: str) -> Reply:
        """POST: refuse sends from now on. DELETE: take them again.

        GET answers 200 once no connected slave is behind.
        """
        if method in ("POST", "DELETE"):
            if self.phase.is_stopping:
                return Reply(HTTPStatus.CONFLICT, b"already stopping\n")
            self.phase.is_draining = method == "POST"
            logger.warning("draining %s", "begins" if method == "POST" else "is taken back")
            if method == "DELETE":
                return Reply(HTTPStatus.OK, b"sends are taken again\n")
        remaining = self.remaining_bytes()
        done = self.phase.is_draining and not remaining
        body = json.dumps({"remaining": remaining}).encode() + b"\n"
        return Reply(HTTPStatus.OK if done else HTTPStatus.ACCEPTED, body, JSON)

    def metrics(self, _method: str) -> Reply:
        return Reply(HTTPStatus.OK, self.render_metrics(), PROMETHEUS)


def _unavailable(problem: str) -> Reply:
    return Reply(HTTPStatus.SERVICE_UNAVAILABLE, f"{problem}\n".encode())
