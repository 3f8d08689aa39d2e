"""Options of a server are the fields of its settings: what is typed arrives in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from failback.analytics.collector import serve as collector_server
from failback.analytics.collector.settings import MIB, CollectorSettings
from failback.analytics.dashboard import serve as dashboard_server
from failback.analytics.exporter import server as exporter_server
from failback.cli.__main__ import main
from failback.client.remoting.http_limits import WEB_BOUNDS, HttpBounds


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    made: list[Any] = []

    async def note(settings: Any, *_: Any) -> None:
        made.append(settings)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(collector_server, "serve", made.append)
    monkeypatch.setattr(dashboard_server, "serve", lambda settings, *_: made.append(settings))
    monkeypatch.setattr(exporter_server, "serve", note)
    return made


def test_nothing_typed_is_the_defaults(served: list[Any]) -> None:
    assert main(["collect"]) == 0
    assert served == [CollectorSettings()]


def test_units_limits_and_settings_within_settings_arrive(served: list[Any]) -> None:
    words = "--keep-days 2 --max-store-mib 3 --connections 7 --tls-key k --metrics-port 0"
    assert main(["collect", *words.split()]) == 0
    expected = CollectorSettings(
        keep_seconds=172_800,
        max_store_bytes=3 * MIB,
        bounds=HttpBounds(7, 256),
        tls_key=Path("k"),
        metrics_port=0,
    )
    assert served == [expected]


def test_what_may_be_repeated_becomes_the_fields_type(served: list[Any], tmp_path: Path) -> None:
    words = "--operator ann --operator bo --public-host Page.Example --kube-namespace shop"
    assert main(["dashboard", "--root", str(tmp_path), *words.split(), "--tokens", "t"]) == 0
    (made,) = served
    assert made.operators == {"ann", "bo"}
    assert made.public_hosts == {"page.example"}
    assert made.kube_namespaces == ("shop",)
    assert (made.bounds, made.runs) == (WEB_BOUNDS, tmp_path / "runs")


def test_what_is_read_from_text_is_refused_by_the_name_of_its_option(
    served: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words = "exporter -n 127.0.0.1:1 --no-clients --offset-file a-0=f --queue-metrics T"
    assert main(words.split()) == 0
    (made,) = served
    assert made.offset_files == {("a", 0): Path("f")}
    assert (made.clients, made.queue_topics) == (False, {"T"})
    assert main(["exporter", "-n", "127.0.0.1:1", "--offset-file", "f"]) == 2
    assert capsys.readouterr().err == 'error: --offset-file: must be BROKER-ID=PATH, got "f"\n'
