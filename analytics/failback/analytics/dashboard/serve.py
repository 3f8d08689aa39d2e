"""Runs the dashboard: one process, one event loop, one poller."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final

from fastapi import FastAPI

from failback.analytics.dashboard.events import EventHub
from failback.analytics.dashboard.experiments import Abort, Experiments
from failback.analytics.dashboard.http.access import Access
from failback.analytics.dashboard.http.app import create_app
from failback.analytics.dashboard.http.context import Shared
from failback.analytics.dashboard.http.metrics import (
    LOOK_SECONDS,
    LOOKS,
    READERS,
    DashboardMetrics,
)
from failback.analytics.dashboard.poller import Poller
from failback.analytics.dashboard.settings import DashboardSettings, Scenario
from failback.analytics.dashboard.sources.kube_clusters import require_client
from failback.analytics.web.applications import during
from failback.analytics.web.tokens import TokenFile
from failback.analytics.web.web_server import WebServer, listen, serve_metrics
from failback.protocol.errors import ConfigError

_DRAIN_SECONDS: Final = 5


def make_app(
    settings: DashboardSettings, scenarios: Sequence[Scenario], abort_run: Abort
) -> tuple[FastAPI, DashboardMetrics]:
    """The application with its parts; the poller runs for as long as the application does.

    Raises:
        ConfigError: A setting is wrong, or a file cannot be used.
    """
    settings.check()
    if settings.kube_namespaces:
        require_client()
    tokens = TokenFile(settings.tokens) if settings.tokens is not None else None
    hub, metrics = EventHub(), DashboardMetrics()
    experiments = Experiments(
        scenarios, settings.runs / ".dashboard", settings.audit_file, abort_run
    )
    try:
        experiments.require_audit()
    except OSError as error:
        raise ConfigError("--audit", f"{settings.audit_file}: {error.strerror}") from error
    poller = Poller(settings, hub, experiments)
    metrics.watch(READERS, lambda: hub.readers)
    metrics.watch(LOOKS, lambda: poller.looks)
    metrics.watch(LOOK_SECONDS, lambda: poller.last_look_seconds)
    shared = Shared(settings, Access(settings, tokens), hub, poller, experiments)
    app = create_app(shared, metrics)
    app.router.lifespan_context = during("poller", poller.run, before=poller.look_at_runs)
    return app, metrics


def serve(settings: DashboardSettings, scenarios: Sequence[Scenario], abort_run: Abort) -> None:
    """Serve until SIGTERM or SIGINT. Experiments that were started go on.

    Raises:
        ConfigError: A setting is wrong, or the address is taken.
    """
    app, metrics = make_app(settings, scenarios, abort_run)
    listener = listen(settings.host, settings.port, backlog=256)
    if settings.metrics_port is not None:
        serve_metrics(settings.metrics_host, settings.metrics_port, metrics.registry)
    with listener:
        _Server(settings, app).run([listener])


class _Server(WebServer):
    def __init__(self, settings: DashboardSettings, app: FastAPI) -> None:
        super().__init__(
            "dashboard",
            app,
            tls_cert=settings.tls_cert,
            tls_key=settings.tls_key,
            drain_seconds=_DRAIN_SECONDS,
            bounds=settings.bounds,
            proxy_headers=False,
        )
        self._shared: Shared = app.state.shared

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Event streams have no end of their own."""
        self._shared.hub.close()
        await super().shutdown(sockets)
