"""What a collector says is shown; what only looks like one, or speaks otherwise, is a sentence."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.dashboard.serve import make_app
from failback.analytics.dashboard.settings import CollectorAddress, DashboardSettings
from failback.analytics.dashboard.sources.ingest import IngestReader, processes
from failback.analytics.dashboard.views.paging import encode
from failback.protocol.errors import ConfigError


@contextmanager
def answering(document: Any) -> Iterator[str]:
    """The URL of a server that says the same to every question, with status 200."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "document",
    [b"<html>Sign in</html>", [], {"runs": [{"run": "a"}], "next": None}, {"runs": 1, "next": 2}],
)
def test_what_is_no_collector_of_this_version_is_a_sentence(document: Any) -> None:
    with answering(document) as url:
        view = IngestReader(CollectorAddress(url)).look(5.0)
        assert view.problem.startswith("the collector answers otherwise than one of this version: ")
        assert (view.at, view.runs) == (5.0, ())
        with pytest.raises(DashboardProblem, match=r"^failed: the collector answers otherwise"):
            processes(CollectorAddress(url), "a", -1, 10)


@pytest.mark.parametrize("content", ["t\u00f6ken", "two\nlines"])
def test_a_token_that_cannot_be_sent_is_a_sentence(content: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    view = IngestReader(CollectorAddress("http://127.0.0.1:9", file)).look(5.0)
    assert view.problem.startswith("the collector does not answer: http://127.0.0.1:9: ")


def test_an_address_that_is_none_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigError, match=r"^collector: must be http"):
        IngestReader(CollectorAddress("http://collector:port"))


@pytest.mark.parametrize("name", ["\u00b2", "\u0664", "--1", "1e3", "123456789", ""])
def test_a_cursor_of_another_list_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "tokens").touch()
    settings = DashboardSettings(tmp_path, collector=CollectorAddress("http://127.0.0.1:9"))
    app, _ = make_app(settings, [], lambda _: None)
    cursor = encode(name) or "A"
    with pytest.raises(DashboardProblem, match=r"^bad-cursor"):
        asyncio.run(app.state.shared.processes("run", cursor, 10))
