"""What the health endpoints of a broker answer."""

from __future__ import annotations

import json

from failback.broker.monitoring.health_endpoints import RUNNING, BrokerPhase, HealthEndpoints


class Lab:
    def __init__(self, name: str = RUNNING) -> None:
        self.phase = BrokerPhase(name)
        self.name_servers = True
        self.registered = 1
        self.remaining = 0
        self.endpoints = HealthEndpoints(
            phase=self.phase,
            has_name_servers=lambda: self.name_servers,
            registered_at=lambda: self.registered,
            remaining_bytes=lambda: self.remaining,
            render_metrics=lambda: b"metric 1\n",
        )

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        reply = self.endpoints.by_path()[path](method)
        return int(reply.status), reply.body.decode().strip()


def test_ready_means_running_and_registered() -> None:
    lab = Lab("recovering")
    assert lab.get("/readyz") == (503, "recovering")
    lab.phase.name = RUNNING
    assert lab.get("/readyz") == (200, "ok")
    lab.registered = 0
    assert lab.get("/readyz") == (503, "not registered")
    lab.name_servers = False
    assert lab.get("/readyz") == (200, "ok")
    lab.phase.is_draining = True
    assert lab.get("/readyz") == (503, "draining")
    assert lab.get("/livez") == (200, "ok")


def test_a_dead_store_is_not_alive() -> None:
    lab = Lab()
    lab.phase.fatal = OSError("no space left on device")
    assert lab.get("/livez") == (503, "the store failed: no space left on device")


def test_a_drain_is_asked_for_and_watched() -> None:
    lab = Lab()
    lab.remaining = 700
    assert lab.get("/drainz")[0] == 202
    assert not lab.phase.is_draining
    status, body = lab.get("/drainz", "POST")
    assert (status, json.loads(body)) == (202, {"remaining": 700})
    assert lab.phase.is_draining
    lab.remaining = 0
    assert lab.get("/drainz")[0] == 200
    assert lab.get("/drainz", "DELETE") == (200, "sends are taken again")
    assert not lab.phase.is_draining
    lab.phase.is_stopping = lab.phase.is_draining = True
    assert lab.get("/drainz", "POST") == (409, "already stopping")
    assert lab.get("/drainz", "DELETE") == (409, "already stopping")
    assert lab.phase.is_draining
