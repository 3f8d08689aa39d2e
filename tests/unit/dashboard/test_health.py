"""Probes are answered to everybody and under any name; what else is asked so is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI

from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import DashboardSettings
from tests.support.dashboard.asgi import ask


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    (tmp_path / "tokens").touch()
    settings = DashboardSettings(
        tmp_path,
        host="0.0.0.0",
        tokens=tmp_path / "tokens",
        public_hosts=frozenset({"failback.example.org"}),
        requests_per_minute=2,
    )
    return make_app(settings, [], lambda _: None)[0]


def status(app: FastAPI, path: str, host: str) -> int:
    return ask(app, path, host)[0]


def test_a_kubelet_asks_by_address_without_a_token_and_often(app: FastAPI) -> None:
    assert [status(app, "/livez", "10.0.0.1:8090") for _ in range(5)] == [200] * 5
    assert status(app, "/", "10.0.0.1:8090") == 421, "pages are served under their name only"


def test_it_is_ready_once_clusters_were_looked_at(app: FastAPI) -> None:
    assert status(app, "/readyz", "10.0.0.1") == 503
    app.state.shared.poller.looks = 1
    assert status(app, "/readyz", "10.0.0.1") == 200


def test_a_probe_opens_no_page(app: FastAPI) -> None:
    for path in ("/livez/", "/readyz/../", "/api/v1/clusters"):
        assert status(app, path, "10.0.0.1") in {401, 404, 421}, path
